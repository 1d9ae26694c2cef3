"""A restart at any point goes on exactly as if the worker had never stopped."""

import contextlib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.codec import Codec
from schemas.records import Anomaly, PathWindow
from schemas.units import MS_NS, SECOND_NS, US_NS
from streams.config import DetectionConfig
from streams.core.checkpoint import Checkpoint
from streams.core.feed import Feed, LogMessage
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from streams.core.partition import RefusedRoundError
from streams.core.published import KernelReader, PublishedReader
from streams.detectors.base import Detector
from streams.detectors.registry import DETECTORS
from tests.unit.streams.columns.rounds_read import OneByOne, framed
from tests.unit.streams.worlds import (
    IDENTITY,
    START_S,
    Datum,
    Fault,
    World,
    anomalies_of,
    as_bytes,
    machine,
    result,
    round_datum,
    through_wire,
)

# Small, so that all detectors, look-backs and expiries pass within some minutes.
# Five answers a window: two windows decide; ten: one may.
SMALL = {
    window_s: DetectionConfig(
        window_ns=window_s * SECOND_NS,
        lateness_ns=2 * SECOND_NS,
        trend_ns=100 * SECOND_NS,
        idle_ns=10 * SECOND_NS,
        latency_max_ns=90 * SECOND_NS,
    )
    for window_s in (5, 10)
}


# Windows read at a time: an odd number, so that those of an index are often parted.
SOME = 7


def refuse(error: Exception) -> None:
    """Fail: nothing undecodable was written."""
    raise AssertionError(error)


@dataclass(frozen=True, slots=True)
class Log:
    """Rounds of a partition and when they arrived, nanoseconds."""

    datums: list[Datum]
    arrivals_ns: list[int]

    def __len__(self) -> int:
        return len(self.datums)

    def messages(self, first: int, last: int) -> list[LogMessage]:
        """Return some of them as Kafka has them; arrivals are whole milliseconds there."""
        return [
            LogMessage(framed(self.datums[n]), n, self.arrivals_ns[n] // MS_NS)
            for n in range(first, last)
        ]

    def process(self, made: PartitionMachine, n: int) -> list[Output]:
        """Let a machine process one of them by itself."""
        return made.process(self.datums[n], n, self.arrivals_ns[n])


def in_time(datums: list[Datum]) -> Log:
    """Return rounds that arrive a second after they began."""
    return Log(datums, [datum["started_at"] * US_NS + SECOND_NS for datum in datums])


def disordered(log: list[tuple[int, Datum]], rng: np.random.Generator, disorder: float) -> Log:
    """Repeat, hold back, drop and mistime rounds of a log; they arrive in the log's order."""
    out: list[Datum] = []
    times_ns: list[int] = []
    held: list[tuple[int, Datum]] = []
    for arrived_ns, datum in log:
        draw = rng.random()
        if draw < 0.2 * disorder:
            held.append((len(out) + int(rng.integers(1, 15)), datum))
        elif draw < 0.25 * disorder:
            wrong = int(rng.choice([-4000, -70, -3, 3, 40])) * 1_000_000
            out.append({**datum, "started_at": datum["started_at"] + wrong})
        else:
            out.append(datum)
        # The first may be held back itself.
        if out and rng.random() < 0.1 * disorder:
            out.append(out[int(rng.integers(max(0, len(out) - 60), len(out)))])
        out += [late for due, late in held if due <= len(out)]
        held = [(due, late) for due, late in held if due > len(out)]
        times_ns += [arrived_ns] * (len(out) - len(times_ns))
    return Log(out, times_ns)


def first_at(outputs: list[Output], kind: type, event_ms: int) -> int:
    """Return the place of the first record with that time or a later one, as Kafka does."""
    times = [o.at_ms for o in outputs if isinstance(o.record, kind)]
    return next((place for place, t in enumerate(times) if t >= event_ms), len(times))


class Late:
    """Published windows that come when they were asked for so often, or at last waited for."""

    def __init__(
        self, again: PartitionMachine, reader: PublishedReader, messages: list[bytes], asked: int
    ) -> None:
        self._machine, self._reader, self._messages = again, reader, messages
        self._asked = asked

    def ready(self) -> bool:
        """Let them come if it is time."""
        self._asked -= 1
        if self._asked < 0:
            self.wait()
        return self._asked < 0

    def wait(self) -> None:
        """Let them come."""
        messages, self._messages = self._messages, []
        for place in range(0, len(messages), SOME):
            self._machine.add_earlier(self._reader.read(messages[place : place + SOME]))
        self._asked = 0


def restarted(
    config: DetectionConfig,
    log: Log,
    before: list[Output],
    point: Checkpoint,
    *,
    kernels: bool,
    late: int | None = None,
    detectors: Sequence[type[Detector]] = DETECTORS,
) -> tuple[PartitionMachine, Feed]:
    """Return a machine that was rebuilt at a checkpoint from the log and what was published.

    With `late` the windows of the long-term test come after so many questions.
    """
    again = PartitionMachine(config, IDENTITY, point.lookback, detectors=detectors)
    feed = (Feed if kernels else OneByOne)(again, Codec())
    feed.warm(log.messages(point.lookback.offset, point.offset))
    windows_ns, anomalies_ns = again.history_starts_ns()
    windows = [o.record for o in before if isinstance(o.record, PathWindow)]
    anomalies = [o.record for o in before if isinstance(o.record, Anomaly)]
    long_start = first_at(before, PathWindow, windows_ns // 10**6)
    told = through_wire(anomalies[first_at(before, Anomaly, anomalies_ns // 10**6) :])
    if late is None:
        again.restore(through_wire(windows[long_start:]), told)
        return again, feed
    values = [Codec().encode(topics.PROBE_WINDOW, window) for window in windows]
    reader: PublishedReader = PublishedReader(
        Codec(), IDENTITY.cluster, refuse, again.recent.known_key
    )
    if kernels:
        reader = KernelReader(Codec(), IDENTITY.cluster, refuse, again.recent.known_key)
    start = first_at(before, PathWindow, again.lookback_start_ns // 10**6)
    parts = [values[n : n + SOME] for n in range(start, len(values), SOME)]
    again.rebuild(map(reader.read, parts), told)
    again.expect(Late(again, reader, values[long_start:], late))
    return again, feed


worlds = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "disorder": st.sampled_from([0.0, 0.05, 0.5]),
        "base_loss": st.sampled_from([0.0, 0.02, 0.3]),
        "gap_s": st.sampled_from([0, 0, 15, 90, 400]),
        "agents": st.integers(1, 3),
        "loss": st.sampled_from([0.1, 0.5, 1.0]),
        "confirm": st.sampled_from([0, 2]),
        "late": st.sampled_from([0.0, 0.05]),
        "window_s": st.sampled_from(list(SMALL)),
        "silent_s": st.sampled_from([0, 25, 45, 80, 130, 190]),
        "backlog": st.booleans(),
        # With `disordered` never a minute ahead: a decoder refuses that, and not all ways decode.
        "step_s": st.sampled_from([0, 0, -60, -15, 15]),
    }
)


def make_log(world: dict[str, Any], seconds: int) -> Log:
    """Return a log of some agents with faults that come, go and overlap the gap.

    The first agent is silent for a while, or sends what it measured then afterwards; with another
    clock if that is stepped.
    """
    rng = np.random.default_rng(world["seed"])
    log: list[Datum] = []
    for agent in range(world["agents"]):
        begin = int(rng.integers(0, seconds // 2))
        faults = [
            Fault(begin, begin + int(rng.integers(1, 200)), frozenset({(0, 0), (0, 1)}),
                  loss=world["loss"]),
            Fault(begin + 60, begin + int(rng.integers(80, 260)), frozenset({(1, 0), (1, 1)}),
                  delay_ns=5_000_000),
        ]  # fmt: skip
        made = World(
            seed=world["seed"] + agent, agent=f"agent-{agent}", flows=2, faults=faults,
            base_loss=world["base_loss"], confirm=world["confirm"],
            late=world["late"],
        )  # fmt: skip
        log += made.rounds(seconds)
    gap_at = int(rng.integers(100, seconds))
    for datum in log:
        second = datum["round_seq"]
        if second >= gap_at:
            datum["started_at"] += world["gap_s"] * 1_000_000
    log.sort(key=lambda d: (d["started_at"], d["agent_id"]))
    silent = range(begin := int(rng.integers(50, seconds)), begin + world["silent_s"])
    arrived: list[tuple[int, Datum]] = []
    for datum in log:
        at_us, second = datum["started_at"], datum["round_seq"]
        if datum["agent_id"] == "agent-0":
            if second in silent:
                if not world["backlog"]:
                    continue
                at_us += (silent.stop - second) * 1_000_000
            if second >= silent.start:
                datum["started_at"] += world["step_s"] * 1_000_000
        arrived.append((at_us * US_NS + SECOND_NS, datum))
    arrived.sort(key=lambda both: both[0])
    return disordered(arrived, rng, world["disorder"])


def checkpoint(made: PartitionMachine, offset: int) -> Checkpoint:
    """Return where a machine stands before the round at an offset."""
    return Checkpoint(
        offset=offset, lookback=made.lookback, closed_ns=made.closed_ns,
        window_ns=made.config.window_ns, window_offset=0, anomaly_offset=0,
    )  # fmt: skip


def undisturbed(
    config: DetectionConfig, log: Log, cuts: Container[int]
) -> tuple[list[Output], dict[int, tuple[Checkpoint, int]]]:
    """Return all outputs, and by offset the checkpoint there and how many were before it."""
    made = machine(config)
    outputs: list[Output] = []
    points: dict[int, tuple[Checkpoint, int]] = {}
    for offset in range(len(log)):
        if offset in cuts:
            points[offset] = (checkpoint(made, offset), len(outputs))
        with contextlib.suppress(RefusedRoundError):
            outputs += log.process(made, offset)
    return outputs, points


@pytest.mark.slow
@settings(max_examples=8)
@given(world=worlds, places=st.lists(st.floats(0, 1), min_size=3, max_size=3), data=st.data())
def test_restart_continues_with_the_same_bytes(
    world: dict[str, Any], places: list[float], data: st.DataObject
) -> None:
    """Whatever the log, the place and the way: what comes after it is as if there were none."""
    log = make_log(world, 420)
    config = SMALL[world["window_s"]]
    outputs, points = undisturbed(config, log, {int(place * len(log)) for place in places})
    for offset, (point, told) in points.items():
        parsed = Checkpoint.parse(offset, point.metadata())
        assert parsed == point
        kernels = data.draw(st.booleans())
        late = data.draw(st.sampled_from([None, 0, 2, 10**9]))
        again, feed = restarted(config, log, outputs[:told], parsed, kernels=kernels, late=late)
        assert again.counts.total() == 0
        # Perhaps once more soon after, from what the restarted machine says.
        second = min(offset + data.draw(st.sampled_from([0, 3, 40])), len(log))
        between = feed.process(log.messages(offset, second))
        rest = [output for taken in between for output in taken.outputs]
        if second > offset:
            begun = [*outputs[:told], *rest]
            _, feed = restarted(config, log, begun, checkpoint(again, second), kernels=kernels)
        later = feed.process(log.messages(second, len(log)))
        rest += [output for taken in later for output in taken.outputs]
        assert as_bytes(rest) == as_bytes(outputs[told:])


def test_restart_knows_what_began_before_a_long_silence_and_was_told_after_it() -> None:
    """The first record of an anomaly is for a time that a restart does not look back to."""
    world = {
        "seed": 1533021230, "disorder": 0, "base_loss": 0, "gap_s": 90, "agents": 3, "loss": 1.0,
        "confirm": 2, "window_s": 5, "late": 0.0, "silent_s": 0, "backlog": False, "step_s": 0,
    }  # fmt: skip
    log, config = make_log(world, 300), SMALL[5]
    outputs, points = undisturbed(config, log, range(592, 602))
    for point, told in points.values():
        _, feed = restarted(config, log, outputs[:told], point, kernels=False)
        later = log.messages(point.offset, len(log))
        rest = [output for taken in feed.process(later) for output in taken.outputs]
        assert as_bytes(rest) == as_bytes(outputs[told:])


def test_restart_knows_what_the_last_window_before_a_refresh_said() -> None:
    """Short windows, and a round so long that dozens of them close between two refreshes."""
    config = DetectionConfig(
        window_ns=SECOND_NS, lateness_ns=0, lookback_windows=5, idle_ns=60 * SECOND_NS,
        trend_ns=100 * SECOND_NS,
    )  # fmt: skip
    log: list[Datum] = []
    for second in range(90):
        started_ns = (START_S + second) * SECOND_NS
        if second < 33:
            # Raised, then a little less, then silent.
            rtt_ns = 1_000_000 if second < 30 else 9_000_000 if second < 32 else 7_500_000
            raised = [result("a", "b", 0, nth * 40_000_000, rtt_ns + nth) for nth in range(20)]
            log.append(round_datum(raised, started_ns, second))
        spans_ns = 29 * SECOND_NS if second == 31 else 0
        log.append(round_datum([result("c", "d", 0, spans_ns, 1_000)], started_ns, agent="other"))
    undisturbed, timed = machine(config), in_time(log)
    outputs = [o for n in range(88) for o in timed.process(undisturbed, n)]
    point = checkpoint(undisturbed, 88)
    again, _ = restarted(config, timed, outputs, point, kernels=False, late=10**9)
    for n in range(88, len(timed)):
        assert as_bytes(timed.process(again, n)) == as_bytes(timed.process(undisturbed, n))


def test_window_that_closes_after_silence_cleared_its_anomaly_is_still_part_of_it() -> None:
    """Its agent stops five seconds into it: no second onset, and nothing for the look-back."""
    log: list[Datum] = []
    for second in range(800):
        started_ns = (START_S + second) * SECOND_NS
        if not 665 <= second < 760:
            raised_ns = 9_000_000 if second >= 600 else 0
            rtt_ns = 1_500_000 + second * 7919 % 1000 * 300 + raised_ns
            log.append(round_datum([result("a", "b", 0, 0, rtt_ns)], started_ns, second))
        # Its probes are ahead of its rounds' beginnings.
        other = [result("c", "d", 0, 600_000_000, 1_000_000)]
        log.append(round_datum(other, started_ns + SECOND_NS // 2, second, agent="other"))
    undisturbed, timed = machine(), in_time(log)
    outputs: list[Output] = []
    for n in range(len(timed)):
        if n == 1385:
            point = checkpoint(undisturbed, n)
            again, _ = restarted(DetectionConfig(), timed, outputs, point, kernels=False)
        told = timed.process(undisturbed, n)
        if n >= 1385:
            assert as_bytes(timed.process(again, n)) == as_bytes(told)
        outputs += told
    onsets = [(a.onset_at // 10**6 - START_S) for a in anomalies_of(outputs, "LATENCY", "ONSET")]
    assert onsets == [600, 750]
