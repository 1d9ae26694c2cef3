"""Invariants of the localizer's core: verdicts are a function of events and effective times."""

import random
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.config import CoreConfig
from localizer.core import Core
from localizer.facts.inputs import Event
from schemas.records import FaultEvent
from schemas.units import SECOND_NS
from tests.unit.localizer.batched import feed_batched
from tests.unit.localizer.simlab import CLUSTER, START, SimLab, events

CONFIG = CoreConfig(cluster=CLUSTER)
LINK = "link:leaf:p0-0--spine:0"


@cache
def history() -> tuple[tuple[Event, ...], int, tuple[FaultEvent, ...]]:
    """Return events of a lab with two faults, its end, and what one core says at once."""
    lab = SimLab(seed=9, flows=2)
    lab.run(5)
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(4)
    change = lab.overlay.hole("vsw:h1", "job1-w0/r3")
    lab.publish_tables(lab.overlay.apply("f", change))
    lab.run(4)
    lab.effects.links.clear()
    lab.run(8)
    found = tuple(event for event, _ in events(lab.log) if event is not None)
    return found, lab.now, tuple(run(found, [lab.now]))


def run(found: tuple[Event, ...], stops: list[int]) -> list[FaultEvent]:
    """Return what a core says that is advanced to some times, fed only what is due."""
    core = Core(CONFIG)
    waiting = sorted(found, key=lambda event: event.at_ns, reverse=True)
    said: list[FaultEvent] = []
    for stop in stops:
        while waiting and waiting[-1].at_ns <= stop:
            core.feed(waiting.pop())
        said += core.advance(stop)
    return said


@settings(max_examples=8)
@given(st.lists(st.integers(0, 22 * 10**3), max_size=40))
def test_the_batching_of_advances_changes_nothing(stops_ms: list[int]) -> None:
    """However time is cut into advances, the same transitions come out, in the same order."""
    found, end, expected = history()
    stops = sorted(START + ms * 10**6 for ms in stops_ms)
    assert run(found, [*stops, end]) == list(expected)


@settings(max_examples=8)
@given(st.randoms(use_true_random=False))
def test_the_order_of_feeding_changes_nothing(chance: random.Random) -> None:
    """Events carry their place in time: fed in any order, they are folded in the same one."""
    found, end, expected = history()
    mixed = list(found)
    chance.shuffle(mixed)
    core = Core(CONFIG)
    for event in mixed:
        core.feed(event)
    assert core.advance(end) == list(expected)


@settings(max_examples=8)
@given(st.lists(st.integers(0, 22 * 10**3), max_size=12), st.randoms(use_true_random=False))
def test_batches_change_nothing(stops_ms: list[int], chance: random.Random) -> None:
    """However traces and heartbeats are put into batches, and in whatever order they are fed."""
    found, end, expected = history()
    core = Core(CONFIG)
    waiting = sorted(found, key=lambda event: event.at_ns, reverse=True)
    said: list[FaultEvent] = []
    for stop in [*sorted(START + ms * 10**6 for ms in stops_ms), end]:
        due: list[Event] = []
        while waiting and waiting[-1].at_ns <= stop:
            due.append(waiting.pop())
        chance.shuffle(due)
        while due:
            count = chance.randint(1, 400)
            feed_batched(core, due[-count:])
            del due[-count:]
        said += core.advance(stop)
    assert said == list(expected)


@settings(max_examples=8)
@given(st.integers(1, 5))
def test_duplicates_change_nothing(times: int) -> None:
    """The same anomalies delivered again, at a later offset, say nothing new."""
    found, end, expected = history()
    core = Core(CONFIG)
    for event in found:
        core.feed(event)
        if event.topic == "anomaly.v1" and event.offset % times == 0:
            copy = Event(
                event.at_ns, event.topic, event.key, event.partition,
                event.offset + 10**6, event.record,
            )  # fmt: skip
            core.feed(copy)
    said = core.advance(end)
    assert [(e.fault_id, e.seq, e.state) for e in said] == [
        (e.fault_id, e.seq, e.state) for e in expected
    ]


def test_what_is_said_is_well_formed() -> None:
    """Seq counts from 1 for each fault, time does not run backwards, confidence is a share."""
    _, _, expected = history()
    assert expected
    seqs: dict[str, int] = {}
    last = 0
    for event in expected:
        seqs[event.fault_id] = seqs.get(event.fault_id, 0) + 1
        assert event.seq == seqs[event.fault_id]
        assert event.event_at >= last
        assert event.onset_at <= event.opened_at <= event.event_at
        assert 0 <= event.confidence <= 1
        assert event.candidates[0].component_id == event.component_id
        last = event.event_at
    assert last * 1000 <= START + 30 * SECOND_NS
