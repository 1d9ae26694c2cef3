"""One agent's clock is wrong: what the worker publishes about the others, and finds of its own.

The worker's core gets the log of one partition, a second of arrivals at a time.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from ops.bench.resilience.clock_world import (
    AGENTS,
    CLUSTER,
    WRONG,
    WRONG_CLOCKS,
    Clock,
    ClockWorld,
    Round,
    messages,
    name,
    with_clock,
)
from ops.bench.rig.report import Figure, Parts, Say, figure
from schemas.codec import Codec
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.feed import Feed
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from streams.core.partition import Identity

# A window begins with it, and a half-hour.
BEGIN_NS: Final = 1_790_001_000 * SECOND_NS
CONFIG: Final = DetectionConfig(
    window_ns=10 * SECOND_NS, lateness_ns=2 * SECOND_NS, loss_clear_probes=15
)
# Others' records may be published with the next batch, not later.
DELAY_BAR_S: Final = 1.0

# Kind and 5-tuple.
Found = tuple[str, str, str, int]


@dataclass(slots=True)
class Published:
    """What a worker publishes of a log.

    Attributes
    ----------
    others
        Windows and onsets of agents whose clocks are right, as bytes of their topics, and the
        second of arrivals with which they were published.
    own
        Kind and 5-tuple of the onsets of the agent whose clock is wrong.
    refused, late
        Results that went to the dead letters, or came too late for their windows; of any agent.
    """

    others: dict[bytes, int] = field(default_factory=dict)
    own: set[Found] = field(default_factory=set)
    refused: int = 0
    late: int = 0

    def differences(self, right: "Published") -> int:
        """Return how many of the others' records are missing, too many, or not the same."""
        return len(self.others.keys() ^ right.others.keys())

    def delay_s(self, right: "Published") -> int:
        """Return by how much the others' records are published later at most."""
        both = self.others.keys() & right.others.keys()
        return max((self.others[one] - right.others[one] for one in both), default=0)


def published(rounds: list[Round], config: DetectionConfig = CONFIG) -> Published:
    """Feed rounds, in the order of their arrival, to a worker's core."""
    codec = Codec()
    machine = PartitionMachine(config, Identity(CLUSTER, 0))
    feed, out = Feed(machine, codec), Published()
    log = messages(rounds, codec)
    seconds = [(r.arrival_ns - rounds[0].arrival_ns) // SECOND_NS for r in rounds]
    results = [len(r.datum["results"]) for r in rounds]
    first = 0
    while first < len(log):
        second = seconds[first]
        end = next((n for n in range(first, len(log)) if seconds[n] != second), len(log))
        for processed in feed.process(log[first:end]):
            for output in processed.outputs:
                _note(out, output, second, codec)
            if processed.refused is not None:
                out.refused += results[processed.refused.message.number]
        first = end
    out.late = machine.counts["late"]
    return out


def _note(out: Published, output: Output, second: int, codec: Codec) -> None:
    record = output.record
    if isinstance(record, Anomaly):
        if record.kind is AnomalyKind.PROGRESS or record.state is not AnomalyState.ONSET:
            return
        if record.agent_id == name(WRONG):
            out.own.add((record.kind.value, record.src, record.dst, record.flow))
    if record.agent_id != name(WRONG):
        out.others[codec.encode(output.topic, record)] = second


def excused(world: ClockWorld, rounds: list[Round]) -> set[Found]:
    """Return the own faults of which rounds are refused, as their time is too far ahead."""
    seconds = {r.datum["round_seq"] for r in rounds if r.agent == WRONG and r.refused}
    return {
        (fault.kind.value, f"{name(WRONG)}/r0", f"target-{fault.target}/r0", 0)
        for fault in world.faults(WRONG)
        if any(fault.at(second) for second in seconds)
    }


def clocks(runs: int, say: Say) -> list[Figure]:
    """Give one of six agents each wrong clock."""
    del runs  # The core gives the same each time.
    world = ClockWorld(begin_ns=BEGIN_NS)
    rounds = world.rounds()
    right = published(rounds)
    say(f"all clocks right: {len(right.others)} windows and onsets of {AGENTS - 1} agents, "
        f"own onsets {_kinds(right.own)}")  # fmt: skip
    rows = []
    for clock in WRONG_CLOCKS:
        rows += _rows(clock, world, with_clock(rounds, clock), right, say)
    return rows


def _rows(
    clock: Clock, world: ClockWorld, rounds: list[Round], right: Published, say: Say
) -> list[Figure]:
    found = published(rounds)
    others, delay_s = found.differences(right), found.delay_s(right)
    own = (found.own ^ right.own) - excused(world, rounds)
    say(
        f"clock {clock.name}: {others} of {len(right.others)} windows and onsets of others differ, "
        f"{delay_s} s later; own onsets {_kinds(found.own)}; results: {found.refused} refused, "
        f"{found.late} late"
    )
    what = f"clock {clock.name}"
    return [
        figure(f"{what}: others' windows and onsets that differ", [float(others)], "", 0.0),
        figure(
            f"{what}: others' records later than without it", [float(delay_s)], "s", DELAY_BAR_S
        ),
        figure(f"{what}: own faults not found, or false", [float(len(own))], "", 0.0),
        figure(f"{what}: results refused or late", [float(found.refused + found.late)]),
    ]


def _kinds(found: set[Found]) -> dict[str, int]:
    return dict(sorted(Counter(kind for kind, *_ in found).items()))


PARTS: Final[Parts] = {"clocks": clocks}
