"""The sequential test against its slow twin, and its rate of false alarms."""

from math import exp, log, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.sequential import log_evidence

BINS = 40
USUAL = np.array([0.93, 0.05, 0.02])
CHANGED = np.array([[0.6, 0.3, 0.1], [0.3, 0.1, 0.6]])


def slow_evidence(outcomes: list[int]) -> tuple[float, int]:
    """Multiply the ratios since each first bin."""
    ratios = [
        [prod(law[one] / USUAL[one] for one in outcomes[: since + 1]) for law in CHANGED]
        for since in range(len(outcomes))
    ]
    most = [max(each) for each in ratios]
    return log(sum(map(sum, ratios)) / len(CHANGED)), most.index(max(most)) + 1


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_it_adds_up_the_ratios_since_each_bin(outcomes: list[int]) -> None:
    """As a loop does."""
    evidence, bins = log_evidence(np.array(outcomes), USUAL, CHANGED)
    slow, first = slow_evidence(outcomes)
    assert evidence == pytest.approx(slow, abs=1e-9)
    ratios = [log_evidence(np.array(outcomes[:n]), USUAL, CHANGED)[0] for n in (bins, first)]
    assert bins == first or ratios[0] == pytest.approx(ratios[1], abs=1e-9)


def test_while_nothing_is_wrong_the_statistic_grows_by_one_a_bin() -> None:
    """Its mean is the number of bins, so that by Markov's inequality it is seldom large."""
    rng = np.random.default_rng(3)
    runs = rng.choice(len(USUAL), (20_000, 5), p=USUAL)
    # Little else, so that the mean is not that of a few runs.
    changed = np.array([[0.9, 0.07, 0.03], [0.94, 0.03, 0.03]])
    found = np.array([exp(log_evidence(run, USUAL, changed)[0]) for run in runs])
    assert found.mean() == pytest.approx(5, abs=5 * found.std() / np.sqrt(len(found)))


def test_alarms_are_as_rare_as_stated() -> None:
    """Once in A bins at most that the sum exceeds A for the first time, bin after bin."""
    rng = np.random.default_rng(4)
    bound = 200.0
    alarms, bins = 0, 20_000
    outcomes = rng.choice(len(USUAL), bins, p=USUAL)
    begin = 0
    for now in range(1, bins + 1):
        latest = outcomes[max(begin, now - BINS) : now][::-1]
        if log_evidence(latest, USUAL, CHANGED)[0] >= log(bound):
            alarms, begin = alarms + 1, now
        if begin == bins:
            break
    assert 0 < alarms <= bins / bound


def test_a_change_is_found_where_it_began() -> None:
    """Ten bins of the second law after thirty usual ones."""
    rng = np.random.default_rng(5)
    late = rng.choice(3, 10, p=CHANGED[1])
    evidence, bins = log_evidence(np.r_[late, np.zeros(30, np.int64)], USUAL, CHANGED)
    assert evidence > 10
    assert 8 <= bins <= 12
