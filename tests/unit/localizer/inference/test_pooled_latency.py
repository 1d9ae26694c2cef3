"""Small rises pooled over the 5-tuples of a component: false alarms, power, what is common."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr
from scipy.stats import binom

from localizer.inference.pooled_latency import LOG_CHANCE_OVER, divergence, find_slow
from schemas.units import SECOND_NS

CABLES, FLOWS = 40, 16
STEP_NS = 2 * SECOND_NS


def slow(late: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> dict[str, float]:
    """Return the slow ones of cables, given which of their 5-tuples are late."""
    counts = {f"c{cable}": int(n) for cable, n in enumerate(late.sum(axis=1)) if n}
    return find_slow(
        counts, lambda _: FLOWS, all_late=int(late.sum()), flows=late.size, step_ns=STEP_NS
    )


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 0.9])
def test_what_is_common_is_no_fault(share: float) -> None:
    """Whatever share of all is late: nothing in 1,000 steps."""
    rng = np.random.default_rng(1)
    assert not any(slow(rng.random((CABLES, FLOWS)) < share) for _ in range(1_000))


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_a_slow_cable_is_found(share: float) -> None:
    """Nine tenths of its 5-tuples are late, and nothing else is found."""
    rng = np.random.default_rng(2)
    found = Counter[str]()
    for _ in range(50):
        late = rng.random((CABLES, FLOWS)) < share
        late[7] = rng.random(FLOWS) < 0.95
        found.update(slow(late).keys())
    assert found["c7"] >= 49
    assert set(found) == {"c7"}


def test_a_known_one_is_over_later_than_it_began() -> None:
    """Else it would come and go while its windows close."""

    def found(known: frozenset[str]) -> dict[str, float]:
        return find_slow(
            {"cable": 4}, lambda _: 8, all_late=4, flows=400, known=known, step_ns=STEP_NS
        )

    assert found(frozenset()) == {}
    assert found(frozenset({"cable"}))["cable"] <= LOG_CHANCE_OVER


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
