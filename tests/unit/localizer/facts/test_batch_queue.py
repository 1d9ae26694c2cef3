"""Batches that wait give their records by time, whatever way they were cut."""

import gc
import random
import weakref

from localizer.facts.batch_queue import BatchQueue
from localizer.facts.heartbeats import HeartbeatBatch, joined
from localizer.facts.inputs import Event
from schemas.units import MS_NS
from tests.unit.localizer.batched import heartbeats_of
from tests.unit.localizer.made import heartbeat


def event(number: int, at_ms: int) -> Event:
    """Return a heartbeat as an event."""
    name = f"a{number}"
    at_ns = at_ms * MS_NS
    return Event(at_ns, "agent.heartbeat.v1", name, number % 3, number, heartbeat(name, at_ns, 1))


def test_records_come_by_time() -> None:
    """Those of all batches that are due, each once, in order; what is left is counted."""
    rng = random.Random(3)
    events = [event(number, rng.randrange(50)) for number in range(200)]
    queue = BatchQueue[HeartbeatBatch](joined)
    for begin in range(0, 150, 30):
        queue.add(heartbeats_of(events[begin : begin + 30]))
    seen: list[tuple[int, int]] = []
    for now_ms in range(0, 60, 7):
        if now_ms == 21:
            # One that comes late.
            queue.add(heartbeats_of(events[150:]))
        before = [e for e in events if e.at_ns <= now_ms * MS_NS]
        due = queue.pop_due(now_ms * MS_NS)
        if due is not None:
            places = list(zip(due.at_ns.tolist(), due.partition.tolist(), strict=True))
            assert places == sorted(places)
            seen += zip(due.at_ns.tolist(), due.offset.tolist(), strict=True)
        if now_ms >= 21:
            assert sorted(seen) == sorted((e.at_ns, e.offset) for e in before)
            assert len(queue) == 200 - len(before)
    assert queue.next_ns is None
    assert queue.pop_due(10**18) is None


def test_all_that_is_left_is_taken_out() -> None:
    """Also of batches of which some were taken."""
    queue = BatchQueue[HeartbeatBatch](joined)
    events = [event(number, number) for number in range(20)]
    queue.add(heartbeats_of(events[:10]))
    queue.add(heartbeats_of(events[10:]))
    queue.pop_due(4 * MS_NS)
    left = sorted(offset for batch in queue.pop_all() for offset in batch.offset.tolist())
    assert left == list(range(5, 20))
    assert len(queue) == 0


def test_one_that_waits_for_long_does_not_keep_the_others() -> None:
    """A writer whose clock is ahead sends ever more of these."""
    queue = BatchQueue[HeartbeatBatch](joined)
    batch = heartbeats_of(
        [*(event(number, 1) for number in range(20)), event(20, 10**6)]
    ).in_order()
    fields = weakref.ref(batch.fields)
    queue.add(batch)
    queue.pop_due(MS_NS)
    del batch
    gc.collect()
    assert len(queue) == 1
    assert fields() is None
