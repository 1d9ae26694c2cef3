"""The loss test: exact thresholds, and simulated false alarms below the stated rate."""

import numpy as np
import pytest
from scipy import stats

from streams.detectors.loss import (
    SPANS,
    false_onsets_per_hour,
    least_losses,
    loss_finding,
)

BASE, BUDGET = 1e-4, 1e-3


def test_bound_is_the_binomial_tail() -> None:
    """The stated formula with scipy's tail."""
    for probes, span_s, losses in ((20, 20, 2), (80, 20, 3), (244, 60, 4)):
        tail = stats.binom.sf(losses - 2, probes - 1, BASE)
        assert false_onsets_per_hour(probes, span_s, BASE, losses) == pytest.approx(
            3600 / span_s * probes * BASE * tail, rel=1e-9
        )


def test_certain_loss_of_all_is_the_only_proof_with_two_probes() -> None:
    """With two probes both must be lost; one probe never proves a rate."""
    assert least_losses(2, 20, BASE, BUDGET) == 2
    assert least_losses(1, 20, BASE, BUDGET) >= 2
    assert false_onsets_per_hour(3, 20, BASE, 4) == 0.0


@pytest.mark.parametrize("base_rate", [1e-5, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize(("span_s", "share"), SPANS)
@pytest.mark.parametrize("probes", [2, 20, 60, 84, 244, 960, 5000])
def test_threshold_keeps_the_budget_and_is_the_least(
    base_rate: float, span_s: int, share: float, probes: int
) -> None:
    """The bound holds at the threshold, and not one loss below it."""
    losses = least_losses(probes, span_s, base_rate, BUDGET * share)
    if losses > probes:
        return  # no count of losses is proof
    assert false_onsets_per_hour(probes, span_s, base_rate, losses) <= BUDGET * share
    if losses > 2 and probes <= 4096:
        assert false_onsets_per_hour(probes, span_s, base_rate, losses - 1) > BUDGET * share


def test_thresholds_in_use() -> None:
    """1 Hz at a base rate of 1e-4: two losses in 20 s, or three in a minute, or of a path."""
    assert least_losses(20, 20, BASE, 0.8 * BUDGET) == 2
    assert least_losses(60, 60, BASE, 0.2 * BUDGET) == 3
    assert least_losses(80, 20, BASE, 0.8 * BUDGET) == 3


def test_short_span_comes_first() -> None:
    """The finding says which span and threshold decided."""
    found = loss_finding({20: (20, 2), 60: (60, 2)}, BASE, BUDGET)
    assert found is not None
    assert (found.span_s, found.threshold, found.lost, found.sent) == (20, 2, 2, 20)
    found = loss_finding({20: (20, 1), 60: (60, 3)}, BASE, BUDGET)
    assert found is not None
    assert found.span_s == 60
    assert loss_finding({20: (20, 1), 60: (60, 2)}, BASE, BUDGET) is None


def test_simulated_false_onsets_stay_below_the_budget() -> None:
    """4,000 hours of a 5-tuple at the base rate: onsets no more often than the bound says.

    A base rate of 1 % and a budget of 0.5 an hour, so that there is something to count.
    """
    base_rate, budget, hours = 0.01, 0.5, 4000
    rng = np.random.default_rng(11)
    lost = rng.random((hours, 3600)) < base_rate
    onsets = 0
    bound = 0.0
    fires = np.zeros_like(lost)
    for span_s, share in SPANS:
        need = least_losses(span_s, span_s, base_rate, budget * share)
        bound += false_onsets_per_hour(span_s, span_s, base_rate, need)
        total = np.cumsum(lost, axis=1, dtype=np.int64)
        counts = total - np.pad(total, ((0, 0), (span_s, 0)))[:, :3600]
        fires |= lost & (counts >= need)
    # An onset is a firing probe without another in the 40 s before: the alarm was cleared.
    for hour, second in zip(*np.nonzero(fires), strict=True):
        onsets += not fires[hour, max(0, second - 40) : second].any()
    assert bound <= budget
    assert onsets / hours <= bound
    assert onsets / hours >= bound / 4
