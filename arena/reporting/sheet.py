"""The report as one picture: table, delays, precision and recall, kinds, worst cases."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arena.reporting.figures import DPI, STYLE, delays, keys, kinds, points
from arena.reporting.tables import Failure, confusion, failures, headings, rows
from arena.scoring import Case

WIDTH_IN: Final = 15.0
# Worst cases that a picture has room for; the HTML page has more.
MOST_TROUBLES: Final = 12
CUT: Final = 150
GREY: Final = "#555555"
RULE: Final = "#bbbbbb"
BEST: Final = "#0072B2"
NAME_SHARE: Final = 0.2


def write_png(path: Path, cases: Mapping[str, Sequence[Case]], title: str, note: str) -> None:
    """Write the page as a picture; the first diagnoser's kinds and worst cases are shown."""
    first, mine = next(iter(cases.items()))
    worst = failures(mine)
    true, said, _ = confusion(mine)
    heights = [
        0.9,
        0.7 + 0.5 * len(cases),
        5.0,
        2.6 + 0.24 * max(len(true), 4),
        0.9 + 0.24 * min(len(worst), MOST_TROUBLES),
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, sum(heights)), layout="constrained")
        grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
        parts = [figure.add_subfigure(grid[n]) for n in range(len(heights))]
        head = parts[0].subplots()
        head.axis("off")
        head.text(0, 0.75, title, fontsize=19, weight="bold", va="center")
        head.text(0, 0.15, note, fontsize=10, color=GREY, va="center")
        _table(parts[1].subplots(), cases)
        left, right = parts[2].subplots(1, 2)
        delays(left, cases)
        points(right, cases)
        parts[2].legend(handles=keys(cases), loc="outside lower center", ncols=4, frameon=False)
        wide = 4 + 0.36 * len(said)
        middle = parts[3].subplots(1, 2, width_ratios=[wide, max(WIDTH_IN - wide, 0.5)])
        kinds(middle[0], mine, first)
        middle[1].axis("off")
        _worst(parts[4].subplots(), first, worst)
        figure.savefig(path, format="png", dpi=DPI, metadata={"Software": None})


def _table(axes: Axes, cases: Mapping[str, Sequence[Case]]) -> None:
    columns = headings()
    axes.axis("off")
    axes.set_xlim(0, 1)
    axes.set_ylim(len(cases) + 0.9, 0)
    axes.set_title("Scores, with 95 % bootstrap intervals over scenarios")
    middle = [NAME_SHARE + (1 - NAME_SHARE) * (n + 0.5) / len(columns) for n in range(len(columns))]
    for x, heading in zip(middle, columns, strict=True):
        text = heading.replace(", ", ",\n").replace("pages a", "pages\na")
        axes.text(x, 0.45, text, ha="center", va="center", weight="bold", fontsize=9)
    for number, (name, cells) in enumerate(rows(cases).items()):
        y = number + 1.35
        axes.plot([0, 1], [y - 0.48, y - 0.48], color=RULE, linewidth=0.8)
        axes.text(0, y, name, va="center", fontsize=10, weight="bold" if number == 0 else "normal")
        for x, cell in zip(middle, cells, strict=True):
            style: dict[str, Any] = {"weight": "bold", "color": BEST} if cell.best else {}
            above = 0.16 if cell.interval else 0.0
            axes.text(x, y - above, cell.text, ha="center", va="center", fontsize=10, **style)
            axes.text(
                x, y + 0.22, cell.interval, ha="center", va="center", fontsize=7.5, color=GREY
            )


def _worst(axes: Axes, name: str, found: Sequence[Failure]) -> None:
    shown = found[:MOST_TROUBLES]
    axes.axis("off")
    axes.set_title(f"Worst cases: {name} ({len(shown)} of {len(found)})")
    axes.set_xlim(0, 1)
    axes.set_ylim(max(len(shown), 1), 0)
    if not shown:
        axes.text(0, 0.5, "None: everything found, nothing false, every place right.", va="center")
    for number, failure in enumerate(shown):
        y = number + 0.5
        axes.text(0, y, failure.what, va="center", fontsize=8.5, color="#A04000")
        axes.text(0.12, y, failure.scenario, va="center", fontsize=8.5)
        detail = failure.detail if len(failure.detail) <= CUT else failure.detail[: CUT - 1] + "…"
        axes.text(0.40, y, detail, va="center", fontsize=8.5, color=GREY)
