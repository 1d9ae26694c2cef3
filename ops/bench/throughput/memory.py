"""What the workers of a cluster of 40,000 RNICs keep in memory, at one round a second."""

import time
from statistics import median
from typing import Final

from ops.bench.rig import process_cost
from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure
from ops.bench.throughput.delay import begin
from ops.bench.throughput.figures import WORKERS, Say, row
from ops.bench.throughput.rig import Rig
from schemas.units import SECOND_NS

GIB: Final = 2**30
BAR_GIB: Final = 1.5
# 40,000 RNICs with ten 5-tuples each. Few bodies: their bytes matter here, not their values.
SHAPE: Final = LoadShape(agents=5_000, interval_ns=SECOND_NS, bodies=2)
# Three windows close, and the look-back begins to fill: from then on it is the same each time.
LASTS_S: Final = 105
# From one close to the next: what is held rises with the results of the open windows.
WINDOW_S: Final = 30


def memory(
    made: Rig, runs: int, say: Say, shape: LoadShape = SHAPE, lasts_s: int = LASTS_S
) -> list[Figure]:
    """Let workers take a load in real time; add up what they hold, and the most they took.

    What they hold is the median over the last window, looked at each second.
    """
    kept: list[float] = []
    most: list[float] = []
    for _ in range(runs):
        intervals = round(lasts_s * SECOND_NS / shape.interval_ns)
        _, workers, pace = begin(made, shape, intervals)
        sums: list[int] = []
        while pace.running or not sums:
            time.sleep(1)
            found = [process_cost.memory(child.pid) for child in workers]
            sums.append(sum(m.rss_bytes for m in found))
        told = made.result(pace)
        for child in workers:
            made.group.stop(child.name)
        kept.append(median(sums[-WINDOW_S:]) / GIB)
        most.append(sum(m.peak_bytes for m in found) / GIB)
        say(f"{told['results']:,} results of {shape.paths:,} 5-tuples: {WORKERS} workers hold "
            f"{kept[-1]:.2f} GiB, at most {most[-1]:.2f}; the load was late by "
            f"{told['behind_s']:.2f} s at most")  # fmt: skip
    size = f"{shape.paths:,} 5-tuples at 1 Hz, {WORKERS} workers"
    return [
        row(f"{size}: memory of all", kept, "GiB", BAR_GIB, "<="),
        row(f"{size}: the most that each took, together", most, "GiB", sense="<="),
    ]
