"""When a 5-tuple counts as slower: twice in a row, clearly, and not for ever."""

from hypothesis import given
from hypothesis import strategies as st

from probers.probing.trace import LEAST_RISE_NS, TypicalRtt
from schemas.units import MS_NS, US_NS


def settled(rtt_ns: int) -> TypicalRtt:
    """Return a pace that has seen this round trip for long."""
    pace = TypicalRtt()
    for _ in range(100):
        pace.answered(rtt_ns)
    return pace


def test_a_rise_is_told_at_the_second_slow_answer() -> None:
    """One slow answer is a hiccup, two are a rise."""
    pace = settled(400 * US_NS)
    assert [pace.answered(5 * MS_NS) for _ in range(3)] == [False, True, True]


def test_hiccups_between_fast_answers_are_no_rise() -> None:
    """Every second answer slow: never two in a row."""
    pace = settled(400 * US_NS)
    assert not any(pace.answered(rtt) for _ in range(50) for rtt in (5 * MS_NS, 400 * US_NS))


def test_a_rise_below_what_a_trace_can_see_is_none() -> None:
    """16 us to 300 us, twenty times as slow, is within a switch CPU's scatter."""
    pace = settled(16 * US_NS)
    assert not any(pace.answered(16 * US_NS + LEAST_RISE_NS // 2) for _ in range(10))


def test_a_lasting_rise_becomes_the_new_level() -> None:
    """For half a minute of probes it is told, after five it is not."""
    pace = settled(400 * US_NS)
    told = [pace.answered(5 * MS_NS) for _ in range(300)]
    assert all(told[1:30])
    assert not any(told[-100:])


def test_the_first_answers_decide_nothing() -> None:
    """A slow start falls to the level within some answers."""
    pace = TypicalRtt()
    assert not pace.answered(50 * MS_NS)
    assert not any(pace.answered(1 * MS_NS) for _ in range(60))
    assert pace.typical_ns is not None
    assert pace.typical_ns < 2 * MS_NS


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_the_level_stays_within_what_was_seen(rtts_ns: list[int]) -> None:
    """Integer steps never leave the range of the round trips."""
    pace = TypicalRtt()
    for rtt_ns in rtts_ns:
        pace.answered(rtt_ns)
    assert pace.typical_ns is not None
    assert min(rtts_ns) <= pace.typical_ns <= max(rtts_ns)
