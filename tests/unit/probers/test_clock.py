"""Rate limits: a burst, then a rate, whatever the time does; and an exact one for a second."""

import random

import pytest

from probers.clock import MERGE_NS, SecondLimit, TokenBucket
from schemas.units import SECOND_NS


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


@pytest.mark.parametrize("seed", range(3))
def test_no_second_has_more_packets_than_the_limit(seed: int) -> None:
    """Whoever waits as told sends at most the limit in any second, and nearly the limit in all."""
    rng = random.Random(seed)
    limit, now_ns, sent = SecondLimit(50), 0, []
    while now_ns < 20 * SECOND_NS:
        packets = rng.choice((1, 1, 3))
        wait_ns = limit.wait_ns(packets, now_ns)
        now_ns += wait_ns
        assert limit.wait_ns(packets, now_ns) == 0
        sent += [now_ns] * packets
        now_ns += rng.randrange(MERGE_NS // 10)
        limit.record_sent(packets, now_ns)
        now_ns += rng.choice((0, 0, MERGE_NS, 30 * MERGE_NS))
    assert max(sum(t <= u < t + SECOND_NS for u in sent) for t in sent) <= 50
    assert len(sent) > 20 * 40


def test_what_never_fits_counts_as_the_whole_limit() -> None:
    """A probe of three packets at a limit of two is sent once a second."""
    limit = SecondLimit(2)
    assert limit.wait_ns(3, 0) == 0
    limit.record_sent(3, 0)
    assert limit.wait_ns(3, 1) == SECOND_NS - 1
    assert limit.wait_ns(3, SECOND_NS) == 0
    with pytest.raises(ValueError, match="0 packets"):
        SecondLimit(0)
