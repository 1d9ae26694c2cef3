"""Loss above the base rate: an exact binomial tail, sliding over recent probes.

Only the first probe of a 5-tuple in a round is a sample: re-probes are sent
because it was lost, so their number depends on the outcome. A first probe whose
re-probes were all lost as well is evidence of an outage, which is the fast
path's matter, and is left out here (at 10 % loss that is 1 % of the losses), and
so is the first probe after an outage.

False alarms. An onset needs a lost probe with at least k-1 further losses among
the n-1 probes before it in the window. With independent losses at the base rate
p the expected number of such probes per hour is

    (probes per hour) * p * P(Binomial(n-1, p) >= k-1)

which bounds the rate of false onsets from above. k is the least count that
keeps it under the budget; exact, no normal approximation.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

HOUR_S: Final = 3600
# Window lengths in seconds and their share of the false-alarm budget: the short
# one finds 10 % within some 15 s, the long one finds a few per cent.
SPANS: Final[tuple[tuple[int, float], ...]] = ((20, 0.8), (60, 0.2))
RING_S: Final = 60
# A first probe with this many losses in its round is an outage, not a sample.
OUTAGE_PROBES: Final = 3
# Beyond this many probes in a window the threshold is computed for the next power
# of two and less is asked of the memory: still a bound, since k grows with n.
EXACT_PROBES: Final = 4096


@dataclass(frozen=True, slots=True)
class LossFinding:
    """A test that fired."""

    lost: int
    sent: int
    threshold: int
    span_s: int


def false_onsets_per_hour(probes: int, span_s: int, base_rate: float, losses: int) -> float:
    """Return the bound on false onsets per hour.

    Parameters
    ----------
    probes
        Probes in the window.
    span_s
        Length of the window, seconds.
    base_rate
        Loss probability of a healthy network.
    losses
        Losses that make an onset.
    """
    return float(_onsets(probes, span_s, base_rate, np.array([losses]))[0])


@lru_cache(maxsize=65_536)
def least_losses(probes: int, span_s: int, base_rate: float, budget_per_hour: float) -> int:
    """Return the least count of losses that keeps false onsets within the budget.

    Never below 2: one lost probe is no rate.
    """
    if probes > EXACT_PROBES:
        probes = 1 << (probes - 1).bit_length()
    losses = np.arange(2, max(probes, 2) + 2)
    onsets = _onsets(probes, span_s, base_rate, losses)
    return int(losses[np.argmax(onsets <= budget_per_hour)])


def _onsets(
    probes: int, span_s: int, base_rate: float, losses: NDArray[np.int64]
) -> NDArray[np.float64]:
    others = max(probes - 1, 1)
    # bdtrc(k, n, p) is the tail P(X > k); none of n trials is more than n.
    tail = np.where(
        losses - 2 < others, bdtrc(np.minimum(losses - 2, others), others, base_rate), 0.0
    )
    return HOUR_S / span_s * probes * base_rate * tail


def loss_finding(
    counts: dict[int, tuple[int, int]], base_rate: float, budget_per_hour: float
) -> LossFinding | None:
    """Return the first span whose count of losses passes, None if none does.

    Parameters
    ----------
    counts
        (sent, lost) of counted first probes by span in seconds.
    base_rate, budget_per_hour
        Null hypothesis, and false onsets accepted per hour over all spans.
    """
    for span_s, share in SPANS:
        sent, lost = counts[span_s]
        if lost < 2:
            continue
        bound = least_losses(sent, span_s, base_rate, budget_per_hour * share)
        if lost >= bound:
            return LossFinding(lost, sent, bound, span_s)
    return None
