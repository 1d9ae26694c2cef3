"""Losses pooled over the 5-tuples of a component: false alarms, power, what is no leak."""

from collections.abc import Callable
from math import comb, exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from localizer.inference.loss_columns import PooledLoss
from localizer.inference.loss_moments import BIN_NS, BLIP_NS, LONGEST_NS, SPANS, moment_chance
from localizer.inference.pooled_loss import (
    Counted,
    Expected,
    Leak,
    find_leaks,
    log_false_onsets,
)
from schemas.units import SECOND_NS

SPAN_S = SPANS[-1] * BIN_NS // SECOND_NS
BIN_S = BIN_NS // SECOND_NS
CABLES = 20
# 5-tuples on each cable; each crosses a switch that a quarter of the cables share.
FLOWS = 20
RATE_HZ = 1.0


@given(
    hits=st.integers(1, 8), span=st.sampled_from(SPANS), chance=st.floats(1e-6, 0.5)
)  # fmt: skip
def test_false_onsets_are_those_of_the_binomial_tail(hits: int, span: int, chance: float) -> None:
    """Slow twin: the terms of the tail, one by one."""
    others = span - 1
    tail = sum(
        comb(others, n) * chance**n * (1 - chance) ** (others - n)
        for n in range(hits - 1, others + 1)
    )
    if tail > 0:
        assert exp(log_false_onsets(hits, span, chance)) == pytest.approx(chance * tail, rel=1e-6)


@pytest.mark.parametrize(("hits", "span", "chance"), [(2, 3, 0.02), (3, 12, 0.02), (4, 48, 0.02)])
def test_independent_bins_raise_as_many_false_alarms_as_stated(
    hits: int, span: int, chance: float
) -> None:
    """Bins that are moments and have so many before them, in a million bins; and no more onsets."""
    bins = 1_000_000
    marks = np.random.default_rng(7).random(bins) < chance
    seen = np.convolve(marks, np.ones(span, np.int64))[:bins]
    alarms = marks & (seen >= hits)
    stated = bins * exp(log_false_onsets(hits, span, chance))
    # Alarms come in clusters of a few, so their variance is that of a few times as many.
    assert abs(alarms.sum() - stated) < 5 * np.sqrt(4 * stated)
    onsets = np.flatnonzero(np.diff((seen >= hits).astype(np.int8), prepend=0) == 1)
    assert len(onsets) <= alarms.sum()


@given(
    usual=st.floats(1e-7, 0.1), known=st.floats(0, 0.1), bins=st.floats(0.01, 1)
)  # fmt: skip
def test_the_chance_of_a_moment_is_that_of_poisson(usual: float, known: float, bins: float) -> None:
    """Two kinds of bins: in which known faults lose something, and the others."""
    for strength, blips in ((1, 0.0), (2, BIN_NS / BLIP_NS)):
        quiet = poisson.sf(strength - 1, usual * BIN_S)
        struck = poisson.sf(strength - 1, (usual + known / bins) * BIN_S)
        slow = quiet if known == 0 else bins * struck + (1 - bins) * quiet
        found = moment_chance(strength, usual, known, bins)
        assert found == pytest.approx(min(1.0, slow + blips), rel=1e-6)


def loss(at_ns: float, cable: str, number: int, *, replies: tuple[str, ...] = ()) -> PooledLoss:
    """Return a lost probe between two hosts of its own."""
    pair = f"a{number}", f"b{number}"
    crossed = (cable,) if cable else ()
    return PooledLoss(int(at_ns), crossed, pair, pair, dict.fromkeys(replies, 0.25))


def losses(rng: np.random.Generator, rates: np.ndarray) -> list[PooledLoss]:
    """Return the losses of `SPAN_S` seconds, each cable losing a share of its own."""
    probes = FLOWS * RATE_HZ * SPAN_S
    found = []
    for cable, count in enumerate(rng.poisson(rates * probes)):
        crossed = (f"c{cable}", f"s{cable % 4}")
        pairs = [(f"a{cable}", f"b{number}") for number in range(FLOWS)]
        times_ns = rng.integers(0, SPAN_S * SECOND_NS, count).tolist()
        for at_ns, number in zip(times_ns, rng.integers(0, FLOWS, count).tolist(), strict=True):
            found.append(PooledLoss(at_ns, crossed, pairs[number], pairs[number]))
    return found


def leaks(
    lost: list[PooledLoss],
    *,
    expected: Callable[[str], Expected] = lambda _: Expected(0.0, 0.0),
    counted: Callable[[str], Counted | None] = lambda _: None,
    at_host: Callable[[str], int] = lambda _: 0,
) -> dict[str, Leak]:
    """Return what leaks when the last loss is known."""
    return find_leaks(
        lost, lambda c: FLOWS if c.startswith("c") else FLOWS * CABLES // 4,
        flows=FLOWS * CABLES, components=CABLES + 4, rate_hz=RATE_HZ, watched_ns=LONGEST_NS,
        now_ns=max((loss.lost_ns for loss in lost), default=0) + SECOND_NS,
        expected=expected, counted=counted, at_host=at_host,
    )  # fmt: skip


@pytest.mark.parametrize("base", [1e-5, 1e-4, 1e-3, pytest.param(1e-2, marks=pytest.mark.slow)])
def test_chance_is_no_leak(base: float) -> None:
    """Whatever the network loses everywhere: once at most in 300 times ten minutes.

    Two days; how much it loses is known by what it lost in the same ten minutes alone.
    """
    rng = np.random.default_rng(1)
    assert sum(bool(leaks(losses(rng, np.full(CABLES, base)))) for _ in range(300)) <= 1


@pytest.mark.parametrize(("leak", "base"), [(0.003, 1e-5), (0.005, 1e-4), (0.03, 1e-3)])
def test_a_leak_is_found(leak: float, base: float) -> None:
    """Thirty to a hundred and more times the usual loss, on one cable of twenty."""
    rng = np.random.default_rng(2)
    rates = np.full(CABLES, base)
    rates[3] = leak
    found = []
    for _ in range(50):
        lost = losses(rng, rates)
        last_ns = max(loss.lost_ns for loss in lost if "c3" in loss.components)
        found.append(leaks([loss for loss in lost if loss.lost_ns <= last_ns]))
    assert sum("c3" in names for names in found) >= 49
    assert all(set(names) <= {"c3", "s3"} for names in found)


def burst(at_s: float, cable: str, count: int) -> list[PooledLoss]:
    """Return losses of a moment, of as many pairs."""
    return [loss((at_s + n / 50) * SECOND_NS, cable, n) for n in range(count)]


def test_losses_of_one_moment_are_no_leak() -> None:
    """All 5-tuples of a cable lose a probe at once: it flapped. Nor those of two moments."""
    assert leaks(burst(100, "c0", FLOWS)) == {}
    assert leaks(burst(100, "c0", FLOWS) + burst(300, "c0", FLOWS)) == {}


def test_three_bursts_are_a_leak() -> None:
    """Minutes apart, each of two 5-tuples: by chance they would not be on one cable."""
    lost = [one for at_s in (31, 262, 549) for one in burst(at_s, "c0", 2)]
    assert list(leaks(lost)) == ["c0"]


def test_bursts_that_one_host_explains_are_no_leak() -> None:
    """It stood still for a moment, three times: losses of its 5-tuples say as much as one."""
    lost = [
        PooledLoss(int((at_s + n / 50) * SECOND_NS), ("c0",), ("a", f"b{n}"), ("a", f"b{n}"))
        for at_s in (31, 262, 549)
        for n in range(4)
    ]
    assert leaks(lost) == {}


def test_what_a_busy_host_loses_everywhere_is_no_leak_of_its_ways() -> None:
    """Half of the losses of its 5-tuples cross one cable, the others several."""
    lost = [
        PooledLoss(s * SECOND_NS, (cable,), ("a", f"b{s % 7}"), ("a", f"b{s % 7}"))
        for n, cable in enumerate(["c1", "c0", "c2", "c0", "c3", "c0"] * 4)
        for s in [110 + 20 * n]
    ]
    assert list(leaks(lost)) == ["c0"]
    assert leaks(lost, at_host=lambda host: FLOWS if host == "a" else 2) == {}
    # One cable alone: it is no better explained by the host, of which it carries a part.
    alone = [one for one in lost if one.components == ("c0",)]
    assert list(leaks(alone, at_host=lambda host: 2 * FLOWS if host == "a" else 2)) == ["c0"]


def test_a_burst_elsewhere_hides_no_leak() -> None:
    """What one fault loses at one moment is one loss of the others, not fifty."""
    weak = [loss(s * SECOND_NS, "c0", s) for s in (450, 480, 500, 540, 570, 590)]
    assert list(leaks(weak)) == ["c0"]
    assert list(leaks(weak + burst(100, "c7", 50))) == ["c0"]


def test_replies_that_an_open_fault_loses_are_no_leak() -> None:
    """A fault elsewhere loses a probe of the cable every twenty seconds: that is expected."""
    lost = [loss(s * SECOND_NS, "c0", s) for s in range(0, SPAN_S, 20)]
    assert list(leaks(lost)) == ["c0"]
    assert leaks(lost, expected=lambda _: Expected(1 / (20 * FLOWS), 0.25)) == {}


def test_replies_that_a_leak_may_lose_are_no_usual_losses() -> None:
    """A cable loses both ways: 5-tuples that come back over it are not what else is lost."""
    mine = [loss(s * SECOND_NS, "c0", s) for s in (490, 510, 540, 565, 590)]
    back = range(500, 600, 20)
    assert list(leaks(mine + [loss(s * SECOND_NS, "", s, replies=("c0",)) for s in back])) == ["c0"]
    assert leaks(mine + [loss(s * SECOND_NS, "", s) for s in range(0, SPAN_S, 12)]) == {}


def test_of_cables_that_lose_packets_in_each_bin_the_leaking_one_explains_most() -> None:
    """It loses replies of its neighbours' 5-tuples as well: all are as unlikely to be well."""
    cables = ("c0", "c1", "c2", "c3")
    as_sure = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lost = [
            loss(second * SECOND_NS, cable, number, replies=cables)
            for second in range(15)
            for cable, count in zip(cables, rng.poisson((1.3, 1.3, 1.3, 4.0)), strict=True)
            for number in range(count)
        ]
        found = leaks(lost)
        assert max(found, key=lambda name: found[name].gain) == "c3"
        others = [leak.log_chance for name, leak in found.items() if name != "c3"]
        as_sure += bool(others) and min(others) <= found["c3"].log_chance
    assert as_sure > 10


def test_losses_of_one_pair_are_no_leak() -> None:
    """They are not pooled: the test of the 5-tuple has them all."""
    times_ns = range(0, SPAN_S * SECOND_NS, 20 * SECOND_NS)
    one = "a", "b"
    assert leaks([PooledLoss(t, ("c0",), one, one) for t in times_ns]) == {}
    assert "c0" in leaks([loss(t, "c0", t % 3) for t in times_ns])


def test_a_leak_that_is_over_is_not_found_again_for_ever() -> None:
    """Losses older than the longest span do not count."""
    lost = [loss((n * 10 - SPAN_S) * SECOND_NS, "c0", n) for n in range(12)]
    assert leaks([*lost, loss(0, "c9", 1)]) == {}
    # Nor because losses elsewhere have been forgotten.
    lost = [loss(n * 10 * SECOND_NS, "c0", n) for n in range(12)]
    assert list(leaks(lost)) == ["c0"]
    assert leaks([*lost, loss(130 * SECOND_NS, "c9", 1)]) == {}


def test_a_counter_and_few_losses_are_enough_together_and_neither_alone() -> None:
    """Three losses on a cable that counts CRC errors; elsewhere three losses are chance."""
    few = [loss(s * SECOND_NS, cable, s) for cable in ("c0", "c1") for s in (450, 520, 590)]

    def counted(component: str) -> Counted | None:
        rose = Counted(440 * SECOND_NS, np.log(180 * CABLES))
        return rose if component in {"c0", "c2"} else None

    assert list(leaks(few, counted=counted)) == ["c0"]
    assert leaks(few) == {}
    # At one moment they may be chance all the same.
    assert leaks(burst(500, "c0", 3), counted=counted) == {}
