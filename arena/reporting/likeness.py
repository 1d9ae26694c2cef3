"""The picture of simulated round trips beside recorded ones."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arena.likeness import MAX_LAG, Shape
from arena.reporting.figures import COLOURS, DPI, GRID, LINES, STYLE


def draw(shapes: Sequence[Shape], png: Path) -> None:
    """Write the picture: distribution, tail, and what neighbouring rounds share."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13, 4.4), layout="constrained")
        body, tail, memory = figure.subplots(1, 3)
        for number, one in enumerate(shapes):
            how = {"color": COLOURS[number], "linestyle": LINES[number], "linewidth": 2.0}
            label = f"{one.name}: median {one.median_ns / 1e3:.3g} µs, σ {one.sigma:.2f}"
            body.plot(one.quantiles, one.levels, label=label, **how)
            above = one.quantiles > 0
            tail.plot(one.quantiles[above], 1 - one.levels[above], **how)
            memory.plot(np.arange(1, MAX_LAG + 1), one.correlation, marker="o", **how)
        body.set_xlim(-4, 6)
        _frame(body, "Logarithms, each path scaled", "robust standard deviations", "share below")
        tail.set_xscale("log")
        tail.set_yscale("log")
        _frame(tail, "Upper tail", "robust standard deviations", "share above")
        memory.set_ylim(-0.25, 1.0)
        _frame(memory, "Memory", "rounds apart", "rank correlation")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(png, dpi=DPI)


def _frame(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
