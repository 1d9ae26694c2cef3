"""Rates from counters that are reset, cleared, go away and come back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.host.meter import Meter
from schemas.units import SECOND_NS

LOOKS = st.lists(
    st.tuples(
        st.integers(1, 40 * SECOND_NS),
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 2**64 - 1), max_size=3),
    ),
    max_size=30,
)


def test_the_first_look_makes_no_rate() -> None:
    """And no 0 either."""
    meter = Meter(30 * SECOND_NS)
    assert meter.rate_hz() is None
    meter.observe({"a": 1_000_000}, 0)
    assert (meter.rate_hz(), meter.total(), meter.largest()) == (None, None, None)
    meter.observe({"a": 1_000_050}, 5 * SECOND_NS)
    assert (meter.rate_hz(), meter.total(), meter.largest()) == (10.0, 50, 50)


def test_a_step_back_counts_nothing_and_is_the_new_beginning() -> None:
    """A reset, a wrap and a clearing look the same."""
    meter = Meter(30 * SECOND_NS)
    for second, value in ((0, 100), (5, 160), (10, 7), (15, 9)):
        meter.observe({"a": value}, second * SECOND_NS)
    assert meter.total() == 62


def test_a_counter_that_was_away_begins_anew() -> None:
    """What it counted meanwhile may be of another device."""
    meter = Meter(30 * SECOND_NS)
    meter.observe({"a": 5}, 0)
    meter.observe({}, 5 * SECOND_NS)
    assert meter.rate_hz() is None
    meter.observe({"a": 9_000}, 10 * SECOND_NS)
    assert meter.rate_hz() is None
    meter.observe({"a": 9_001}, 15 * SECOND_NS)
    assert meter.rate_hz() == pytest.approx(0.2)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    """A burst is in the rate for the window's length."""
    meter = Meter(30 * SECOND_NS)
    rates = []
    for look in range(12):
        meter.observe({"a": 300 if look >= 2 else 0}, look * 5 * SECOND_NS)
        rates.append(meter.rate_hz())
    assert rates[1] == 0
    assert rates[2] == 30
    assert rates[7] == 10
    assert rates[8:] == [0, 0, 0, 0]


def test_counters_of_the_same_events_count_once() -> None:
    """The largest counts; counters of different events add up."""
    meter = Meter(600 * SECOND_NS)
    meter.observe({"link": 0, "carrier": 10}, 0)
    meter.observe({"link": 3, "carrier": 12}, 5 * SECOND_NS)
    assert (meter.largest(), meter.total()) == (3, 5)


@given(LOOKS)
def test_as_a_slow_and_obvious_meter(looks: list[tuple[int, dict[str, int]]]) -> None:
    """Never negative; the total is what grew in the steps that end within the window."""
    meter = Meter(30 * SECOND_NS)
    now_ns, seen = 0, [(0, dict[str, int]())]
    for wait_ns, counts in looks:
        now_ns += wait_ns
        meter.observe(counts, now_ns)
        seen.append((now_ns, counts))
        total = meter.total()
        if total is None:
            assert not seen[-2][1].keys() & counts.keys()
            continue
        steps: list[tuple[int, int]] = []
        for (_, before), (end_ns, after) in pairwise(seen):
            if not before.keys() & after.keys():
                steps.clear()
                continue
            steps.append((end_ns, sum(max(0, after[n] - before[n]) for n in after.keys() & before)))
        newest = steps[-1]
        assert total == sum(n for end, n in steps[:-1] if end > now_ns - 30 * SECOND_NS) + newest[1]
        rate_hz = meter.rate_hz()
        assert rate_hz is not None
        assert rate_hz >= 0
