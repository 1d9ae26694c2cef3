"""Lag in time: the age of what was read last, while more is there."""

from schemas.process.lag import LogLag
from schemas.units import MS_NS, SECOND_NS

NOW_NS = 1_800_000_000 * SECOND_NS
NOW_MS = NOW_NS // MS_NS


def test_the_partition_furthest_behind_counts() -> None:
    """Of each topic by itself."""
    lag = LogLag()
    lag.note_record("a", 0, NOW_MS - 2_000)
    lag.note_record("a", 1, NOW_MS - 5_000)
    lag.note_record("b", 0, NOW_MS - 1_000)
    assert lag.by_topic_s(NOW_NS) == {"a": 5.0, "b": 1.0}


def test_at_the_end_of_a_log_nobody_is_behind() -> None:
    """However old its last record is; the next record counts again."""
    lag = LogLag()
    lag.note_record("a", 0, NOW_MS - 3_600_000)
    lag.note_end("a", 0)
    assert lag.by_topic_s(NOW_NS) == {"a": 0.0}
    lag.note_record("a", 0, NOW_MS - 100)
    assert lag.by_topic_s(NOW_NS) == {"a": 0.1}


def test_a_partition_of_another_process_does_not_count() -> None:
    """Nor one whose clock is ahead."""
    lag = LogLag()
    lag.note_record("a", 0, NOW_MS - 3_000)
    lag.note_record("a", 1, NOW_MS + 3_000)
    lag.forget("a", 0)
    lag.forget("a", 7)
    assert lag.by_topic_s(NOW_NS) == {"a": 0.0}
