"""Every file, module, `make` target and link that the pages name exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = "schemas|probers|streams|skeleton_job|localizer|arena|ops"
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# `streams/core/feed.py`, `tests/unit/`, `tests/property/test_columnar_*.py`.
REPOSITORY_PATH: Final = re.compile(rf"(?<![\w/.<-])(?:{PACKAGES}|tests|docs)/[\w./*-]*")
# `streams.core.feed`, `arena.fabric.FabricShape`; not a file such as `arena.md`.
MODULE_PATH: Final = re.compile(rf"(?<![\w/.-])(?:{PACKAGES})(?:\.[A-Za-z_]\w*)+(?![\w/.(-]*\.)")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
FILE_ENDINGS: Final = {"md", "png", "py", "toml", "json", "jsonl", "avro"}


def name_of(page: Path) -> str:
    """Return how the test is called for a page."""
    return str(page.relative_to(ROOT))


def paths_in(text: str) -> Iterator[str]:
    """Yield what looks like a path in the repository."""
    for match in REPOSITORY_PATH.finditer(text):
        yield match[0].rstrip("./-")


def exists(path: str) -> bool:
    """Say whether a path, or one that fits a pattern, is in the repository."""
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


@cache
def top_level_names(file: Path) -> frozenset[str]:
    """Return what a module defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names)


def resolves(dotted: str) -> bool:
    """Say whether a dotted name is a package, a module, or a name in a module."""
    parts = dotted.split(".")
    folder = ROOT.joinpath(*parts)
    if folder.is_dir() or folder.with_suffix(".py").is_file():
        return True
    for length in range(len(parts) - 1, 0, -1):
        module = ROOT.joinpath(*parts[:length])
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.is_file():
                return parts[length] in top_level_names(file)
    return False


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(text)
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    """A file that is renamed is renamed in the pages as well."""
    text = page.read_text(encoding="utf-8")
    assert [path for path in paths_in(text) if not exists(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    """`package.module`, or a name that such a module defines."""
    text = page.read_text(encoding="utf-8")
    dotted = {match[0] for match in MODULE_PATH.finditer(text)}
    named = {name for name in dotted if name.rsplit(".", 1)[1] not in FILE_ENDINGS}
    assert sorted(name for name in named if not resolves(name)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and to a heading in it where the link names one."""
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    """`make bench-scale` is a rule of the Makefile."""
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = re.findall(r"`make ([\w-]+)", page.read_text(encoding="utf-8"))
    assert sorted(set(named) - rules) == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    """A reader who follows links from README.md finds each page of docs/."""
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target and target.partition("#")[0]:
                waiting.append((page.parent / target.partition("#")[0]).resolve())
    assert {name_of(page) for page in PAGES} <= {name_of(page) for page in reached}
