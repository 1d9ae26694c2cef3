"""The picture of the throughput figures: results a second, and bytes a result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from arena.reporting.figures import COLOURS, DPI, GRID, STYLE
from ops.bench.rig.report import Figure, number

PICTURE: Final = Path("docs") / "performance.png"
RATES: Final = "M/s"
BYTES: Final = "bytes a result"
LAYOUT: Final = "layout "


def draw(rows: Sequence[Figure], png: Path = PICTURE) -> None:
    """Draw what was measured of both kinds; without any of it there is no picture."""
    kinds = [
        (title, [r for r in rows if r.unit == unit and r.value and not _compared(r)], label)
        for unit, title, label in (
            (RATES, "Results a second", "millions, logarithmic"),
            (BYTES, "A result on the wire and on disk", "bytes"),
        )
    ]
    shown = [kind for kind in kinds if kind[1]]
    if not shown:
        return
    heights = [len(found) + 1.5 for _, found, _ in shown]
    with mpl.rc_context(STYLE):
        drawing = Drawing(figsize=(10.0, 0.4 * sum(heights)), layout="constrained")
        axes_of = drawing.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, found, label) in zip(axes_of, shown, strict=True):
            _bars(axes, found)
            axes.set_title(title)
            axes.set_xlabel(label)
            if found[0].unit == RATES:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter("{x:g}")
        png.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(png, dpi=DPI, metadata={"Software": None})


def _compared(row: Figure) -> bool:
    """Return whether a row is of a layout that was only compared: the page has a table of them."""
    return row.figure.startswith(LAYOUT)


def _bars(axes: Axes, rows: Sequence[Figure]) -> None:
    """Draw a bar for each row with its value, and the bar it is held to as a line."""
    for place, row in enumerate(rows):
        value = row.value or 0.0
        axes.barh(place, value, height=0.6, color=COLOURS[0])
        axes.annotate(
            number(value), (max(value, row.high or 0.0), place), (4, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
        if row.low is not None and row.high is not None and row.high > row.low:
            axes.plot([row.low, row.high], [place, place], color="black", linewidth=1.2)
        if row.bar is not None:
            axes.plot([row.bar] * 2, [place - 0.4, place + 0.4], color=COLOURS[1], linewidth=2.5)
    axes.set_yticks(range(len(rows)), [row.figure for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)
