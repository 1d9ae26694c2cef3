"""A sequential test: since some bin of time, have the bins been likelier under another law.

Shiryaev and Roberts. Bins have one of a few outcomes, with known chances while nothing is wrong.
For a change after which the chances are others, the likelihood ratio of all bins since a first one
has the mean 1 while nothing is wrong. So the sum of these ratios over all first bins, minus their
number, is a martingale: whenever it is looked at, a sum above A comes by chance once in A bins or
more seldom (Pollak, Optimal detection of a change in distribution, 1985). Nothing is paid for not
knowing when the change began. Of several changes that may be, the mean of their sums is taken,
which is such a sum, too.
"""

from math import log

import numpy as np

from schemas.columns.arrays import Floats, Int64s


def log_evidence(outcomes: Int64s, usual: Floats, changed: Floats) -> tuple[float, int]:
    """Return the log of the statistic, and in how many of the latest bins the change shows most.

    Parameters
    ----------
    outcomes : (bins,) int64
        Outcome of each bin, the latest first.
    usual : (outcomes,) float64
        Chances while nothing is wrong, each above 0.
    changed : (changes, outcomes) float64
        Chances after each change that may be, each above 0.

    Examples
    --------
    Two changes, of which the second makes the rare outcome certain; it was seen thrice:

    >>> usual, changed = np.array([0.99, 0.01]), np.array([[0.9, 0.1], [0.01, 0.99]])
    >>> evidence, bins = log_evidence(np.array([1, 1, 1, 0, 0]), usual, changed)
    >>> round(evidence, 1), bins
    (13.1, 3)
    """
    ratios = np.cumsum((np.log(changed) - np.log(usual))[:, outcomes], axis=1)
    top = float(ratios.max())
    total = top + log(float(np.exp(ratios - top).sum()) / len(changed))
    return total, int(ratios.max(axis=0).argmax()) + 1
