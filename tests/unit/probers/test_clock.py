"""The rate limit: a burst, then a rate, whatever the time does."""

import pytest

from probers.clock import TokenBucket
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
