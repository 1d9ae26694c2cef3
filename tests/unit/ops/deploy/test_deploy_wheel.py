"""What the images install: a wheel that holds everything the program reads at run time."""

import shutil
import subprocess
import sys
import zipfile

import pytest

from ops.broker.lock import APICURIO, KAFKA
from probers.transports.datagrams import native
from schemas.topics import TOPICS
from tests import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from a copy: a build writes into its source folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*-data", "*.egg-info", "*.so")
    for name in ("schemas", "probers", "streams", "skeleton_job", "localizer", "arena", "ops"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
            "--wheel-dir", str(folder), str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_what_is_read_at_run_time(wheel: zipfile.ZipFile) -> None:
    """Schemas, lock files and the page are package data, not only source files."""
    names = set(wheel.namelist())
    wanted = {f"schemas/avsc/{t.name}/1.avsc" for t in TOPICS}
    wanted |= {f"ops/broker/{KAFKA}.lock", f"ops/broker/{APICURIO}.lock", "ops/broker/log4j2.json"}
    page = ROOT / "ops" / "web" / "page"
    wanted |= {p.relative_to(ROOT).as_posix() for p in page.rglob("*") if p.is_file()}
    assert wanted <= names
    assert not any(name.startswith("tests/") for name in names)


def test_wheel_holds_the_c_code_where_a_compiler_was(wheel: zipfile.ZipFile) -> None:
    """What the agent does per packet is compiled; without a compiler the wheel is built as well."""
    compiled = [n for n in wheel.namelist() if n.startswith("probers/transports/_datagrams.c")]
    assert any(name.endswith(".so") for name in compiled) == (native is not None)


def test_wheel_has_the_command(wheel: zipfile.ZipFile) -> None:
    """The entry point of the images is there."""
    (name,) = [n for n in wheel.namelist() if n.endswith("entry_points.txt")]
    assert "skeletonhunter = ops.cli.start:main" in wheel.read(name).decode()
