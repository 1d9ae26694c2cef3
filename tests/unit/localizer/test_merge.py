"""Effective times, watermark, barrier."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import localizer.merge as merge_module
from localizer.config import GRID_NS
from localizer.merge import BEFORE_FIRST_NS, FORGET_NS, ORDERED_NS, Barrier, Merge
from schemas import topics
from schemas.bounds import MAX_ARRIVAL_AHEAD_NS
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from schemas.units import MS_NS, SECOND_NS, US_NS
from tests.unit.localizer.made import START, anomaly, endpoint


def mark(at: int, state: AnomalyState = AnomalyState.ONGOING) -> Anomaly:
    """Return a progress mark."""
    return anomaly(AnomalyKind.PROGRESS, state, at=at)


def put(merge: Merge, record: Anomaly, partition: int, offset: int = 0) -> Any:
    """Put a record of anomaly.v1 that arrives when it says."""
    return merge.accept_record(
        topics.ANOMALY.name, "k", record, partition=partition, offset=offset,
        timestamp_ms=record.event_at // 1000,
    )  # fmt: skip


def test_the_watermark_is_the_least_of_the_partitions() -> None:
    """It follows the slowest partition that is awake and never falls."""
    merge = Merge()
    assert merge.watermark_ns is None
    put(merge, mark(START + 5 * SECOND_NS), 0)
    put(merge, mark(START + 2 * SECOND_NS), 1)
    assert merge.watermark_ns == START + 5 * SECOND_NS
    put(merge, mark(START + 9 * SECOND_NS), 0)
    assert merge.watermark_ns == START + 5 * SECOND_NS
    put(merge, mark(START + 7 * SECOND_NS), 1)
    assert merge.watermark_ns == START + 7 * SECOND_NS


def test_an_idle_partition_holds_nobody_back() -> None:
    """Until it is awake again; when all are idle, time stands still at the last mark."""
    merge = Merge()
    put(merge, mark(START), 1)
    put(merge, mark(START + 5 * SECOND_NS), 0)
    assert merge.watermark_ns == START
    put(merge, mark(START, AnomalyState.IDLE), 1)
    assert merge.watermark_ns == START + 5 * SECOND_NS
    put(merge, mark(START + 5 * SECOND_NS, AnomalyState.IDLE), 0)
    assert merge.watermark_ns == START + 5 * SECOND_NS
    put(merge, mark(START + 6 * SECOND_NS), 1)
    assert merge.watermark_ns == START + 6 * SECOND_NS


def test_an_anomaly_counts_between_the_marks_around_it() -> None:
    """After the mark that stands before it in its own partition, and not far after the next."""
    merge = Merge()

    def times(at: int, *partitions: int) -> list[int]:
        """Return the effective times that a mark in some partitions makes known."""
        return [e.at_ns for p in partitions for e in put(merge, mark(at), p)]

    early = anomaly(at=START + 2 * SECOND_NS)
    ahead = replace(early, event_at=(START + 40 * SECOND_NS) // 1000)
    assert times(START + 5 * SECOND_NS, 0) == []
    put(merge, early, 0, 1)
    put(merge, replace(early, event_at=(START + 8 * SECOND_NS) // 1000), 0, 2)
    put(merge, ahead, 0, 3)
    put(merge, early, 1, 1)
    assert times(START + 9 * SECOND_NS, 0, 1) == [
        START + 5 * SECOND_NS + US_NS,
        START + 8 * SECOND_NS,
        START + 9 * SECOND_NS + GRID_NS,
        START + 2 * SECOND_NS,
    ]
    assert times(START + 10 * SECOND_NS, 0, 1) == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 4), st.lists(st.integers(-5_000, 40_000), max_size=3)
        )
    )
)
def test_nothing_becomes_known_of_what_may_have_been_decided(
    told: list[tuple[int, int, list[int]]],
) -> None:
    """However the partitions take turns: whoever decides at each mark decides as at the end."""
    merge = Merge()
    merge.wait_for(range(3))
    at_ns = [START] * 3
    for partition in range(3):
        put(merge, mark(START), partition)
    for offset, (partition, steps, anomalies_ms) in enumerate(told):
        decided_ns = merge.watermark_ns
        assert decided_ns is not None
        for number, ms in enumerate(anomalies_ms):
            found = anomaly(at=at_ns[partition] + ms * MS_NS)
            put(merge, found, partition, 10 * offset + number)
        at_ns[partition] += steps * GRID_NS
        events = put(merge, mark(at_ns[partition]), partition, 10 * offset + 9)
        assert len(events) == len(anomalies_ms)
        assert all(event.at_ns > decided_ns for event in events)


def test_anomalies_beyond_the_bound_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a partition without marks; those of other partitions do, and so do later ones."""
    monkeypatch.setattr(merge_module, "MAX_UNMARKED", 5)
    merge = Merge()
    one = anomaly(AnomalyKind.LOSS, at=START)
    for offset in range(20):
        put(merge, one, 0, offset)
    put(merge, one, 1)
    assert merge.refused == 15
    assert len(put(merge, mark(START), 0)) == 5
    assert len(put(merge, mark(START), 1)) == 1
    put(merge, one, 0)
    assert merge.refused == 15


def test_an_anomaly_from_long_ago_counts_with_the_first_mark() -> None:
    """Its partition had none yet; time does not begin with it."""
    merge = Merge()
    put(merge, anomaly(at=0), 0)
    (event,) = put(merge, mark(START), 0)
    assert event.at_ns == START - BEFORE_FIRST_NS


def test_keys_that_fell_silent_are_forgotten() -> None:
    """What 10,000 containers leave behind is their last minutes."""
    merge = Merge()
    for n in range(10_000):
        merge.accept_record(
            topics.ENDPOINT.name, f"e{n}", None, partition=0, offset=n,
            timestamp_ms=START // MS_NS + 1_000 * n,
        )  # fmt: skip
        put(merge, mark(START + n * SECOND_NS), 0)
    (kept,) = merge._latest_ns.values()
    assert len(kept) <= (ORDERED_NS + FORGET_NS) // SECOND_NS + 1


def test_other_records_keep_the_order_of_their_key() -> None:
    """A clock set back does not put a record before its predecessor, nor move other keys."""
    merge = Merge()

    def at(key: str, ms: int, offset: int) -> int:
        (event,) = merge.accept_record(
            topics.ENDPOINT.name, key, endpoint(key, "a"),
            partition=0, offset=offset, timestamp_ms=ms,
        )  # fmt: skip
        return event.at_ns // MS_NS

    assert at("a", 9000, 0) == 9000
    assert at("a", 5000, 1) == 9000
    assert at("b", 5000, 2) == 5000
    assert at("a", 9500, 3) == 9500


def test_a_mark_is_no_event() -> None:
    """Progress moves the watermark and goes no further."""
    assert put(Merge(), mark(START), 0) == []


def test_a_mark_far_ahead_of_its_arrival_decides_nothing_early() -> None:
    """It says when rounds arrived, which was before it was written."""
    merge = Merge()
    forged = mark(START + 100 * SECOND_NS)
    merge.accept_record(
        topics.ANOMALY.name, "~progress", forged,
        partition=0, offset=0, timestamp_ms=START // MS_NS,
    )  # fmt: skip
    assert merge.watermark_ns == START + MAX_ARRIVAL_AHEAD_NS


def test_a_barrier_is_passed_when_all_was_read() -> None:
    """Every partition must have reached its end; empty ones have."""
    barrier = Barrier(START, {("a", 0): 5, ("a", 1): 0})
    assert not barrier.passed({("a", 0): 4})
    assert barrier.passed({("a", 0): 5})
    assert barrier.passed({("a", 0): 9, ("a", 1): 3})
