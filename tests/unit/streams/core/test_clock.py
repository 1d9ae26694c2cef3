"""The partition's clock and its memory of rounds."""

from schemas.units import SECOND_NS
from streams.core.clock import (
    CONFIRMING_ROUNDS,
    ROUNDS_IN_CHUNK,
    ClockState,
    SeenRounds,
    advance_clock,
)

T = 1_000_000 * SECOND_NS
NOW = ClockState(watermark_ns=T, reach_ns=T)


def test_first_round_sets_the_clock() -> None:
    """The first round is believed, whatever it says."""
    clock, accepted = advance_clock(ClockState(), "a", T, T + 5)
    assert accepted
    assert clock == ClockState(watermark_ns=T, reach_ns=T + 5)


def test_older_round_does_not_turn_the_clock_back() -> None:
    """A late round is taken, the watermark stays."""
    clock, accepted = advance_clock(NOW, "a", T - 3600 * SECOND_NS, T - 3600 * SECOND_NS)
    assert accepted
    assert clock == NOW


def test_a_minute_is_no_jump() -> None:
    """An advance of up to 60 s needs no confirmation."""
    clock, accepted = advance_clock(NOW, "a", T + 60 * SECOND_NS, T)
    assert accepted
    assert clock.watermark_ns == T + 60 * SECOND_NS


def test_wrong_clock_alone_never_moves_time() -> None:
    """One agent an hour ahead stays refused as long as others are heard in between."""
    clock = NOW
    for second in range(100):
        ahead = T + (3600 + second) * SECOND_NS
        clock, accepted = advance_clock(clock, "wrong", ahead, ahead)
        assert not accepted
        clock, accepted = advance_clock(clock, "right", T + second * SECOND_NS, T)
        assert accepted
    assert clock.watermark_ns == T + 99 * SECOND_NS


def test_second_agent_confirms_a_jump() -> None:
    """After silence two agents that agree move the clock; the first round was refused."""
    later = T + 7200 * SECOND_NS
    clock, accepted = advance_clock(NOW, "a", later, later)
    assert not accepted
    clock, accepted = advance_clock(clock, "b", later + SECOND_NS, later + SECOND_NS)
    assert accepted
    assert clock == ClockState(watermark_ns=later + SECOND_NS, reach_ns=later + SECOND_NS)


def test_agents_that_disagree_confirm_nothing() -> None:
    """Two wrong clocks, two different times: neither is believed."""
    clock, _ = advance_clock(NOW, "a", T + 3600 * SECOND_NS, T)
    clock, accepted = advance_clock(clock, "b", T + 7200 * SECOND_NS, T)
    assert not accepted
    assert clock.watermark_ns == T


def test_lone_agent_is_believed_after_five_rounds() -> None:
    """With nobody to object the fifth round in a row is accepted."""
    clock, answers = NOW, []
    for second in range(CONFIRMING_ROUNDS):
        at = T + (3600 + second) * SECOND_NS
        clock, accepted = advance_clock(clock, "a", at, at)
        answers.append(accepted)
    assert answers == [False] * (CONFIRMING_ROUNDS - 1) + [True]


def test_duplicates_are_seen_within_the_horizon_and_memory_is_bounded() -> None:
    """A round is known for the horizon; older ones are forgotten."""
    seen = SeenRounds(10 * SECOND_NS)
    first = ("a", 1, 0, T)
    assert not seen.seen_before(first, T)
    assert seen.seen_before(first, T + 10 * SECOND_NS)
    assert not seen.seen_before(("a", 2, 0, T), T)
    last = 3 * ROUNDS_IN_CHUNK
    for second in range(1, last):
        seen.seen_before(("a", 1, second, T + second * SECOND_NS), T + second * SECOND_NS)
    assert len(seen) <= ROUNDS_IN_CHUNK + 12
    for back in (0, 5, 10):
        known = last - 1 - back
        identity = ("a", 1, known, T + known * SECOND_NS)
        assert seen.seen_before(identity, T + (last - 1) * SECOND_NS)
    assert not seen.seen_before(("a", 1, 7, T + 7 * SECOND_NS), T + last * SECOND_NS)
