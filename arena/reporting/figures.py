"""The drawings of a report, with matplotlib."""

import io
from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import Any, Final, TypeVar

import matplotlib as mpl
import matplotlib.patches
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from arena.reporting.tables import FALSE, MISSED, confusion
from arena.scoring import Case, delays_ns, scores
from schemas.units import SECOND_NS

Style = TypeVar("Style")

# Okabe and Ito's colours (2008), told apart by most eyes; line styles and markers
# say the same again, for print in grey.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans", "font.size": 10.0, "axes.spines.top": False,
    "axes.spines.right": False, "axes.titlesize": 12.0, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "svg.hashsalt": "skeletonhunter", "figure.facecolor": "white",
}  # fmt: skip
GRID: Final = "#dddddd"
RIGHT, WRONG = "#0072B2", "#D55E00"
LEAST_DELAY_S: Final = 0.5
# Shade of blue from which white text is read more easily than black.
DARK: Final = 0.85
# Axes of shares begin at a multiple of this.
STEP: Final = 0.1
DPI: Final = 110


def delays(axes: Axes, cases: Mapping[str, Sequence[Case]]) -> None:
    """Draw the share of all faults that were told within a time; misses never come."""
    longest = 1.0
    for number, (name, some) in enumerate(cases.items()):
        faults = sum(len(case.faults) for case in some)
        if not faults:
            continue
        found = np.sort(np.array(delays_ns(some), np.float64) / SECOND_NS)
        longest = max(longest, *found.tolist(), 1.0)
        x = np.concatenate([[LEAST_DELAY_S], np.maximum(found, LEAST_DELAY_S), [1e6]])
        y = np.concatenate([[0.0], np.arange(1, len(found) + 1), [len(found)]]) / faults
        axes.step(
            x, y, where="post", label=name, color=_of(COLOURS, number),
            linestyle=_of(LINES, number), linewidth=2.6 if number == 0 else 1.6,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(LEAST_DELAY_S, longest * 1.6)
    axes.set_ylim(0, 1.03)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.0f} %")
    axes.set_xlabel("seconds from the fault's begin to the verdict")
    axes.set_ylabel("share of all faults")
    axes.set_title("Delay")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)


def points(axes: Axes, cases: Mapping[str, Sequence[Case]]) -> None:
    """Draw precision over recall of detection, with intervals."""
    lows: tuple[list[float], list[float]] = ([], [])
    for number, (name, some) in enumerate(cases.items()):
        found = scores(some)
        precision, recall = found["precision"], found["recall"]
        for known, score in zip(lows, (recall, precision), strict=True):
            known += [v for v in (score.value, score.low) if v is not None]
        if precision.value is None or recall.value is None:
            continue
        reach = [
            [[max(0.0, s.value - s.low)], [max(0.0, s.high - s.value)]]
            if s.value is not None and s.low is not None and s.high is not None
            else None
            for s in (recall, precision)
        ]
        axes.errorbar(
            recall.value, precision.value, xerr=reach[0], yerr=reach[1], label=name,
            color=_of(COLOURS, number), marker=_of(MARKERS, number),
            markersize=11 if number == 0 else 8, linestyle="none", elinewidth=1.2, capsize=3,
            zorder=3 if number == 0 else 2,
        )  # fmt: skip
    axes.set_xlim(_below(lows[0]), 1.02)
    axes.set_ylim(_below(lows[1]), 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(lambda v, _: f"{100 * v:.0f} %")
    axes.set_xlabel("recall of detection")
    axes.set_ylabel("precision of detection")
    axes.set_title("Precision and recall, with 95 % intervals")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)


def keys(names: Iterable[str]) -> list[Line2D]:
    """Return what a legend shows of each diagnoser: the line of its delays with its marker."""
    return [
        Line2D(
            [], [], label=name, color=_of(COLOURS, number), linestyle=_of(LINES, number),
            marker=_of(MARKERS, number), linewidth=2.0,
        )
        for number, name in enumerate(names)
    ]  # fmt: skip


def kinds(axes: Axes, cases: Sequence[Case], name: str) -> None:
    """Draw which kinds one diagnoser said for which: counts, blue right, orange wrong."""
    true, said, counts = confusion(cases)
    top = max(counts.values(), default=1)
    axes.set_title(f"Kinds: {name}")
    for (row, column), count in counts.items():
        good = row == column
        shade = 0.25 + 0.75 * count / top
        y, x = true.index(row), said.index(column)
        patch = mpl.patches.Rectangle(
            (x - 0.5, y - 0.5), 1, 1, color=RIGHT if good else WRONG, alpha=shade, linewidth=0
        )
        axes.add_patch(patch)
        colour = "white" if shade > DARK and good else "black"
        axes.text(x, y, str(count), ha="center", va="center", color=colour, fontsize=8)
    axes.set_xlim(-0.5, max(len(said), 1) - 0.5)
    axes.set_ylim(max(len(true), 1) - 0.5, -0.5)
    axes.set_xticks(range(len(said)), said, rotation=55, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(true)), true)
    axes.set_xlabel(f"said ({MISSED}: no verdict)")
    axes.set_ylabel(f"true ({FALSE}: no fault)")
    axes.tick_params(labelsize=8, length=0)
    axes.set_xticks(np.arange(len(said) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(true) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=GRID, linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.set_axisbelow(True)


def detection_figure(cases: Mapping[str, Sequence[Case]]) -> Figure:
    """Return delays, and precision over recall, side by side with one legend."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 4.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        delays(left, cases)
        points(right, cases)
        figure.legend(handles=keys(cases), loc="outside lower center", ncols=4, frameon=False)
    return figure


def kinds_figure(cases: Sequence[Case], name: str) -> Figure:
    """Return the confusion of kinds, as large as it needs to be."""
    true, said, _ = confusion(cases)
    size = 4 + 0.29 * len(said), 3 + 0.26 * len(true)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        kinds(figure.subplots(), cases, name)
    return figure


def svg(figure: Figure) -> str:
    """Return a figure as SVG: the same figure, the same text."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _below(values: Sequence[float]) -> float:
    """Return where an axis begins: a step below the least value, at 80 % at most."""
    least = min(values, default=0.0) - STEP / 2
    return max(-0.02, min(1 - 2 * STEP, floor(least / STEP) * STEP))


def _of(some: Sequence[Style], number: int) -> Style:
    return some[number % len(some)]
