"""Stagger, spread and rate limit."""

from collections import Counter

import pytest

from probers.clock import TokenBucket
from probers.probing import plan
from schemas.units import SECOND_NS


def test_the_stagger_depends_on_the_id_alone_and_fills_the_interval() -> None:
    """The same id gives the same offset; a thousand ids fall evenly into ten parts."""
    ids = [f"agent-h{n}" for n in range(1_000)]
    offsets = [plan.stagger_ns(name, SECOND_NS) for name in ids]
    assert offsets == [plan.stagger_ns(name, SECOND_NS) for name in ids]
    assert all(0 <= offset < SECOND_NS for offset in offsets)
    parts = Counter(offset * 10 // SECOND_NS for offset in offsets)
    assert min(parts.values()) > 60
    assert max(parts.values()) < 150


@pytest.mark.parametrize(
    ("now", "start"), [(0, 300), (299, 300), (300, 1_300), (301, 1_300), (1_299, 1_300)]
)
def test_the_next_start_is_strictly_ahead_and_on_the_grid(now: int, start: int) -> None:
    """Whole intervals plus the offset, whatever the time is now."""
    assert plan.next_start_ns(now, 1_000, 300) == start


def test_probes_are_spread_evenly_on_whole_slots() -> None:
    """Forty probes over 300 ms: ascending, within, at most seven in a 50-ms slot."""
    offsets = plan.spread_ns(40, 300_000_000)
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert offsets[-1] < 300_000_000
    assert max(Counter(offsets).values()) <= 7
    assert plan.spread_ns(0, 300) == []


def test_the_order_is_an_agents_own() -> None:
    """Two agents go through one list in different orders, each always in the same."""
    items = [f"w{n}/r0" for n in range(30)]
    one, other = plan.shuffled(items, "agent-a"), plan.shuffled(items, "agent-b")
    assert one != other
    assert sorted(one) == sorted(other) == sorted(items)
    assert one == plan.shuffled(reversed(items), "agent-a")


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    """Five at once, then one each 100 ms; never more than the burst after a pause."""
    bucket = TokenBucket(10, 5)
    assert [bucket.take_token(0) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.wait_ns(0) == pytest.approx(100_000_000, abs=2)
    assert not bucket.take_token(99_000_000)
    assert bucket.take_token(101_000_000)
    assert [bucket.take_token(3_600 * SECOND_NS) for _ in range(6)] == [True] * 5 + [False]


def test_a_bucket_survives_time_running_backwards() -> None:
    """An earlier time refills nothing and breaks nothing."""
    bucket = TokenBucket(10, 1)
    assert bucket.take_token(10 * SECOND_NS)
    assert not bucket.take_token(0)
    assert not bucket.take_token(10 * SECOND_NS)
    assert bucket.take_token(11 * SECOND_NS)


def test_a_bucket_without_rate_or_burst_is_refused() -> None:
    """A limit of nothing is a mistake."""
    with pytest.raises(ValueError, match="positive"):
        TokenBucket(0, 1)
