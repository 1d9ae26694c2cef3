"""Rounds as columns, and what is refused."""

from typing import Any

import pytest

from streams.columns.quantities import ROUND_TRIP
from streams.columns.rounds import MAX_FLOW, InvalidRoundError, round_columns
from streams.config import MAX_ROUND_SPAN_NS, MAX_RTT_NS
from tests.unit.streams.worlds import result, round_datum

AT = 1_000_000_000_000


def test_columns_hold_what_the_round_says() -> None:
    """Times are absolute, lost probes have no round trip, missing delays are -1."""
    columns = round_columns(
        round_datum([result("a", "b", 0, 5, 100, host_ns=3), result("a", "b", 1, 9, None)], AT)
    )
    assert columns.keys == [("agent-h0", "a", "b", 0), ("agent-h0", "a", "b", 1)]
    assert columns.sent_ns.tolist() == [AT + 5, AT + 9]
    assert columns.ok.tolist() == [True, False]
    assert columns.values.tolist() == [[100, -1], [3, -1], [20_000, -1]]
    assert columns.reach_ns == AT + 9


def test_empty_round_reaches_its_start() -> None:
    """A round without results moves time only."""
    columns = round_columns(round_datum([], AT))
    assert columns.count == 0
    assert columns.reach_ns == AT


def test_answer_without_round_trip_is_a_loss() -> None:
    """OK with a null round trip is no answer; a slightly negative one counts as 0."""
    odd = {**result("a", "b", 0, 0, 1), "rtt_ns": None}
    columns = round_columns(round_datum([odd, result("a", "b", 1, 0, -40)], AT))
    assert columns.ok.tolist() == [False, True]
    assert columns.values[ROUND_TRIP].tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"sent_offset_ns": -1}, "sent_offset_ns"),
        ({"sent_offset_ns": MAX_ROUND_SPAN_NS + 1}, "sent_offset_ns"),
        ({"sent_offset_ns": 2**70}, "64 bits"),
        ({"rtt_ns": MAX_RTT_NS + 1}, "rtt_ns"),
        ({"flow": -1}, "flow"),
        ({"flow": MAX_FLOW + 1}, "flow"),
        ({"src": ""}, "endpoint id"),
        ({"dst": "x" * 257}, "endpoint id"),
    ],
)
def test_impossible_results_are_refused(change: dict[str, Any], what: str) -> None:
    """A result out of bounds refuses the round, and the message says which bound."""
    with pytest.raises(InvalidRoundError, match=what):
        round_columns(round_datum([{**result("a", "b", 0, 0, 1), **change}], AT))


@pytest.mark.parametrize("started_at", [-1, 2**62])
def test_impossible_times_are_refused(started_at: int) -> None:
    """Times before 1970 or beyond int64 nanoseconds are refused."""
    with pytest.raises(InvalidRoundError, match="started_at"):
        round_columns({**round_datum([], AT), "started_at": started_at})


def test_too_many_results_are_refused() -> None:
    """The schema's bound on the number of results holds."""
    with pytest.raises(InvalidRoundError, match="65536"):
        round_columns(round_datum([result("a", "b", 0, 0, 1)] * 65_537, AT))
