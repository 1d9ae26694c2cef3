"""Import contracts hold, and what is fixed stays where it is."""

import subprocess
import sys
from pathlib import Path

from tests import PACKAGES, ROOT

TOP_LEVEL = {
    "pyproject.toml",
    "schemas",
    "probers",
    "streams",
    "skeleton_job",
    "localizer",
    "arena",
    "docker-compose.yml",
    "tests",
    "ops",
    "README.md",
    "Makefile",
    "CHANGELOG.md",
    ".ci",
}
# No file is a slab.
MAX_FILE_LINES = 800
MAX_MEDIAN_LINES = 300


def test_the_fixed_top_level_names_are_there() -> None:
    """Every name that the project promises at its top level exists."""
    assert {p.name for p in ROOT.iterdir()} >= TOP_LEVEL


def test_import_contracts_hold() -> None:
    """No process imports another; the record contract and the agent stay free of heavy packages."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_stay_small() -> None:
    """A source file has one responsibility; its length is the alarm."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for room in PACKAGES
        for path in (ROOT / room).rglob("*.py")
    }
    too_long = {name: n for name, n in lengths.items() if n > MAX_FILE_LINES}
    assert not too_long
    assert sorted(lengths.values())[len(lengths) // 2] <= MAX_MEDIAN_LINES


def test_nothing_is_called_utils() -> None:
    """A file says what it is for."""
    assert not [p for room in PACKAGES for p in (ROOT / room).rglob("*util*.py")]


def test_no_machine_path_or_registry_address_is_written_down() -> None:
    """The repository names no package registry and no folder of a developer's machine."""
    marks = ("repo1." + "maven", "pypi" + ".org", "/wo" + "rk/", "/ro" + "ot/", "/tmp/" + "sk")
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    found = [
        (name, mark)
        for name in tracked
        if name and (ROOT / name).is_file()
        for mark in marks
        if mark in (ROOT / name).read_text(encoding="utf-8", errors="ignore")
    ]
    assert not found
