"""A partition that has not been heard of holds the watermark."""

from itertools import permutations

import pytest

from localizer.merge import Merge
from schemas import topics
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from schemas.units import SECOND_NS

US = 10**6


def mark(merge: Merge, partition: int, at_s: int, state: AnomalyState) -> None:
    """Put a progress mark into a partition."""
    record = Anomaly(
        cluster="c",
        anomaly_id="",
        kind=AnomalyKind.PROGRESS,
        state=state,
        path_id="",
        src="",
        dst="",
        flow=0,
        agent_id="",
        event_at=at_s * US,
        onset_at=at_s * US,
        detector="progress",
        sent=0,
        lost=0,
    )
    merge.accept_record(
        topics.ANOMALY.name, "~progress", record, partition=partition, offset=0,
        timestamp_ms=at_s * 1000,
    )  # fmt: skip


def test_a_backlog_taken_partition_by_partition_does_not_run_ahead() -> None:
    """One partition finished before another began: time is that of the slower one."""
    merge = Merge()
    merge.wait_for(range(3))
    for second in (1, 2, 60):
        mark(merge, 0, second, AnomalyState.ONGOING)
    assert merge.watermark_ns is None
    mark(merge, 2, 0, AnomalyState.IDLE)
    assert merge.watermark_ns is None
    mark(merge, 1, 1, AnomalyState.ONGOING)
    assert merge.watermark_ns == 1 * SECOND_NS
    mark(merge, 1, 30, AnomalyState.ONGOING)
    assert merge.watermark_ns == 30 * SECOND_NS


def test_those_already_heard_are_not_waited_for_again() -> None:
    """Waiting for partitions changes nothing for those that have had their mark."""
    merge = Merge()
    mark(merge, 0, 5, AnomalyState.ONGOING)
    merge.wait_for([0])
    mark(merge, 0, 6, AnomalyState.ONGOING)
    assert merge.watermark_ns == 6 * SECOND_NS


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_end_of_a_replay_is_decided_in_whichever_order_its_marks_are_read(
    order: tuple[int, ...],
) -> None:
    """Two partitions without input, two with: all idle in the end, decided up to the last round."""
    merge = Merge()
    merge.wait_for(range(4))
    ends = {0: 0, 1: 60, 2: 0, 3: 58}
    for partition in order:
        if ends[partition]:
            mark(merge, partition, 30, AnomalyState.ONGOING)
        mark(merge, partition, ends[partition], AnomalyState.IDLE)
    assert merge.watermark_ns == 60 * SECOND_NS


def test_a_cluster_that_never_probed_has_no_time() -> None:
    """Marks without event time, of a worker that waits for its first round."""
    merge = Merge()
    merge.wait_for(range(2))
    for partition in range(2):
        mark(merge, partition, 0, AnomalyState.IDLE)
    assert merge.watermark_ns is None
