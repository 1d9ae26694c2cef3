"""Workers under a load that is published in real time: delay to the anomaly, and memory."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Final

from ops.bench.rig import process_cost
from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure, Say
from ops.bench.throughput.report import MEGA, WORKERS, known_rate_hz, row
from ops.bench.throughput.rig import START_TIMEOUT_S, Rig, wait_ready
from ops.log.watch import Watch
from ops.running.processes import Child
from schemas.enums import AnomalyKind, AnomalyState
from schemas.kafka.connection import KafkaSettings
from schemas.records import Anomaly
from schemas.topics import ANOMALY
from schemas.units import SECOND_NS

SHARE: Final = 0.5
BAR_S: Final = 2.0
MEGA_BAR_S: Final = 1.0
# Windows close every 30 s: the first ones, and two more, in which all 5-tuples are judged.
WARM_S: Final = 40.0
LASTS_S: Final = 65.0
# More agents would be as many 5-tuples more, and minutes to make; beyond, they probe more often.
MOST_AGENTS: Final = 2_000
# 5-tuples that lose all probes of one round, each second: samples for a 99th percentile.
CUTS_HZ: Final = 20.0
# What is still under way at the end.
DRAIN_S: Final = 5.0
PER_ROUND: Final = LoadShape().per_round

# Three answers clear a cut; by then they have come, at any interval of this load.
AGAIN_MS: Final = 15_000

# Source, destination, Kafka timestamp of the round, and when it was published, milliseconds.
Cut = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Seconds until the anomaly arrived, of rounds that must have one.

    Attributes
    ----------
    seconds
        Since the round's Kafka timestamp.
    published
        Since the load gave the round to its client, which is later where the load is late.
    missing
        Rounds without an anomaly.
    behind_s
        How late the load was at most.
    """

    seconds: list[float]
    published: list[float]
    missing: int
    behind_s: float


def shape_at(rate_hz: float, cuts_hz: float = CUTS_HZ) -> LoadShape:
    """Return a load of so many results a second."""
    agents = max(1, min(MOST_AGENTS, round(rate_hz / PER_ROUND)))
    interval_ns = round(agents * PER_ROUND / rate_hz * SECOND_NS)
    rounds_hz = rate_hz / PER_ROUND
    return LoadShape(
        agents=agents, interval_ns=interval_ns, bodies=4, cut=min(1.0, cuts_hz / rounds_hz),
        cut_rounds=1, late=0.0, twice=0.0,
    )  # fmt: skip


def begin(rig: Rig, shape: LoadShape, intervals: int) -> tuple[KafkaSettings, list[Child], Child]:
    """Start workers of a new group and, when they are ready, a load in real time."""
    name = rig.new_group()
    settings = rig.settings(f"{name}.")
    workers = [rig.start_worker(f"{name}-{n}", settings) for n in range(WORKERS)]
    wait_ready(workers, START_TIMEOUT_S, check=rig.group.check)
    pace = rig.begin(
        "ops.bench.throughput.children", "pace", "--bootstrap", settings.bootstrap,
        "--prefix", settings.topic_prefix, "--shape", shape.text(), "--intervals", str(intervals),
    )  # fmt: skip
    return settings, workers, pace


def measure(rig: Rig, shape: LoadShape, warm_s: float, lasts_s: float) -> Delays:
    """Publish in real time; compare the cuts with the anomalies that come."""
    intervals = int((warm_s + lasts_s) * SECOND_NS / shape.interval_ns)
    settings, workers, pace = begin(rig, shape, intervals)
    arrived: dict[tuple[str, str], list[float]] = {}
    with Watch(settings, [ANOMALY], from_start=True) as watch:
        until = float("inf")
        while time.monotonic() < until:
            for seen in watch.poll(0.02):
                now_s, anomaly = time.time(), seen.record
                if _is_cut(anomaly):
                    arrived.setdefault((anomaly.src, anomaly.dst), []).append(now_s)
            if until == float("inf") and not pace.running:
                until = time.monotonic() + DRAIN_S
    load = rig.result(pace)
    for child in workers:
        rig.group.stop(child.name)
    delays, published, missing = [], [], 0
    for src, dst, at_ms, published_ms in judged(load["cuts"], (load["begin_s"] + warm_s) * 1e3):
        times = [t for t in arrived.get((src, dst), ()) if t >= at_ms / 1e3]
        if times:
            delays.append(min(times) - at_ms / 1e3)
            published.append(min(times) - published_ms / 1e3)
        else:
            missing += 1
    return Delays(seconds=delays, published=published, missing=missing, behind_s=load["behind_s"])


def judged(cuts: Sequence[Cut], first_ms: float) -> list[Cut]:
    """Return the cuts since a time that must have an onset of their own.

    A 5-tuple that is cut again before its anomaly has cleared has no second onset.
    """
    found: list[Cut] = []
    latest_ms: dict[tuple[str, str], int] = {}
    for cut in sorted(cuts, key=lambda cut: cut[2]):
        src, dst, at_ms, _ = cut
        alone = at_ms - latest_ms.get((src, dst), -AGAIN_MS) >= AGAIN_MS
        latest_ms[src, dst] = at_ms
        if alone and at_ms >= first_ms:
            found.append(cut)
    return found


def _is_cut(anomaly: Anomaly) -> bool:
    return anomaly.kind is AnomalyKind.CONNECTIVITY and anomaly.state is AnomalyState.ONSET


def delay(
    rig: Rig,
    runs: int,
    say: Say,
    *,
    rate_hz: float | None = None,
    warm_s: float = WARM_S,
    lasts_s: float = LASTS_S,
) -> list[Figure]:
    """Half of the rate that `pipeline` measured last, in real time, by real workers.

    And a million results a second: whoever publishes half of the full load on the same cores may
    be late with it, which counts.
    """
    full_hz = known_rate_hz() if rate_hz is None else rate_hz
    if full_hz is None:
        say("delay: skipped, nothing is known of the full load; measure `pipeline` first")
        return []
    lasting = partial(measure, rig, warm_s=warm_s, lasts_s=lasts_s)
    rows = _rows("half of full load", SHARE * full_hz, lasting, runs, say, bar_s=BAR_S)
    return (
        rows
        if rate_hz
        else rows + _rows("1 M results/s", MEGA, lasting, runs, say, bar_s=MEGA_BAR_S)
    )


def _rows(
    name: str,
    rate_hz: float,
    measured: Callable[[LoadShape], Delays],
    runs: int,
    say: Say,
    *,
    bar_s: float | None = None,
) -> list[Figure]:
    shape = shape_at(rate_hz)
    say(f"{name}: {rate_hz / MEGA:.3f} M results/s of {shape.agents:,} agents, "
        f"a round every {shape.interval_ns / 1e6:.0f} ms")  # fmt: skip
    middle, last, worst, published, behind, missing = [], [], [], [], [], 0
    for _ in range(runs):
        found = measured(shape)
        if len(found.seconds) < 2:
            raise RuntimeError(f"{len(found.seconds)} anomalies of {found.missing} cuts came")
        middle.append(median(found.seconds))
        last.append(_p99(found.seconds))
        published.append(_p99(found.published))
        behind.append(found.behind_s)
        worst.append(max(found.seconds))
        missing += found.missing
        say(f"{len(found.seconds)} anomalies: median {middle[-1]:.2f} s, p99 {last[-1]:.2f} s, "
            f"worst {worst[-1]:.2f} s; {found.missing} without; "
            f"the load was late by {found.behind_s:.2f} s at most")  # fmt: skip
    return [
        row(f"result → anomaly at {name}, p99", last, "s", bar_s, "<="),
        row("… since the load had published it", published, "s", sense="<="),
        row("… the load's own lateness, at most", behind, "s", sense="<="),
        row(f"result → anomaly at {name}, median", middle, "s", sense="<="),
        row(f"result → anomaly at {name}, worst", worst, "s", sense="<="),
        row(f"cuts at {name} without an anomaly", [float(missing)], "", 0.0, "<="),
    ]


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[98]


GIB: Final = 2**30
BAR_GIB: Final = 1.5
# 40,000 RNICs with ten 5-tuples each. Few bodies: their bytes matter here, not their values.
CLUSTER_SHAPE: Final = LoadShape(agents=5_000, interval_ns=SECOND_NS, bodies=2)
# Three windows close, and the look-back begins to fill: from then on it is the same each time.
MEMORY_LASTS_S: Final = 105
# From one close to the next: what is held rises with the results of the open windows.
WINDOW_S: Final = 30


def memory(
    rig: Rig, runs: int, say: Say, shape: LoadShape = CLUSTER_SHAPE, lasts_s: int = MEMORY_LASTS_S
) -> list[Figure]:
    """Let workers take a load in real time; add up what they hold, and the most they took.

    What they hold is the median over the last window, looked at each second.
    """
    kept: list[float] = []
    most: list[float] = []
    for _ in range(runs):
        intervals = round(lasts_s * SECOND_NS / shape.interval_ns)
        _, workers, pace = begin(rig, shape, intervals)
        sums: list[int] = []
        while pace.running or not sums:
            time.sleep(1)
            found = [process_cost.memory(child.pid) for child in workers]
            sums.append(sum(m.rss_bytes for m in found))
        load = rig.result(pace)
        for child in workers:
            rig.group.stop(child.name)
        kept.append(median(sums[-WINDOW_S:]) / GIB)
        most.append(sum(m.peak_bytes for m in found) / GIB)
        say(f"{load['results']:,} results of {shape.paths:,} 5-tuples: {WORKERS} workers hold "
            f"{kept[-1]:.2f} GiB, at most {most[-1]:.2f}; the load was late by "
            f"{load['behind_s']:.2f} s at most")  # fmt: skip
    size = f"{shape.paths:,} 5-tuples at 1 Hz, {WORKERS} workers"
    return [
        row(f"{size}: memory of all", kept, "GiB", BAR_GIB, "<="),
        row(f"{size}: the most that each took, together", most, "GiB", sense="<="),
    ]
