"""Every file, module, `make` target and link that the pages name exists."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = "schemas|probers|streams|skeleton_job|localizer|arena|ops"
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# `streams/core/feed.py`, `tests/unit/`, `tests/property/test_columnar_*.py`.
REPOSITORY_PATH: Final = re.compile(rf"(?<![\w/.<-])(?:{PACKAGES}|tests|docs)/[\w./*@-]*")
# `streams.core.feed`, `arena.fabric.FabricShape`; not a file such as `arena.md`.
MODULE_PATH: Final = re.compile(rf"(?<![\w/.-])(?:{PACKAGES})(?:\.[A-Za-z_]\w*)+(?![\w/.(-]*\.)")
# `merge.py` in a column whose package is named elsewhere.
BARE_FILE: Final = re.compile(r"`(\w+\.py)`")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
MAKE: Final = re.compile(r"`make ([\w-]+)")
FILE_ENDINGS: Final = {"md", "png", "py", "toml", "json", "jsonl", "avro"}


def read(file: Path) -> str:
    """Return the text of a file."""
    return file.read_text(encoding="utf-8")


def paths_in(text: str) -> Iterator[str]:
    """Yield what looks like a path in the repository."""
    for match in REPOSITORY_PATH.finditer(text):
        # Of `streams/detectors/<name>.py` the folder.
        whole = text[match.end() : match.end() + 1] != "<"
        yield match[0].rstrip("./-") if whole else match[0].rpartition("/")[0]


def exists(path: str) -> bool:
    """Say whether a path, or one that fits a pattern, is in the repository."""
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


@cache
def top_level_names(file: Path) -> frozenset[str]:
    """Return what a module defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(read(file)).body:
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


@cache
def sources(package: str) -> str:
    """Return all code of a package."""
    return "".join(read(file) for file in sorted((ROOT / package).rglob("*.py")))


def is_logged(name: str) -> bool:
    """Say whether a dotted name is that of an event, such as `localizer.metrics`."""
    return f'"{name}"' in sources(name.partition(".")[0])


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(FENCE.sub("", read(page)))
    }


def leads_somewhere(page: Path, target: str) -> bool:
    """Say whether a link of a page is to another site, or to a file and heading that exist."""
    if "://" in target:
        return True
    file, _, anchor = target.partition("#")
    linked = (page.parent / file).resolve() if file else page
    return linked.exists() and (not anchor or anchor in anchors(linked))


def wrong(find: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """Return what is wrong with which page, as far as a function finds it."""
    return {str(page.relative_to(ROOT)): found for page in PAGES if (found := find(page))}


def test_every_path_that_a_page_names_exists() -> None:
    """A file that is renamed is renamed in the pages as well."""
    assert wrong(lambda page: [path for path in paths_in(read(page)) if not exists(path)]) == {}


def test_every_bare_file_name_is_that_of_some_file() -> None:
    """`merge.py` stands for a file of the package in whose row or sentence it is."""
    known = {
        path.name for package in PACKAGES.split("|") for path in (ROOT / package).rglob("*.py")
    }
    assert wrong(lambda page: sorted(set(BARE_FILE.findall(read(page))) - known)) == {}


def test_every_module_that_a_page_names_exists() -> None:
    """`package.module`, a name that such a module defines, or a name that the package logs."""

    def unknown(page: Path) -> list[str]:
        dotted = {match[0] for match in MODULE_PATH.finditer(read(page))}
        named = {name for name in dotted if name.rsplit(".", 1)[1] not in FILE_ENDINGS}
        return sorted(name for name in named if not resolves(name) and not is_logged(name))

    assert wrong(unknown) == {}


def test_every_link_of_a_page_leads_somewhere() -> None:
    """To a file of the repository, and to a heading in it where the link names one."""

    def broken(page: Path) -> list[str]:
        return [t for t in LINK.findall(FENCE.sub("", read(page))) if not leads_somewhere(page, t)]

    assert wrong(broken) == {}


def test_every_make_target_that_a_page_names_exists() -> None:
    """`make bench-scale` is a rule of the Makefile."""
    rules = set(re.findall(r"^([\w-]+):", read(ROOT / "Makefile"), re.MULTILINE))
    assert wrong(lambda page: sorted(set(MAKE.findall(read(page))) - rules)) == {}


def test_every_page_can_be_reached_from_the_readme() -> None:
    """A reader who follows links from README.md finds each page of docs/."""
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        targets = [t for t in LINK.findall(read(page)) if "://" not in t]
        waiting += [(page.parent / t.partition("#")[0]).resolve() for t in targets]
    assert set(PAGES) - reached == set()
