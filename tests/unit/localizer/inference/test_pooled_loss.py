"""Losses pooled over the 5-tuples of a component: false alarms, power, what is no leak."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr
from scipy.stats import binom

from localizer.inference.pooled_loss import (
    BIN_NS,
    SPANS,
    Leak,
    PooledLoss,
    divergence,
    find_leaks,
)
from schemas.units import SECOND_NS

STEP_NS = 5 * SECOND_NS
SPAN_S = SPANS[-1] * BIN_NS // SECOND_NS
CABLES = 20
# 5-tuples on each cable; each crosses a switch that a quarter of the cables share.
FLOWS = 20
RATE_HZ = 1.0


@given(
    trials=st.integers(1, 200), share=st.floats(0, 1), chance=st.floats(1e-6, 1 - 1e-6)
)  # fmt: skip
def test_the_bound_holds(trials: int, share: float, chance: float) -> None:
    """Never below the exact tail, and n times the divergence of the textbooks."""
    hits = round(share * trials)
    bound = divergence(hits, trials, chance)
    assert bound >= 0
    assert np.exp(-bound) >= binom.sf(hits - 1, trials, chance) * (1 - 1e-9)
    part = hits / trials
    if part > chance:
        slow = trials * (rel_entr(part, chance) + rel_entr(1 - part, 1 - chance))
        assert bound == pytest.approx(slow)


def losses(rng: np.random.Generator, rates: np.ndarray) -> list[PooledLoss]:
    """Return the losses of `SPAN_S` seconds, each cable losing a share of its own."""
    probes = FLOWS * RATE_HZ * SPAN_S
    found = []
    for cable, count in enumerate(rng.poisson(rates * probes)):
        for at_ns in rng.integers(0, SPAN_S * SECOND_NS, count):
            pair = f"a{cable}", f"b{rng.integers(FLOWS)}"
            found.append(PooledLoss(int(at_ns), (f"c{cable}", f"s{cable % 4}"), pair))
    return found


def leaks(lost: list[PooledLoss]) -> dict[str, Leak]:
    """Return what leaks at the end of the time."""
    return find_leaks(
        lost, lambda c: FLOWS if c.startswith("c") else FLOWS * CABLES // 4,
        flows=FLOWS * CABLES, rate_hz=RATE_HZ, step_ns=STEP_NS, now_ns=SPAN_S * SECOND_NS,
    )  # fmt: skip


@pytest.mark.parametrize("base", [1e-5, 1e-4, 1e-3, 1e-2])
def test_chance_is_no_leak(base: float) -> None:
    """Whatever the network loses everywhere: nothing in 300 times ten minutes."""
    rng = np.random.default_rng(1)
    assert not any(leaks(losses(rng, np.full(CABLES, base))) for _ in range(300))


@pytest.mark.parametrize(("leak", "base"), [(0.003, 1e-5), (0.005, 1e-4), (0.03, 1e-3)])
def test_a_leak_is_found(leak: float, base: float) -> None:
    """Thirty to a hundred and more times the usual loss, on one cable of twenty."""
    rng = np.random.default_rng(2)
    rates = np.full(CABLES, base)
    rates[3] = leak
    found = [leaks(losses(rng, rates)) for _ in range(50)]
    assert sum("c3" in names for names in found) >= 49
    assert all(set(names) <= {"c3", "s3"} for names in found)


def test_losses_of_one_moment_are_no_leak() -> None:
    """All 5-tuples of a cable lose a probe at once: it flapped."""
    lost = [PooledLoss(100 * SECOND_NS + n, ("c0",), ("a", f"b{n}")) for n in range(FLOWS)]
    assert leaks(lost) == {}


def test_losses_of_one_pair_are_no_leak() -> None:
    """They are not pooled: the test of the 5-tuple has them all."""
    times_ns = range(0, SPAN_S * SECOND_NS, 20 * SECOND_NS)
    assert leaks([PooledLoss(t, ("c0",), ("a", "b")) for t in times_ns]) == {}
    assert "c0" in leaks([PooledLoss(t, ("c0",), ("a", f"b{t % 3}")) for t in times_ns])


def test_a_leak_that_is_over_is_not_found_again_for_ever() -> None:
    """Losses older than the longest span do not count."""
    lost = [PooledLoss(n * 10 * SECOND_NS, ("c0",), ("a", f"b{n}")) for n in range(12)]
    later = [PooledLoss(one.lost_ns - SPAN_S * SECOND_NS, *_rest(one)) for one in lost]
    assert leaks(later) == {}


def _rest(loss: PooledLoss) -> tuple[tuple[str, ...], tuple[str, str]]:
    return tuple(loss.components), loss.pair


def test_a_counter_and_few_losses_are_enough_together_and_neither_alone() -> None:
    """Three losses on a cable that counts CRC errors; elsewhere three losses are chance."""
    few = [
        PooledLoss(s * SECOND_NS, (f"c{cable}",), ("a", f"b{s}"))
        for cable in (0, 1)
        for s in (550, 570, 590)
    ]
    found = find_leaks(
        few, lambda _: FLOWS, flows=FLOWS * CABLES, rate_hz=RATE_HZ, step_ns=STEP_NS,
        now_ns=SPAN_S * SECOND_NS, counted=lambda c: 5.0 if c in {"c0", "c2"} else 0.0,
    )  # fmt: skip
    assert list(found) == ["c0"]
