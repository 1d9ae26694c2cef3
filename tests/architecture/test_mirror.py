"""The test of a module is found by its name.

`tests/unit` has the folders of the project: the tests of `streams/core/machine.py` are
`tests/unit/streams/core/test_machine.py` and `test_machine_<more>.py` beside it. A test of a whole
folder bears the folder's name. `tests/property` is flat: `test_<package>_<module>_<more>.py`.
"""

import ast
from pathlib import Path

import pytest

from tests import PACKAGES, ROOT

UNIT = ROOT / "tests" / "unit"
PROPERTY = ROOT / "tests" / "property"


def prefixes(stem: str) -> list[str]:
    """Return the names that a test's stem may stand for, the longest first.

    >>> prefixes("test_machine_restart")
    ['machine_restart', 'machine']
    """
    words = stem.split("_")[1:]
    return ["_".join(words[:count]) for count in range(len(words), 0, -1)]


def is_source(path: Path) -> bool:
    """Whether a path without its suffix is a module or a folder."""
    return path.with_suffix(".py").is_file() or path.is_dir()


def imported(test: Path) -> list[str]:
    """Return the project's modules that a test imports."""
    found = set()
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {node.module, *names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return sorted(
        name
        for name in found
        if name.startswith(PACKAGES) and is_source(ROOT.joinpath(*name.split(".")))
    )


def relative(path: Path) -> str:
    """Return a path as it is written in the repository."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("test", sorted(UNIT.rglob("test_*.py")), ids=relative)
def test_a_unit_test_bears_the_name_of_what_it_tests(test: Path) -> None:
    """A module or folder of that name stands where the test's folder says."""
    folder = test.parent.relative_to(UNIT)
    found = [
        name
        for name in prefixes(test.stem)
        if name == folder.name or is_source(ROOT / folder / name)
    ]
    modules = [Path(*name.split(".")) for name in imported(test)]
    targets = [f"tests/unit/{m.parent.as_posix()}/test_{m.name}[_<more>].py" for m in modules]
    assert found, (
        f"{relative(test)}: {folder.as_posix()}/ has no module or folder whose name follows "
        f"test_. By what it imports, rename it to one of: {', '.join(targets)}"
    )


@pytest.mark.parametrize("test", sorted(PROPERTY.glob("test_*.py")), ids=relative)
def test_a_property_test_bears_the_name_of_what_it_tests(test: Path) -> None:
    """The package first, then a module or folder of it."""
    package = next((p for p in PACKAGES if test.stem.startswith(f"test_{p}_")), None)
    assert package, f"{relative(test)}: rename it to test_<package>_<module>[_<more>].py"
    within = {p.stem for p in (ROOT / package).rglob("*.py")}
    within |= {p.name for p in (ROOT / package).rglob("*") if p.is_dir()}
    rest = test.stem.replace(f"_{package}", "", 1)
    targets = [
        f"test_{package}_{name.rpartition('.')[2]}[_<more>].py"
        for name in imported(test)
        if name.startswith(f"{package}.")
    ]
    assert within.intersection(prefixes(rest)), (
        f"{relative(test)}: {package}/ has no module or folder of that name. "
        f"By what it imports, rename it to one of: {', '.join(targets)}"
    )
