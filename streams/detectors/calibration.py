"""Where the LOF thresholds come from: simulated healthy windows.

`python -m streams.detectors.calibration` prints the table, a quarter of an hour; a test
repeats it with fewer windows.
"""

import sys
from typing import Final

import numpy as np

from schemas.columns.arrays import Floats
from streams.detectors.lof import (
    MIN_HISTORY,
    STRONG,
    STRONG_RATE,
    WEAK,
    WEAK_RATE,
    lof_scores,
    log_features,
)

# A calm path, an ordinary one, a wild one.
SIGMAS: Final = (0.05, 0.3, 1.0)
# The median of a path through a software fabric; LOF on log features hardly sees it.
MEDIAN_NS: Final = 1_500_000
# Answers in a window: few at 1 Hz in short windows, many in long ones.
PROBES: Final = (4, 30)
BATCH: Final = 20_000
WINDOWS: Final = 500_000


def window_features(rtt_ns: Floats) -> Floats:
    """Return the log features of windows of round trips, shape (..., probes)."""
    ordered = np.sort(rtt_ns, axis=-1)
    probes = rtt_ns.shape[-1]

    def rank(percent: int) -> Floats:
        return np.asarray(ordered[..., (percent * probes + 99) // 100 - 1])

    features = np.stack(
        [
            rank(25),
            rank(50),
            rank(75),
            ordered[..., 0],
            rtt_ns.mean(axis=-1),
            rtt_ns.std(axis=-1),
            ordered[..., -1],
        ],
        axis=-1,
    )
    return log_features(np.rint(features).astype(np.int64))


def healthy_scores(
    rng: np.random.Generator, windows: int, history: int, sigma: float, probes: int
) -> Floats:
    """Return the LOF of healthy windows against `history` healthy ones."""
    scores: list[Floats] = []
    while windows > 0:
        size = min(windows, BATCH)
        windows -= size
        rtt_ns = np.exp(rng.normal(np.log(MEDIAN_NS), sigma, (size, history + 1, probes)))
        features = window_features(rtt_ns)
        valid = np.ones((size, history), np.bool_)
        scores.append(lof_scores(features[:, :-1], valid, features[:, -1]))
    return np.concatenate(scores)


def quantiles(rng: np.random.Generator, windows: int, history: int) -> tuple[float, float]:
    """Return the LOF that shares `STRONG_RATE` and `WEAK_RATE` exceed in the worst case."""
    found = [
        np.quantile(
            healthy_scores(rng, windows, history, sigma, probes), [1 - STRONG_RATE, 1 - WEAK_RATE]
        )
        for sigma in SIGMAS
        for probes in PROBES
    ]
    strong, weak = np.max(found, axis=0)
    return float(strong), float(weak)


def main() -> None:
    """Print the table beside the thresholds in use."""
    windows = int(sys.argv[1]) if len(sys.argv) > 1 else WINDOWS
    rng = np.random.default_rng(20251)
    print(f"LOF exceeded by {STRONG_RATE:g} and {WEAK_RATE:g} of {windows} healthy windows")
    for place, used in enumerate(zip(STRONG, WEAK, strict=True)):
        strong, weak = quantiles(rng, windows, MIN_HISTORY + place)
        print(
            f"{MIN_HISTORY + place:2d} windows: {strong:.2f} and {weak:.2f}  "
            f"in use {used[0]:.2f} and {used[1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
