"""How long a worker takes from its start to its first output, with a look-back to rebuild."""

import time
from typing import Final

from ops.bench.rig import process_cost
from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure, Say
from ops.bench.rig.waiting import wait_until
from ops.bench.throughput.report import MEGA, row
from ops.bench.throughput.rig import FilledTopics, Rig
from schemas.topics import ANOMALY, PROBE_ROUND
from schemas.units import SECOND_NS

PATHS: Final = 100_000
SHAPE: Final = LoadShape(agents=PATHS // LoadShape().per_round, bodies=6)
# A restart reads 195 to 200 s of rounds again (`streams.core.anchors.probes_horizon_ns`), up to
# 330 s while an agent is silent, and the windows of the last five and a half minutes.
INTERVALS: Final = 400
# The first worker takes minutes of rounds; by its end the others have something to rebuild.
FIRST_S: Final = 600.0
TIMEOUT_S: Final = 300.0
GROUP: Final = "skeletonhunter-worker"
POLL_S: Final = 0.02


def restart(
    rig: Rig, filled: FilledTopics, number: int, *, group: str = GROUP
) -> tuple[float, float, int]:
    """Publish one more interval, start a worker; return how long it takes, and what.

    It processes when each partition has an output of it: a mark of progress at least.

    Returns
    -------
    took_s
        From its start until it processes.
    reread_s
        How much of the log it reads again.
    rss_bytes
        Its memory at most.
    """
    more = rig.fill(
        filled.settings.topic_prefix, filled.shape, 1, first=filled.intervals + number,
        start_us=filled.start_us, keep_times=filled.keep_times,
    )  # fmt: skip
    before = rig.ends(more.settings, ANOMALY.name)
    name = f"start-{number}"
    started = time.monotonic()
    child = rig.start_worker(name, more.settings, "--group", group)

    def processing() -> bool:
        now = rig.ends(more.settings, ANOMALY.name)
        return all(now[p] > end for p, end in before.items())

    wait_until(processing, TIMEOUT_S, "no output", check=rig.group.check, poll_s=POLL_S)
    took_s = time.monotonic() - started
    rss_bytes = process_cost.memory(child.pid).peak_bytes
    take_all(rig, more, group)
    rig.group.stop(name)
    rounds = sum(told["rounds_reread"] for told in child.events("partition.restored"))
    reread_s = rounds / filled.shape.agents * filled.shape.interval_ns / SECOND_NS
    return took_s, reread_s, rss_bytes


def take_all(rig: Rig, filled: FilledTopics, group: str = GROUP) -> None:
    """Wait until the group has committed all rounds."""
    place = rig.positions(filled.settings, PROBE_ROUND.name, group)
    place.wait(lambda done: done == place.end, rig.group, FIRST_S)


def start(
    rig: Rig, runs: int, say: Say, shape: LoadShape = SHAPE, intervals: int = INTERVALS
) -> list[Figure]:
    """Let a worker take some minutes of rounds; then start it again and again."""
    took, reread, rss = [], [], []
    filled = rig.fill("start.", shape, intervals, keep_times=True)
    say(f"{filled.results:,} results of {shape.paths:,} 5-tuples to take before the start")
    rig.start_worker("first", filled.settings)
    take_all(rig, filled)
    rig.group.stop("first")
    for number in range(runs):
        seconds, reread_s, size = restart(rig, filled, number)
        took.append(seconds)
        reread.append(reread_s)
        rss.append(size / MEGA)
        say(
            f"worker processes after {seconds:.1f} s, {reread_s:.0f} s read again, "
            f"{size / MEGA:.0f} MB"
        )
    what = f"worker start until it processes, {shape.paths:,} 5-tuples to rebuild"
    return [
        row(what, took, "s", 10.0, "<="),
        row("the same: how much of the rounds it reads again", reread, "s", sense="<="),
        row("the same: RSS of the worker", rss, "MB", sense="<="),
    ]
