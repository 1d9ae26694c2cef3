"""The parts of the bench of hangs that need a broker, small."""

import pytest

from ops.bench.agent import collector
from ops.bench.collectives import records

pytestmark = pytest.mark.broker


def test_real_watchers_read_all_records_of_a_small_job() -> None:
    """One, then two of which one leads; either names the rank that stalls, or it raises."""
    rows = records.measure(1, lambda _: None, ranks=32, window_s=6)
    assert [row.runs for row in rows] == [1] * 8
    assert all(row.value is not None for row in rows)


def test_a_collector_sees_stand_in_ranks_by_dumps_and_by_rings() -> None:
    """It raises if it sees none of what they do."""
    rows = collector.measure(1, lambda _: None, seconds=3.0, plugin_alone=False)
    assert len(rows) == 2 * len(collector.LOADS)
    # In so short a stretch on a busy machine the kernel may count no tick of its CPU time.
    assert all(row.value is not None and row.value >= 0 for row in rows)
    assert all(row.value for row in rows if row.unit == "MB")
