"""`pytest -n 2`: integration tests, which mostly wait, and beside them all others.

Each half runs in a process of its own, in its order, as it would alone. What computes is nice:
integration tests measure time.
"""

import os
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

INTEGRATION: Final = "tests/integration/"
# What measures no time: so the halves take about as long.
TIMELESS: Final = tuple(
    f"{INTEGRATION}test_{name}.py"
    for name in ("arena_kafka", "doctor_kafka", "registry", "security", "skeleton_kafka")
)
PROCESSES_ENV: Final = "PYTEST_XDIST_WORKER_COUNT"
# A tenth of the weight of a process that is not.
NICE: Final = 10


def half_of(nodeid: str) -> str:
    """Return the name of the half that a test belongs to.

    >>> half_of("tests/integration/test_worker.py::test_x"), half_of("tests/unit/test_y.py::test_y")
    ('integration', 'others')
    """
    timed = nodeid.startswith(INTEGRATION) and not nodeid.startswith(TIMELESS)
    return "integration" if timed else "others"


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what gives each of two processes one half; None where `--dist` says otherwise."""
    if config.getoption("dist") != "load":
        return None
    made = LoadScopeScheduling(config, log)
    # What it takes together: a module's tests by itself.
    made._split_scope = half_of
    return made


def step_aside(nodeid: str) -> None:
    """Let the other half go first, in the process of those that compute."""
    beside = os.environ.get(PROCESSES_ENV, "1") != "1"
    if beside and half_of(nodeid) == "others" and os.nice(0) == 0:
        os.nice(NICE)
