"""What the parts of the throughput benchmark share: rows, what a run cost, a rig for a part."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ops.bench.rig.report import BUILD_DIR, Figure, Sense, figure
from ops.bench.throughput.rig import JOIN_MS, Rig, Run

COMMAND: Final = "make bench-throughput"
NAME: Final = "throughput"
MEGA: Final = 1e6
WORKERS: Final = 2
# The figure that others are relative to.
FULL: Final = "Kafka → workers → windows and anomalies"

Say = Callable[[str], None]


def row(
    name: str,
    samples: Sequence[float],
    unit: str,
    bar: float | None = None,
    sense: Sense = ">=",
) -> Figure:
    """Return a figure of this benchmark."""
    return figure(name, samples, unit, bar=bar, sense=sense, command=COMMAND)


def on_rig(
    measure: Callable[[Rig, int, Say], list[Figure]], *, join_ms: int = JOIN_MS
) -> Callable[[int, Say], list[Figure]]:
    """Return a part that measures on a rig of its own."""

    def part(runs: int, say: Say) -> list[Figure]:
        with (
            tempfile.TemporaryDirectory(prefix="skeletonhunter-bench-") as name,
            Rig(Path(name), join_ms=join_ms) as made,
        ):
            # Made anew after each change of the sources, in half a minute.
            made.child("ops.bench.throughput.decoder")
            return measure(made, runs, say)

    return part


def told(what: str, run: Run) -> str:
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
