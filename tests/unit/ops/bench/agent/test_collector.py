"""Which rows of the collector's cost have bars, and that ranks it did not see count as an error."""

import pytest

from ops.bench.agent.collector import LOADS, RANKS, check_seen, figures
from ops.bench.rig.process_cost import Memory

HELD = Memory(rss_bytes=30_000_000, peak_bytes=33_000_000, pss_bytes=None)


def test_the_load_of_the_bar_is_measured_by_dumps_and_by_rings() -> None:
    """Another one shows how it grows, and has none."""
    barred = {(load.rate_hz, load.nccl) for load in LOADS if load.barred}
    assert barred == {(20, False), (20, True)}
    dumps, _, more = (figures(load, [0.8, 1.4, 0.9], HELD) for load in LOADS)
    assert [(row.value, row.bar, row.met) for row in dumps] == [
        (0.9, 1.0, True),
        (33.0, 60.0, True),
    ]
    assert [row.bar for row in more] == [None, None]
    assert len({rows[0].figure for rows in (dumps, more)}) == 2


def test_a_collector_that_saw_nothing_cost_nothing() -> None:
    """Then what it took is no figure."""
    check_seen({"ranks": RANKS, "operations": 100})
    with pytest.raises(RuntimeError, match="has not seen"):
        check_seen({"ranks": RANKS - 1, "operations": 100})
    with pytest.raises(RuntimeError, match="has not seen"):
        check_seen({"ranks": RANKS, "operations": 0})
