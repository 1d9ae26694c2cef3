"""LOF against a naive twin, scikit-learn and river; thresholds from simulation."""

import numpy as np
import pytest
from river import anomaly as river_anomaly
from sklearn.neighbors import LocalOutlierFactor

from schemas.columns.arrays import Floats
from streams.detectors.calibration import healthy_scores, window_features
from streams.detectors.lof import (
    MIN_HISTORY,
    MIN_SPREAD,
    NEIGHBOURS,
    STRONG,
    STRONG_RATE,
    WEAK,
    WEAK_RATE,
    lof_scores,
    log_features,
    thresholds,
)


def scaled(reference: Floats, point: Floats) -> tuple[Floats, Floats]:
    """Scale as the detector does."""
    centre = reference.mean(axis=0)
    spread = np.maximum(reference.std(axis=0), MIN_SPREAD)
    return (reference - centre) / spread, (point - centre) / spread


def naive_lof(reference: Floats, point: Floats, k: int) -> float:
    """Return the textbook's LOF of a point, with loops."""

    def neighbours(x: Floats, others: list[int]) -> list[tuple[float, int]]:
        return sorted((float(np.linalg.norm(x - reference[o])), o) for o in others)[:k]

    everyone = list(range(len(reference)))
    near = {i: neighbours(reference[i], [j for j in everyone if j != i]) for i in everyone}
    k_distance = {i: near[i][-1][0] for i in everyone}

    def density(found: list[tuple[float, int]]) -> float:
        return 1.0 / float(np.mean([max(d, k_distance[o]) for d, o in found]))

    found = neighbours(point, everyone)
    return float(np.mean([density(near[o]) for _, o in found])) / density(found)


def features(seed: int, count: int, shift_ns: float = 0) -> Floats:
    """Return log features of healthy windows, the last one shifted."""
    rng = np.random.default_rng(seed)
    rtt_ns = np.exp(rng.normal(np.log(1.5e6), 0.3, (count, 30)))
    rtt_ns[-1] += shift_ns
    return window_features(rtt_ns)


@pytest.mark.parametrize("shift_ns", [0.0, 2e5, 5e6])
def test_lof_is_the_textbooks_and_sklearns(shift_ns: float) -> None:
    """Vectorised scores equal a naive twin and scikit-learn's novelty LOF."""
    histories = [features(seed, 11, shift_ns) for seed in range(40)]
    reference = np.stack([h[:-1] for h in histories])
    points = np.stack([h[-1] for h in histories])
    scores = lof_scores(reference, np.ones((40, 10), np.bool_), points)
    for i in range(40):
        known, new = scaled(reference[i], points[i])
        assert scores[i] == pytest.approx(naive_lof(known, new, NEIGHBOURS), rel=1e-9)
        model = LocalOutlierFactor(n_neighbors=NEIGHBOURS, novelty=True).fit(known)
        assert scores[i] == pytest.approx(-model.score_samples(new[None])[0], rel=1e-6)


def test_lof_is_rivers() -> None:
    """The online reference gives the same order and nearly the same numbers."""
    ours, theirs = [], []
    for seed, shift_ns in enumerate([0.0, 0.0, 3e5, 1e6, 5e6]):
        history = features(seed, 11, shift_ns)
        ours.append(lof_scores(history[None, :-1], np.ones((1, 10), np.bool_), history[-1:])[0])
        known, new = scaled(history[:-1], history[-1])
        model = river_anomaly.LocalOutlierFactor(n_neighbors=NEIGHBOURS)
        for row in known:
            model.learn_one(dict(enumerate(row.tolist())))
        theirs.append(model.score_one(dict(enumerate(new.tolist()))))
    assert np.argsort(ours).tolist() == np.argsort(theirs).tolist()
    assert ours == pytest.approx(theirs, rel=0.2)


def test_mask_is_the_same_as_leaving_out() -> None:
    """A window that does not count changes nothing, wherever it stands and whatever it holds."""
    history = features(1, 9)
    alone = lof_scores(history[None, :-1], np.ones((1, 8), np.bool_), history[-1:])
    wide = np.full((1, 10, 7), 1e9)
    valid = np.zeros((1, 10), np.bool_)
    places = [9, 0, 3, 4, 5, 6, 7, 8]
    wide[0, places] = history[:-1]
    valid[0, places] = True
    assert lof_scores(wide, valid, history[-1:]) == pytest.approx(alone, rel=1e-12)


def test_too_little_history_has_no_score() -> None:
    """Below the least history the score is nan and the threshold infinite."""
    history = features(2, MIN_HISTORY)
    scores = lof_scores(history[None, :-1], np.ones((1, MIN_HISTORY - 1), np.bool_), history[-1:])
    assert np.isnan(scores[0])
    assert thresholds(STRONG, np.array([MIN_HISTORY - 1, MIN_HISTORY, 10, 20])).tolist() == [
        np.inf, STRONG[0], STRONG[-1], STRONG[-1],
    ]  # fmt: skip


def test_identical_windows_score_like_healthy_ones() -> None:
    """A dead calm path: no division by zero, an identical window is normal, a slow one is not."""
    same = np.tile(log_features(np.full((1, 7), 10_000)), (10, 1))
    valid = np.ones((1, 10), np.bool_)
    assert lof_scores(same[None], valid, same[:1])[0] == pytest.approx(1.0)
    slow = log_features(np.full((1, 7), 20_000))
    assert lof_scores(same[None], valid, slow)[0] > STRONG[0]


@pytest.mark.parametrize(("history", "probes"), [(5, 30), (10, 4)])
def test_thresholds_keep_the_stated_rates(history: int, probes: int) -> None:
    """Fresh simulation: healthy windows pass the thresholds no more often than stated."""
    windows = 40_000
    scores = healthy_scores(np.random.default_rng(7), windows, history, 0.3, probes)
    # 4 and 40 expected at most; beyond these counts lies less than 0.1 %.
    assert (scores > thresholds(STRONG, np.array([history]))[0]).sum() <= windows * STRONG_RATE + 9
    assert (scores > thresholds(WEAK, np.array([history]))[0]).sum() <= windows * WEAK_RATE + 22
    # And they are no looser than they must be: at half the threshold many pass.
    assert (scores > STRONG[history - MIN_HISTORY] / 2).sum() > windows * STRONG_RATE * 4
    assert (scores > WEAK[history - MIN_HISTORY] / 2).sum() > windows * WEAK_RATE * 4
