"""Figures of the throughput benchmark: rows of the table, and the picture."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from arena.reporting.figures import COLOURS, DPI, GRID, STYLE
from ops.bench.rig.report import BUILD_DIR, Figure, Say, Sense, figure, number, scratch_folder
from ops.bench.throughput.rig import JOIN_MS, Rig, Run

NAME: Final = "throughput"
MEGA: Final = 1e6
WORKERS: Final = 2
# The figure that others are relative to.
FULL: Final = "Kafka → workers → windows and anomalies"


def row(
    name: str, samples: Sequence[float], unit: str, bar: float | None = None, sense: Sense = ">="
) -> Figure:
    """Return a figure of which more is better, unless it says otherwise."""
    return figure(name, samples, unit, bar, sense)


def on_rig(
    measure: Callable[[Rig, int, Say], list[Figure]], *, join_ms: int = JOIN_MS
) -> Callable[[int, Say], list[Figure]]:
    """Return a part that measures on a rig of its own."""

    def part(runs: int, say: Say) -> list[Figure]:
        with scratch_folder() as folder, Rig(folder, join_ms=join_ms) as rig:
            # Compiles the kernels: half a minute after each change of the sources.
            rig.child("ops.bench.throughput.decoder")
            return measure(rig, runs, say)

    return part


def describe(what: str, run: Run) -> str:
    """Return a run as a line of progress."""
    text = (
        f"{what}: {run.rate_hz / MEGA:.3f} M/s ({run.results:,.0f} in {run.seconds:.1f} s"
        f"{'' if run.whole else ', cut off there'}); CPU {run.workers.cpu_s:.1f} s, "
        f"broker {run.broker_cpu_s:.1f} s"
    )
    if run.workers.rss_bytes:
        text += f"; {run.workers.rss_bytes / MEGA:.0f} MB"
    return text


def costs(what: str, runs: Sequence[Run], of: str = "results") -> list[Figure]:
    """Return what runs cost, judged by nobody: CPU per million of what they took, memory."""
    return [
        row(
            f"{what}: CPU of the processes, each million {of}",
            [r.workers.cpu_s / r.results * MEGA for r in runs], "s", sense="<=",
        ),
        row(
            f"{what}: CPU of the broker, each million {of}",
            [r.broker_cpu_s / r.results * MEGA for r in runs], "s", sense="<=",
        ),
        row(
            f"{what}: RSS of a process", [r.workers.rss_bytes / MEGA for r in runs], "MB",
            sense="<=",
        ),
    ]  # fmt: skip


def known_rate_hz() -> float | None:
    """Return the rate at full load that was measured last, results a second; None: never."""
    try:
        rows = json.loads((BUILD_DIR / f"{NAME}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    found = [r["value"] for r in rows if r["figure"] == FULL and r["value"] is not None]
    return found[0] * MEGA if found else None


PICTURE: Final = Path("docs/figures") / "performance.png"
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
