"""What is told at once, what once a minute, and since when it is so."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.clock import Instant
from probers.host.states import (
    REPEAT_NS,
    REPORT_FACTOR,
    ReportedStates,
    StateReport,
    Value,
    missing,
)
from schemas.units import SECOND_NS

STARTED = 1_700_000_000 * SECOND_NS


def at(second: float) -> Instant:
    """Return a moment."""
    return Instant(round(second * SECOND_NS), STARTED + round(second * SECOND_NS))


def looks(attribute: str, *values: Value, every_s: float = 5) -> Iterator[list[StateReport]]:
    """Yield what is told at each look."""
    reported = ReportedStates()
    for number, value in enumerate(values):
        yield reported.observe("rnic:h0/r0", {attribute: value}, at(number * every_s))


def test_a_change_is_told_at_once_and_what_stays_once_a_minute() -> None:
    """With the time of the change, and that of the look."""
    words = [Value("active")] * 3 + [Value("down")] * 20
    reported = [(i, t) for i, found in enumerate(looks("port_state", *words)) for t in found]
    assert [i for i, _ in reported] == [0, 3, 15]
    assert [t.changed_us for _, t in reported] == [at(0).epoch_us, at(15).epoch_us, at(15).epoch_us]
    assert reported[-1][1].observed_us == at(75).epoch_us
    assert 15 * 5 * SECOND_NS - 3 * 5 * SECOND_NS == REPEAT_NS


def test_an_unknown_value_is_a_change_and_another_reason_is_not() -> None:
    """It is told once, and its reason again with the minute."""
    values = [Value("on"), missing("a"), missing("b"), Value("on")]
    assert [len(found) for found in looks("congestion_control", *values)] == [1, 1, 0, 1]


def test_a_rate_that_flickers_is_not_told_each_time() -> None:
    """By a factor of 1.5 it is; from and to 0 as well."""
    rates = [0.0, 0.0, 10.0, 11.0, 9.0, 14.0, 16.0, 0.0]
    reported = list(looks("crc_errors_per_s", *(Value(number=r) for r in rates)))
    assert [len(found) for found in reported] == [1, 0, 1, 0, 0, 0, 1, 1]


def test_a_rate_that_grows_into_its_window_began_when_it_was_first_seen() -> None:
    """Six looks fill the window; the fault began at the first."""
    rates = [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    reported = [
        t for found in looks("discards_per_s", *(Value(number=r) for r in rates)) for t in found
    ]
    assert {t.changed_us for t in reported[1:]} == {at(5).epoch_us}
    assert (reported[-1].value.number or 0) >= 20


def test_a_storm_after_a_breeze_began_with_the_storm() -> None:
    """Another level is another fault."""
    rates = [20.0, 20.0, 50_000.0]
    *_, last = looks("pause_frames_per_s", *(Value(number=r) for r in rates))
    assert last[0].changed_us == at(10).epoch_us


@pytest.mark.parametrize("attribute", ["pcie_width", "port_rate_gbps"])
def test_a_setting_is_told_whenever_it_differs(attribute: str) -> None:
    """16 lanes and 12 are no rates."""
    reported = list(looks(attribute, Value(number=16.0), Value(number=12.0)))
    assert [t[0].changed_us for t in reported] == [at(0).epoch_us, at(5).epoch_us]


@given(
    st.lists(
        st.one_of(
            st.floats(0, 1e12).map(lambda n: Value(number=n)),
            st.sampled_from("ab").map(Value),
            st.just(missing("gone")),
        ),
        max_size=60,
    ),
    st.sampled_from(["pcie_width", "crc_errors_per_s", "link_flaps"]),
)
def test_nothing_is_silent_for_longer_than_a_minute(values: list[Value], attribute: str) -> None:
    """And what was told last is never far from what is."""
    last: StateReport | None = None
    for number, found in enumerate(looks(attribute, *values)):
        if found:
            (last,) = found
        assert last is not None
        now = at(number * 5)
        assert now.epoch_us - last.observed_us < REPEAT_NS // 1000
        assert last.changed_us <= last.observed_us
        assert (last.value.text, last.value.number is None) == (
            values[number].text, values[number].number is None,
        )  # fmt: skip
        shown = values[number].number
        if last.value.number and shown:
            ratio = last.value.number / shown
            assert 1 / REPORT_FACTOR <= ratio <= REPORT_FACTOR
