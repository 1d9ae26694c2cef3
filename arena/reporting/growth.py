"""The picture of costs over sizes, one panel for each thing that grows, on logarithmic axes."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from arena.reporting.figures import COLOURS, DPI, GRID, LINES, MARKERS, STYLE

# Inches of a panel: its axes, and each line of the legend below them.
WIDTH, HEIGHT, LEGEND = 7.5, 3.6, 0.22

# Label, axis, sizes, costs, slope.
Line = tuple[str, str, Sequence[float], Sequence[float], float]


def draw(lines: Sequence[Line], png: Path) -> None:
    """Write the picture; each line's slope stands in the legend."""
    axes_of = {axis: [line for line in lines if line[1] == axis] for _, axis, *_ in lines}
    with mpl.rc_context(STYLE):
        heights = [HEIGHT + LEGEND * len(mine) for mine in axes_of.values()]
        figure = Figure(figsize=(WIDTH, max(HEIGHT, sum(heights))), layout="constrained")
        panels = figure.subplots(
            max(1, len(axes_of)), 1, squeeze=False, height_ratios=heights or None
        )[:, 0]
        for panel, (axis, mine) in zip(panels, axes_of.items(), strict=False):
            for number, (label, _, sizes, costs, slope) in enumerate(mine):
                panel.plot(
                    sizes, costs, label=f"{label}: slope {slope:.2f}",
                    color=COLOURS[number % len(COLOURS)], linestyle=LINES[number % len(LINES)],
                    marker=MARKERS[number % len(MARKERS)], linewidth=1.8,
                )  # fmt: skip
            panel.set_xscale("log")
            panel.set_yscale("log")
            # Sizes are a factor of two to five apart: a label at each decade alone is too few.
            panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.set_title(f"Cost over {axis}")
            panel.set_xlabel(axis)
            panel.set_ylabel("cost")
            panel.grid(color=GRID)
            panel.set_axisbelow(True)
            panel.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), frameon=False, fontsize=8)
        png.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(png, dpi=DPI)
