"""Moments at which a component loses packets, and how likely one is without a fault.

See `localizer.inference.pooled_loss`.
"""

from math import expm1
from typing import Final

from scipy.special import pdtrc

from schemas.units import SECOND_NS

# Less likely than this is certain not to be chance.
LEAST_FLOAT: Final = 1e-300
BIN_NS: Final = 5 * SECOND_NS
# Bins of the spans that are tested. The short ones find 1 % and more, the longest 0.05 %.
SPANS: Final = (3, 6, 12, 24, 48, 120)
LONGEST_NS: Final = SPANS[-1] * BIN_NS
# Fewer moments, or losses between fewer pairs of endpoints, are no component's.
MIN_BINS: Final = 3
# The last moment is so new: nothing is found because losses elsewhere were forgotten. A lost probe
# is known after its timeout, and its round.
FRESH_BINS: Final = 2
# A component loses several packets at one moment once in so long for reasons that are over then.
BLIP_NS: Final = 86_400 * SECOND_NS


def moment_chance(strength: int, usual_hz: float, known_hz: float, known_bins: float) -> float:
    """Return the probability that a bin is a moment although the component is well.

    Parameters
    ----------
    strength
        Of `STRENGTHS`.
    usual_hz
        Losses a second by chance.
    known_hz, known_bins
        Losses a second that open faults explain, and the share of the bins that they fall into.
    """
    bin_s = BIN_NS / SECOND_NS
    quiet = poisson_tail(strength, usual_hz * bin_s)
    if known_hz > 0:
        known_bins = min(max(known_bins, BIN_NS / LONGEST_NS), 1.0)
        struck = poisson_tail(strength, (usual_hz + known_hz / known_bins) * bin_s)
        quiet += known_bins * (struck - quiet)
    return min(1.0, quiet + (BIN_NS / BLIP_NS if strength > 1 else 0.0))


def poisson_tail(least: int, mean: float) -> float:
    """Return P(Poisson(mean) >= least) for 1 or 2, without loss of digits."""
    return -expm1(-mean) if least == 1 else float(pdtrc(least - 1, mean))
