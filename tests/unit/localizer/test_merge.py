"""Effective times, watermark, barrier."""

from dataclasses import replace
from typing import Any

from localizer.merge import Barrier, Merge
from schemas import topics
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer.made import START, anomaly, endpoint


def mark(at: int, state: AnomalyState = AnomalyState.ONGOING) -> Anomaly:
    """Return a progress mark."""
    return anomaly(AnomalyKind.PROGRESS, state, at=at)


def put(merge: Merge, record: Anomaly, partition: int, offset: int = 0) -> Any:
    """Put a record of anomaly.v1."""
    return merge.accept_record(
        topics.ANOMALY.name, "k", record, partition=partition, offset=offset, timestamp_ms=0
    )


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


def test_an_anomaly_counts_when_its_partition_says_so() -> None:
    """Not before the last mark that stands before it in its own partition."""
    merge = Merge()
    put(merge, mark(START + 5 * SECOND_NS), 0)
    early = anomaly(at=START + 2 * SECOND_NS)
    assert put(merge, early, 0, 1).at_ns == START + 5 * SECOND_NS
    assert put(merge, early, 1, 1).at_ns == START + 2 * SECOND_NS
    late = replace(early, event_at=(START + 8 * SECOND_NS) // 1000)
    assert put(merge, late, 0, 2).at_ns == START + 8 * SECOND_NS


def test_other_records_keep_the_order_of_their_key() -> None:
    """A clock set back does not put a record before its predecessor, nor move other keys."""
    merge = Merge()

    def at(key: str, ms: int, offset: int) -> int:
        event = merge.accept_record(
            topics.ENDPOINT.name, key, endpoint(key, "a"),
            partition=0, offset=offset, timestamp_ms=ms,
        )  # fmt: skip
        assert event is not None
        return event.at_ns // MS_NS

    assert at("a", 9000, 0) == 9000
    assert at("a", 5000, 1) == 9000
    assert at("b", 5000, 2) == 5000
    assert at("a", 9500, 3) == 9500


def test_a_mark_is_no_event() -> None:
    """Progress moves the watermark and goes no further."""
    assert put(Merge(), mark(START), 0) is None


def test_a_barrier_is_passed_when_all_was_read() -> None:
    """Every partition must have reached its end; empty ones have."""
    barrier = Barrier(START, {("a", 0): 5, ("a", 1): 0})
    assert not barrier.passed({("a", 0): 4})
    assert barrier.passed({("a", 0): 5})
    assert barrier.passed({("a", 0): 9, ("a", 1): 3})
