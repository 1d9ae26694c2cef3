"""`make bench-throughput`: results a second, delay, restart, memory, replay; part by part."""

from dataclasses import dataclass
from typing import Final

from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure, Parts, Say
from ops.bench.throughput import peers, realtime, replay, start, wire
from ops.bench.throughput.report import FULL, MEGA, WORKERS, costs, describe, draw, on_rig, row
from ops.bench.throughput.rig import Rig, Run

__all__ = ["COMMAND", "DEFAULT_RUNS", "NOTES", "PARTS", "RUNS", "draw"]

COMMAND: Final = "make bench-throughput"
RUNS: Final = 5
NOTES: Final = (
    "M/s: millions of results a second. 80 results a message, and a few more where probes were "
    "lost. Broker, workers and whatever feeds them share the two cores.",
    "CPU: utime + stime of all threads, over the time that the rate is of. RSS: the largest "
    "process, VmHWM.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much the core and the pipeline are given.

    80 million results are sixteen seconds of what the bar asks for, forty windows of 64,000
    5-tuples. Every 5-tuple is new once and the last commit takes up to a second: some two seconds
    of any run, a fifth of one half as long. What is slower is cut off after `most_s`, and its rate
    is of what it did until then.
    """

    core: LoadShape = LoadShape(agents=200)  # noqa: RUF009 - frozen
    core_intervals: int = 300
    shape: LoadShape = LoadShape(agents=800, bodies=12)  # noqa: RUF009 - frozen
    intervals: int = 1_250
    most_s: float = 60.0


SIZE: Final = Size()


def core(rig: Rig, runs: int, say: Say, size: Size = SIZE) -> list[Figure]:
    """Take a recording in memory through decode, windows, all detectors: one process, no Kafka."""
    child = rig.begin(
        "ops.bench.throughput.core", "--shape", size.core.text(),
        "--intervals", str(size.core_intervals), "--runs", str(runs),
    )  # fmt: skip
    rig.result(child)
    found = child.events()
    for run in found:
        by_cpu, by_clock = (run["results"] / run[key] / MEGA for key in ("cpu_s", "wall_s"))
        say(f"core: {by_cpu:.3f} M/s of CPU, {by_clock:.3f} M/s by the clock; {run['counts']}")
    name = "pure core: bytes → windows → all detectors, each second of CPU"
    rates_hz = [r["results"] / r["cpu_s"] for r in found]
    bare_hz = [r["bare_hz"] for r in found]
    shares = [100 * ours / bare for ours, bare in zip(rates_hz, bare_hz, strict=True)]
    return [
        row(name, [rate / MEGA for rate in rates_hz], "M/s", 10.0),
        row("… share of a kernel that only reads the bytes and places them", shares, "%", 50.0),
        row("… a kernel that only reads the bytes and places them", [r / MEGA for r in bare_hz],
            "M/s"),
        row("pure core: RSS, the recording in it", [r["rss_bytes"] / MEGA for r in found], "MB",
            sense="<="),
    ]  # fmt: skip


def pipeline(rig: Rig, runs: int, say: Say, size: Size = SIZE) -> list[Figure]:
    """Workers on topics that are full, interleaved with loops that only consume and decode."""
    bare: list[Run] = []
    ours: list[Run] = []
    filled = rig.fill("full.", size.shape, size.intervals)
    say(f"filled: {filled.results:,} results of {size.shape.paths:,} 5-tuples, "
        f"{filled.bytes / filled.results:.1f} bytes each, {filled.seconds:.0f} s")  # fmt: skip
    for _ in range(runs):
        bare.append(rig.run_bare(filled, WORKERS, most_s=size.most_s))
        say(describe("bare loops", bare[-1]))
        ours.append(rig.run_workers(filled, WORKERS, most_s=size.most_s))
        say(describe("workers", ours[-1]))
        say(f"  {dict(ours[-1].counts)}")
    shares = [100 * a.rate_hz / b.rate_hz for a, b in zip(ours, bare, strict=True)]
    return [
        row(FULL, [r.rate_hz / MEGA for r in ours], "M/s", 5.0),
        row("the same, share of loops that only consume and decode", shares, "%", 30.0),
        row("loops that only consume and decode", [r.rate_hz / MEGA for r in bare], "M/s"),
        *costs("workers at full load", ours),
        *costs("loops that only consume and decode", bare),
    ]


PARTS: Final[Parts] = {
    "core": on_rig(core),
    "pipeline": on_rig(pipeline),
    "peers": on_rig(peers.peers),
    "source": on_rig(peers.source),
    "wire": on_rig(wire.wire),
    "delay": on_rig(realtime.delay),
    "memory": on_rig(realtime.memory),
    # No other member is waited for, as in a group that has been there for long.
    "start": on_rig(start.start, join_ms=0),
    "replay": on_rig(replay.replay, join_ms=0),
}
DEFAULT_RUNS: Final = {
    "peers": 3, "source": 3, "wire": 1, "delay": 1, "memory": 1, "start": 3, "replay": 1,
}  # fmt: skip
