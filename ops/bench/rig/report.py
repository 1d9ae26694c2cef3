"""The result of a benchmark: rows of figure, value and bar; as table, JSON and page."""

import json
import re
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from rich.console import Console
from rich.table import Table

Sense = Literal[">=", "<="]
Say = Callable[[str], None]
BUILD_DIR: Final = Path("build") / "bench"
BEGIN_MARK: Final = "<!-- figures: written by `{command}` -->"
END_MARK: Final = "<!-- end of figures -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure beside its bar.

    `value` is the median (or the worst, where the figure says so) of `runs`
    runs; `low` and `high` are the least and the greatest of them. A figure
    that could not be measured has value None and misses its bar. One without a bar is
    shown beside the others and never missed. `command` is what measures it again.
    """

    figure: str
    value: float | None
    unit: str = ""
    bar: float | None = None
    sense: Sense = "<="
    low: float | None = None
    high: float | None = None
    runs: int
    command: str = ""
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def met(self) -> bool:
        """Whether the value is on the right side of the bar."""
        if self.bar is None:
            return True
        if self.value is None:
            return False
        return self.value >= self.bar if self.sense == ">=" else self.value <= self.bar


# A part of a benchmark: measures so many runs and prints its progress.
Part = Callable[..., list[Figure]]
Parts = Mapping[str, Part]


def figure(
    name: str,
    samples: Sequence[float],
    unit: str = "",
    bar: float | None = None,
    sense: Sense = "<=",
    *,
    worst: bool = False,
    command: str = "",
) -> Figure:
    """Return the figure of some runs: their median, or with `worst` the worst of them."""
    value: float | None = None
    if samples:
        extreme = min(samples) if sense == ">=" else max(samples)
        value = extreme if worst else statistics.median(samples)
    return Figure(
        figure=name, value=value, unit=unit, bar=bar, sense=sense, command=command,
        low=min(samples, default=None), high=max(samples, default=None), runs=len(samples),
    )  # fmt: skip


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a folder that is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="skeletonhunter-bench-") as name:
        yield Path(name)


def titled(rows: Iterable[Figure]) -> dict[tuple[str, str], Figure]:
    """Return the rows by name; one that begins with an ellipsis continues the row above it."""
    found, title = {}, ""
    for row in rows:
        title = title if row.figure.startswith("…") else row.figure
        found[title, row.figure] = row
    return found


def write_json(name: str, figures: Sequence[Figure], folder: Path = BUILD_DIR) -> Path:
    """Write `<folder>/<name>.json`, a list of rows, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps([asdict(f) for f in figures], indent=2) + "\n", encoding="utf-8")
    return path


def kept_rows(name: str, page: Path, command: str) -> list[Figure]:
    """Return the rows of earlier runs: those here left them in `build`, others on the page."""
    path = BUILD_DIR / f"{name}.json"
    built = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return merged([Figure(**row) for row in built], read_page(page, command))


def merged(rows: Sequence[Figure], earlier: Sequence[Figure]) -> list[Figure]:
    """Return the rows, and behind them the earlier ones with other names."""
    found = titled(rows)
    for title, row in titled(earlier).items():
        found.setdefault(title, row)
    return list(found.values())


def number(value: float | None) -> str:
    """Return a figure for people: three significant digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def _cells(row: Figure) -> tuple[str, ...]:
    sign = "≥" if row.sense == ">=" else "≤"
    return (
        row.figure,
        f"{number(row.value)} {row.unit}".strip(),
        "–" if row.bar is None else f"{sign} {number(row.bar)} {row.unit}".strip(),
        f"{number(row.low)} – {number(row.high)}",
        str(row.runs),
        row.at[:10],
        "–" if row.bar is None else "met" if row.met else "MISSED",
    )


HEADER: Final = ("figure", "measured", "bar", "least – greatest", "runs", "date", "")
_QUANTITY: Final = re.compile(r"(?P<sign>[≥≤] )?(?P<number>–|-?[0-9.e+]+)(?: (?P<unit>.*))?")


def print_table(title: str, figures: Sequence[Figure], notes: Sequence[str] = ()) -> None:
    """Print the rows on standard output, and what is to be read beside them."""
    table = Table(*HEADER, title=title)
    for row in figures:
        table.add_row(*_cells(row), style=None if row.met else "bold red")
    console = Console(width=140)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)


def read_page(page: Path, command: str) -> list[Figure]:
    """Return the rows that `render_page` wrote for a command, with the digits that it shows."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    _, _, table = text.partition(BEGIN_MARK.format(command=command))
    lines = [line for line in table.partition(END_MARK)[0].splitlines() if line.startswith("|")]
    written = re.search(r"\d{4}-\d{2}-\d{2}", table)
    found = []
    for line in lines[2:]:
        name, measured, bar, extent, runs, *date, _ = (c.strip() for c in line[2:-2].split(" | "))
        value, unit, _ = _quantity(measured)
        limit, _, sense = _quantity(bar)
        low, high = (_quantity(part)[0] for part in extent.split(" – ", 1))
        found.append(
            Figure(figure=name, value=value, unit=unit, bar=limit, sense=sense, low=low, high=high,
                   runs=int(runs), command=command,
                   at=date[0] if date else written[0] if written else "")
        )  # fmt: skip
    return found


def _quantity(cell: str) -> tuple[float | None, str, Sense]:
    """Return the number, unit and sense of a cell; None for a dash."""
    match = _QUANTITY.fullmatch(cell)
    if match is None:
        raise ValueError(f"{cell!r} is no figure of a table")
    text = match["number"]
    sense: Sense = ">=" if match["sign"] == "≥ " else "<="
    return None if text == "–" else float(text), match["unit"] or "", sense


def render_page(
    page: Path, figures: Sequence[Figure], command: str, machine: str, notes: Sequence[str] = ()
) -> None:
    """Write the rows between the page's marks; a page without marks gets them at its end."""
    begin = BEGIN_MARK.format(command=command)
    lines = [
        begin,
        "",
        f"`{command}`, {datetime.now(UTC).date().isoformat()}, on {machine}.",
        "",
        "| " + " | ".join(HEADER[:-1]) + " | met |",
        "|" + "---|" * len(HEADER),
        *("| " + " | ".join(_cells(row)) + " |" for row in figures),
        "",
        *(f"- {note}" for note in notes),
        *([""] if notes else []),
        END_MARK,
    ]
    text = page.read_text(encoding="utf-8") if page.exists() else f"# {page.stem}\n\n"
    # A page may hold the tables of several commands.
    start = text.find(begin)
    end = text.find(END_MARK, max(start, 0))
    if 0 <= start < end:
        text = text[:start] + "\n".join(lines) + text[end + len(END_MARK) :]
    else:
        text = text.rstrip("\n") + "\n\n" + "\n".join(lines) + "\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
