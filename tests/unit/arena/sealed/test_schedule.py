"""Schedules."""

import numpy as np
import pytest

from arena.sealed.schedule import intersection, pulses, renewal, steady
from tests.unit.arena.sealed.small import rng_of


def test_a_steady_schedule_is_on_between_its_ends() -> None:
    """The end is not part of it."""
    on = steady(10.0, 20.0).on(np.array([9.9, 10.0, 19.9, 20.0]))
    assert on.tolist() == [False, True, True, False]


@pytest.mark.parametrize("share", [0.05, 0.15, 0.25])
def test_pulses_are_on_for_their_share(share: float) -> None:
    """Within the scatter of some hundred pulses, and never outside their span."""
    over = pulses(rng_of(1), 0.0, 20_000.0, on_s=8.0, share=share)
    assert over.on_s / 20_000.0 == pytest.approx(share, rel=0.12)
    assert (over.starts[1:] >= over.ends[:-1]).all()
    assert over.ends[-1] <= 20_000.0


def test_a_renewal_process_has_the_mean_of_a_gilbert_channel() -> None:
    """The share of bad time is on / (on + off)."""
    over = renewal(rng_of(2), 0.0, 5_000.0, on_s=0.2, off_s=1.8)
    assert over.on_s / 5_000.0 == pytest.approx(0.1, rel=0.1)


def test_remaining_time_ends_with_the_stretch() -> None:
    """Between stretches nothing remains."""
    over = pulses(rng_of(3), 0.0, 100.0, on_s=5.0, share=0.5)
    start, end = float(over.starts[1]), float(over.ends[1])
    left = over.remaining(np.array([start, end - 0.25, end + 1e-6]))
    assert left.tolist() == pytest.approx([end - start, 0.25, 0.0])


def test_an_intersection_is_on_where_both_are() -> None:
    """At any time."""
    one = pulses(rng_of(4), 0.0, 100.0, on_s=5.0, share=0.5)
    other = renewal(rng_of(5), 0.0, 100.0, on_s=1.0, off_s=2.0)
    at_s = np.linspace(0.0, 110.0, 5_000)
    both = intersection(one, other)
    assert (both.on(at_s) == (one.on(at_s) & other.on(at_s))).all()
