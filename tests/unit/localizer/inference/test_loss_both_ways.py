"""Losses of probes and replies pooled: outcomes of bins, false alarms, power."""

from collections.abc import Callable
from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.loss_both_ways import (
    NO_REPLIES,
    NOTHING,
    REPLY,
    STRONG,
    WEAK,
    Returning,
    Usual,
    both_ways,
    outcomes_of,
)
from localizer.inference.loss_columns import LossColumns, PooledLoss
from localizer.inference.loss_moments import BIN_NS, LONGEST_NS, SPANS
from localizer.inference.pooled_loss import MONTH_NS, find_leaks
from schemas.units import SECOND_NS

BINS = SPANS[-1]
# Two leaves with four cables each, ten 5-tuples on each; a reply takes any of the four.
CABLES, FLOWS, WAYS = 8, 10, 4
RATE_HZ = 1.0


def lost(at_ns: int, number: int, *, explained: bool = False) -> PooledLoss:
    """Return a lost probe of a 5-tuple, by number."""
    cable, flow = divmod(number, FLOWS)
    leaf = cable // WAYS
    pair = f"a{leaf}-{flow}", f"b{number}"
    ways = {f"c{leaf * WAYS + way}": 1 / WAYS for way in range(WAYS)}
    return PooledLoss(at_ns, (f"c{cable}",), pair, pair, ways, explained)


losses_drawn = st.lists(
    st.builds(
        lost,
        st.integers(0, LONGEST_NS - 1),
        st.integers(0, CABLES * FLOWS - 1),
        explained=st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@given(losses_drawn)
def test_outcomes_are_those_of_a_loop(losses: list[PooledLoss]) -> None:
    """A moment counts before a reply, a strong one before a weak one; explained replies never."""
    now_ns = LONGEST_NS - 1
    columns = LossColumns(losses, BIN_NS, now_ns)
    moments = [columns.moments(strong=strong) for strong in (False, True)]
    for number, name in enumerate(columns.names):
        found = outcomes_of(
            number, columns.replied(name), [each[number] for each in moments], columns, now_ns
        )
        slow = np.full(BINS, NOTHING)
        for loss in losses:
            age = now_ns // BIN_NS - loss.lost_ns // BIN_NS
            if name in loss.components:
                slow[age] = WEAK
            elif slow[age] == NOTHING and name in loss.replies and not loss.explained:
                slow[age] = REPLY
        slow[moments[1][number]] = STRONG
        assert found.tolist() == slow.tolist()


def test_a_last_moment_that_is_old_tells_nothing() -> None:
    """Nothing is found because losses elsewhere were forgotten; nor of two moments."""
    usual = Usual(10, 1e-4, 0.0, 0.0)
    outcomes = np.full(BINS, NOTHING)
    outcomes[[0, 5, 9]] = WEAK
    assert both_ways(outcomes, usual, NO_REPLIES)[0] < 0
    assert both_ways(np.roll(outcomes, 3), usual, NO_REPLIES) == (0.0, 0)
    outcomes[9] = NOTHING
    assert both_ways(outcomes, usual, NO_REPLIES) == (0.0, 0)


def test_replies_tell_the_more_the_fewer_ways_they_have() -> None:
    """Three moments and three losses of replies: much if one in two takes it, little of ten."""
    usual = Usual(10, 1e-4, 0.0, 0.0)
    outcomes = np.full(BINS, NOTHING)
    outcomes[[0, 12, 24]] = WEAK
    alone, _ = both_ways(outcomes, usual, NO_REPLIES)
    outcomes[[5, 17, 30]] = REPLY
    few, many = (
        both_ways(outcomes, usual, Returning(10 * (ways - 1), 1 / ways))[0] for ways in (2, 20)
    )
    assert few < many < alone < 0


def leaks(losses: list[PooledLoss], *, replies: bool = True) -> list[str]:
    """Return what leaks when the last loss is known."""
    back = Returning(FLOWS * (WAYS - 1), 1 / WAYS) if replies else NO_REPLIES
    returning: Callable[[str], Returning] = lambda _: back  # noqa: E731
    return list(
        find_leaks(
            losses, lambda _: FLOWS, flows=FLOWS * CABLES, components=CABLES, rate_hz=RATE_HZ,
            watched_ns=LONGEST_NS, returning=returning,
            now_ns=max((loss.lost_ns for loss in losses), default=0) + SECOND_NS,
        )
    )  # fmt: skip


def losses_of(rng: np.random.Generator, base: float, share: float) -> list[PooledLoss]:
    """Return what is lost in ten minutes if cable 1 loses a share of probes and replies."""
    found = []
    for number in range(CABLES * FLOWS):
        cable = number // FLOWS
        back = cable // WAYS * WAYS + int(rng.integers(WAYS))
        loss = base + share * (cable == 1) + share * (back == 1)
        times = np.flatnonzero(rng.random(LONGEST_NS // SECOND_NS) < loss)
        found += [lost(int(at_s) * SECOND_NS, number) for at_s in times]
    return sorted(found, key=lambda one: one.lost_ns)


@pytest.mark.parametrize("base", [1e-5, 1e-4, 1e-3])
def test_chance_is_no_leak(base: float) -> None:
    """Whatever the network loses everywhere: once at most in 60 times ten minutes."""
    rng = np.random.default_rng(1)
    assert sum(bool(leaks(losses_of(rng, base, 0.0))) for _ in range(60)) <= 1


def test_a_leak_is_found_by_replies_and_in_its_place() -> None:
    """Of 0.04 %: two or three losses of probes, and as many of replies, in ten minutes."""
    rng = np.random.default_rng(2)
    drawn = [losses_of(rng, 1e-6, 4e-4) for _ in range(120)]
    both = [leaks(losses) for losses in drawn]
    alone = [leaks(losses, replies=False) for losses in drawn]
    assert sum(map(bool, both)) >= 1.15 * sum(map(bool, alone))
    assert sum(names == ["c1"] for names in both) >= 0.9 * sum(map(bool, both))


def one_way(rng: np.random.Generator, base: float, share: float) -> list[PooledLoss]:
    """Return what is lost in ten minutes if one direction of cable 1 loses a share of all.

    The first five 5-tuples of a cable cross it upwards, the others downwards, and the replies of
    each direction come back in the other, by any of the four cables.
    """
    found = []
    for number in range(CABLES * FLOWS):
        cable, up = number // FLOWS, number % FLOWS < FLOWS // 2
        back = cable // WAYS * WAYS + int(rng.integers(WAYS))
        loss = base + share * (cable == 1 and up) + share * (back == 1 and not up)
        here, there = ("up", "down") if up else ("down", "up")
        leaf = [f"c{cable // WAYS * WAYS + way}" for way in range(WAYS)]
        for at_s in np.flatnonzero(rng.random(LONGEST_NS // SECOND_NS) < loss).tolist():
            one = lost(at_s * SECOND_NS, number)
            ways = dict.fromkeys([*leaf, *(f"{name}>{there}" for name in leaf)], 1 / WAYS)
            crossed = (f"c{cable}", f"c{cable}>{here}")
            found.append(replace(one, components=crossed, replies=ways))
    return sorted(found, key=lambda one: one.lost_ns)


def directed_leaks(losses: list[PooledLoss], *, directed: bool = True) -> list[str]:
    """Return which cables leak; `directed`: each has two directions, which are places, too."""

    def returning(place: str) -> Returning:
        through = FLOWS // 2 if ">" in place else FLOWS
        return Returning(through * (WAYS if ">" in place else WAYS - 1), 1 / WAYS)

    def undirected(one: PooledLoss) -> PooledLoss:
        return replace(one, components=one.components[:1])

    found = find_leaks(
        losses if directed else [undirected(one) for one in losses],
        lambda place: FLOWS // 2 if ">" in place else FLOWS,
        flows=FLOWS * CABLES, components=CABLES * (3 if directed else 1), rate_hz=RATE_HZ,
        watched_ns=LONGEST_NS, returning=returning,
        now_ns=max((loss.lost_ns for loss in losses), default=0) + SECOND_NS,
    )  # fmt: skip
    return sorted({place.partition(">")[0] for place in found})


@pytest.mark.parametrize("base", [1e-5, 1e-4, 1e-3])
def test_chance_is_no_leak_of_a_direction(base: float) -> None:
    """Thrice as many places are tested: once at most in 60 times ten minutes, as before."""
    rng = np.random.default_rng(3)
    assert sum(bool(directed_leaks(one_way(rng, base, 0.0))) for _ in range(60)) <= 1


def test_a_leak_of_one_direction_is_found_by_its_direction() -> None:
    """Of 0.1 %, where 5-tuples lose as many elsewhere as data centres report; and in its place."""
    rng = np.random.default_rng(4)
    drawn = [one_way(rng, 1e-5, 1e-3) for _ in range(120)]
    ways = [directed_leaks(losses) for losses in drawn]
    both = [directed_leaks(losses, directed=False) for losses in drawn]
    assert sum(map(bool, ways)) >= 1.1 * sum(map(bool, both))
    assert sum(names == ["c1"] for names in ways) >= 0.9 * sum(map(bool, ways))


def test_losses_that_two_cables_explain_alike_name_neither() -> None:
    """Two of each cable of a leaf: the replies of one may be lost at the other."""
    times_s = [440, 470, 500, 530, 560, 590]
    of = [10, 20, 11, 21, 12, 22]
    assert leaks([lost(s * SECOND_NS, n) for s, n in zip(times_s, of, strict=True)]) == []
    mine = [10, 31, 11, 21, 12, 13]
    assert leaks([lost(s * SECOND_NS, n) for s, n in zip(times_s, mine, strict=True)]) == ["c1"]


def test_the_bound_is_one_false_alarm_a_month() -> None:
    """The evidence that is needed is that of a month's bins, over all components."""
    usual = Usual(FLOWS, 1e-4 * FLOWS, 0.0, 0.0)
    outcomes = np.full(BINS, NOTHING)
    outcomes[[0, 1, 2, 3, 4, 5]] = STRONG
    log_chance, span_ns = both_ways(outcomes, usual, NO_REPLIES)
    assert log_chance < -log(CABLES * MONTH_NS / BIN_NS)
    assert span_ns == 6 * BIN_NS
