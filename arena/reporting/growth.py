"""The picture of costs over sizes, one panel for each thing that grows, on logarithmic axes."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from arena.reporting.figures import COLOURS, DPI, GRID, LINES, MARKERS, STYLE

# Label, axis, sizes, costs, slope.
Line = tuple[str, str, Sequence[float], Sequence[float], float]


def draw(lines: Sequence[Line], png: Path) -> None:
    """Write the picture; each line's slope stands in the legend."""
    axes_of = {axis: [line for line in lines if line[1] == axis] for _, axis, *_ in lines}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 4.6 * max(1, len(axes_of))), layout="constrained")
        panels = figure.subplots(max(1, len(axes_of)), 1, squeeze=False)[:, 0]
        for panel, (axis, mine) in zip(panels, axes_of.items(), strict=False):
            for number, (label, _, sizes, costs, slope) in enumerate(mine):
                panel.plot(
                    sizes, costs, label=f"{label}: slope {slope:.2f}",
                    color=COLOURS[number % len(COLOURS)], linestyle=LINES[number % len(LINES)],
                    marker=MARKERS[number % len(MARKERS)], linewidth=1.8,
                )  # fmt: skip
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_title(f"Cost over {axis}")
            panel.set_xlabel(axis)
            panel.set_ylabel("cost")
            panel.grid(color=GRID)
            panel.set_axisbelow(True)
            panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
        png.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(png, dpi=DPI)
