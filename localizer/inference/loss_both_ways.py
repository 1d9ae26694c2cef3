"""Pool the losses of probes with those of replies: for one component, bin by bin.

A component loses replies as often as probes. A trace shows which way a probe took; which way a
reply took is known as a probability only, and how often it would be lost by chance is that of all
5-tuples whose replies may cross the component. So a bin has one of four outcomes: nothing; a moment
that is weak, or strong (`localizer.inference.pooled_loss`); or, of neither, losses of 5-tuples
whose replies may cross it. While the component is well their chances follow from what is lost
elsewhere; if it leaks, from the share of the bins in which it loses something, `LEAK_MOMENTS`, and
from whether that is by chance or in bursts. The sequential test of
`localizer.inference.sequential` compares them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from typing import Final

import numpy as np

from localizer.inference.loss_columns import LossColumns
from localizer.inference.loss_moments import (
    BIN_NS,
    BLIP_NS,
    FRESH_BINS,
    LEAST_FLOAT,
    MIN_BINS,
    SPANS,
    moment_chance,
    poisson_tail,
)
from localizer.inference.sequential import log_evidence
from schemas.columns.arrays import Floats, Int64s
from schemas.units import SECOND_NS

# Share of the bins in which a leak loses something: from three in ten minutes to nearly every other
# one. Where chance makes a moment of one bin in a thousand, a share that is wrong by two costs a
# fifteenth of the evidence.
LEAK_MOMENTS: Final = (0.025, 0.1, 0.4)
# Of these bins so many are strong, of a leak that loses packets in bursts.
BURST_SHARE: Final = 0.5
# Outcomes of a bin.
NOTHING, WEAK, STRONG, REPLY = range(4)


@dataclass(frozen=True, slots=True)
class Returning:
    """The 5-tuples that do not cross a component, but whose replies may.

    Attributes
    ----------
    flows
        How many there are.
    share
        Mean probability that a reply of theirs crosses it.
    """

    flows: float
    share: float


NO_REPLIES: Final = Returning(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Usual:
    """What a component would lose if it were well.

    Attributes
    ----------
    through
        5-tuples that cross it.
    hz
        Losses of these a second by chance.
    known_hz, known_bins
        As in `moment_chance`.
    """

    through: int
    hz: float
    known_hz: float
    known_bins: float


def outcomes_of(
    component: int, replied: Floats, moments: Sequence[Int64s], columns: LossColumns, now_ns: int
) -> Int64s:
    """Return the outcome of each bin at a component, the latest first, (bins,) int64.

    Parameters
    ----------
    replied : (losses,) float64
        By loss the probability that its reply crossed the component.
    moments
        Ages of the component's moments in bins: of all, and of strong ones.
    """
    found = np.full(SPANS[-1], NOTHING)
    back = ~columns.explained & (replied > 0)
    back[columns.through(component)] = False
    ages = now_ns // BIN_NS - columns.bins[back]
    kinds = (ages[ages >= 0], REPLY), (moments[0], WEAK), (moments[1], STRONG)
    for places, outcome in kinds:
        found[places[places < len(found)]] = outcome
    return found


def both_ways(outcomes: Int64s, usual: Usual, back: Returning) -> tuple[float, int]:
    """Return the log of how often chance shows so much, of bins, and the span that shows most, ns.

    Both are 0 if there are too few moments, or the last one is too old.

    Parameters
    ----------
    outcomes : (bins,) int64
        See `outcomes_of`.
    """
    struck = np.flatnonzero(outcomes)
    if len(struck) < MIN_BINS or struck[0] > FRESH_BINS:
        return 0.0, 0
    bin_s = BIN_NS / SECOND_NS
    more = back.flows / usual.through
    blip = BIN_NS / BLIP_NS
    some = min(1.0, moment_chance(1, usual.hz, usual.known_hz, usual.known_bins) + blip)
    strong = moment_chance(2, usual.hz, usual.known_hz, usual.known_bins)
    reply = min(1.0, poisson_tail(1, usual.hz * more * bin_s) + blip * more)
    leaks = []
    for lost in LEAK_MOMENTS:
        mean = -log1p(-lost)
        returned = poisson_tail(1, mean * more * back.share)
        leaks += [
            _chances(_either(some, lost), _either(strong, twice), _either(reply, returned))
            for twice in (poisson_tail(2, mean), lost * BURST_SHARE)
        ]
    evidence, bins = log_evidence(outcomes, _chances(some, strong, reply), np.array(leaks))
    return min(-evidence, 0.0), bins * BIN_NS


def _either(one: float, other: float) -> float:
    return one + (1 - one) * other


def _chances(some: float, strong: float, reply: float) -> Floats:
    """Return the chances of the outcomes of a bin, (4,) float64.

    Parameters
    ----------
    some, strong
        Of a moment, and of one that is strong.
    reply
        That a reply is lost that may have crossed the component.
    """
    chances = np.zeros(4)
    chances[NOTHING] = (1 - some) * (1 - reply)
    chances[WEAK] = some - strong
    chances[STRONG] = strong
    chances[REPLY] = (1 - some) * reply
    out: Floats = np.maximum(chances, LEAST_FLOAT)
    return out
