"""What a lab's real job is trained with, and the Python that has it."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.lab.errors import LabUsageError
from ops.lab.faults import near
from ops.lab.training import ENVIRONMENT, JAX_ENVIRONMENT

ROOT: Final = Path(__file__).resolve().parents[2]
_HAS_MODULE: Final = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework for training, which the project itself never imports.

    Attributes
    ----------
    name
        Of its module, and for `lab up --job`.
    title
        What people call it.
    venv
        The environment that `make TARGET` makes, in the folder of the project.
    python_env
        Variable that names another Python.
    environment
        Of the processes that import it.
    refused
        Faults of ranks that a job of it cannot have, and why.
    unrecorded
        What is missing where it records no operations, as people are told; None: it records them.
    """

    name: str
    title: str
    venv: str
    target: str
    size: str
    python_env: str
    environment: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)
    unrecorded: str | None = None


TORCH: Final = Framework(
    name="torch",
    title="PyTorch",
    venv=".venv-training",
    target="training",
    size="5 GB",
    python_env="SKELETONHUNTER_JOB_PYTHON",
    environment=ENVIRONMENT,
)
JAX: Final = Framework(
    name="jax",
    title="JAX",
    venv=".venv-training-jax",
    target="training-jax",
    size="0.6 GB",
    python_env="SKELETONHUNTER_JAX_PYTHON",
    environment=JAX_ENVIRONMENT,
    refused={
        "rank-desync": "all ranks of a JAX job run one compiled program, in which no rank reduces "
        "something else; --job torch has it"
    },
    unrecorded="JAX records no operations: processes that are stopped or gone and bytes that are "
    "not acknowledged are told, not which rank did not launch what",
)
FRAMEWORKS: Final = {framework.name: framework for framework in (TORCH, JAX)}


def framework_of(name: str) -> Framework:
    """Return the framework of that name.

    Raises
    ------
    LabUsageError
        If there is none.
    """
    found = FRAMEWORKS.get(name)
    if found is None:
        raise LabUsageError(f"no training job {name!r}; {near(name, list(FRAMEWORKS))}")
    return found


def job_python(given: Path | None, framework: Framework = TORCH) -> Path:
    """Return the Python whose framework runs ranks: the one given, or that which `make` made.

    Raises
    ------
    LabUsageError
        If it is not there, or has no such framework.
    """
    variable = framework.python_env
    made = ROOT / framework.venv / "bin" / "python"
    named = given or (Path(os.environ[variable]) if variable in os.environ else made)
    how = (
        f"make one by `make {framework.target}` ({framework.size}), or name a Python that has "
        f"{framework.title} by --job-python or {variable}"
    )
    try:
        done = subprocess.run(
            [named, "-c", _HAS_MODULE, framework.name], capture_output=True, check=False
        )
    except OSError as error:
        raise LabUsageError(
            f"no Python for the training job, {named}: {error.strerror}; {how}"
        ) from error
    if done.returncode:
        raise LabUsageError(f"{named} has no {framework.title}; {how}")
    return named
