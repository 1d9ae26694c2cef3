"""How far an inference can be trusted.

The confidence is the lesser of two numbers. One is the weakest of several parts, each 0 to 1, that
must hold for the inference to mean anything. The other is a logistic regression on signs of the
inference: how often one that looks like this has the right DP and PP degrees. Its weights are what
`python -m arena.skeletons --calibrate` prints (`arena.skeletons.calibration` says from what;
docs/figures/skeleton.md has the results on other captures).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats
from skeleton_job.layout.blocks import Blocks
from skeleton_job.layout.description import Evidence
from skeleton_job.layout.inner import Inner
from skeleton_job.layout.layouts import Choice
from skeleton_job.layout.single_pipeline import moved_bytes
from skeleton_job.layout.stages import StageOrder
from skeleton_job.rhythm.clusters import Labels, divisors
from skeleton_job.rhythm.iterations import MIN_ITERATIONS, MIN_STRENGTH, Rhythm

# Each part rises from 0 at the first number to 1 at the second.
STRENGTH: Final = (MIN_STRENGTH, 0.7)
# Of the layouts seen in six to nine iterations 43 of 48 are right on captures for developing, more
# than of all.
ITERATIONS: Final = (MIN_ITERATIONS - 1.0, 6.0)
# Beyond so many nats a margin says no more.
MAX_MARGIN: Final = 1000.0
# From about so many nats on, a number of stages that is no power of two is more than chance.
ODD_NATS: Final = 30.0
# Ratio to the threshold; 1 is undecided.
WIDTH: Final = (0.5, 1.25)
# One-way share: below 0.01 for a ring, above 0.04 for a pipeline, even beside large gradients.
ONE_WAY: Final = (0.01, 0.1)
# Confidence if unknown blocks fit several places, so that groups are unequal.
UNPLACED: Final = 0.3
# Confidence if only layouts along the platform's order were compared: as low as if the layout were
# not shown at all, since nothing says that it follows that order.
UNSEARCHED: Final = 0.3
# One-way share between those of collectives and of pipelines.
ONE_WAY_USUAL: Final = 0.018
# Hosts that send more in all than they receive, or less, by this share hold popular experts:
# a ring and a pipeline return what they bring, but for some thousandths.
POPULAR: Final = 0.01
# Blocks of a stage move the same bytes but for so much; inner nodes of trees and leaves do not.
UNEVEN: Final = 0.05
# What hosts send and receive at once in all but this share of an iteration is steady.
STEADY_QUANTILE: Final = 0.2
# Rings of context groups move less than half of the most, for which links are full, but more than
# housekeeping; and they do in most of the iteration.
PLATEAU: Final = (0.03, 0.5)
PLATEAU_SHARE: Final = (0.5, 1.0)
# A usual number of blocks in a stage.
MEMBERS: Final = 4
# Fitted, see the module's docstring.
BIAS: Final = -0.69
WEIGHTS: Final[Mapping[str, float]] = {
    "no stages": -0.84, "margin": 0.78, "flows": 0.65, "odd": -1.21, "order": 1.87,
    "members": -0.21, "fold": -1.69, "uneven": -0.74, "context": -1.83, "popular": 0.95,
    "one way": -1.56, "steady": -2.1, "plateau": -2.73,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One condition of an inference; `weakness` says what it means if it does not hold."""

    value: float
    weakness: str


def ramp(value: float, low: float, high: float) -> float:
    """Return 0 up to `low`, 1 from `high` on, linear in between.

    >>> ramp(0.5, 0.0, 2.0)
    0.25
    """
    return min(1.0, max(0.0, (value - low) / (high - low)))


def parts_of(
    rhythm: Rhythm,
    width_margin: float,
    width_certainty: float,
    choice: Choice,
    *,
    seen_share: float,
    doubtful: float,
    one_way: float,
    placed: bool,
) -> list[Part]:
    """Return the parts of an inference's confidence."""
    # Of two layouts that tie, one is right at best.
    apart = 1.0 / (1.0 + math.exp(-min(choice.margin, MAX_MARGIN)))
    parts = [
        Part(apart, "layouts with other degrees describe the traffic as well"),
        Part(ramp(rhythm.strength, *STRENGTH), "the iterations are not much alike"),
        Part(ramp(rhythm.iterations, *ITERATIONS), "too few iterations in the window"),
        Part(ramp(width_margin, *WIDTH), "RNICs of a host are neither clearly alike nor not"),
        Part(width_certainty, "it is not clear which RNICs of a host move together"),
        Part(ramp(seen_share, 0.3, 0.8), "counters of many RNICs are missing"),
        Part(1.0 - ramp(doubtful, 0.0, 0.5), "it is not clear which RNICs take part"),
        Part(1.0 if placed else UNPLACED, "RNICs without counters fit several positions"),
    ]
    if not choice.searched:
        parts.append(Part(UNSEARCHED, "too many RNICs to compare layouts off the platform's order"))
    if choice.count == 1:
        flows = 1.0 - ramp(one_way, *ONE_WAY)
        parts.append(Part(flows, "traffic goes one way as in a pipeline, but no stages show"))
    return parts


def signs_of(
    choice: Choice, order: StageOrder, inner: Inner, evidence: Evidence, blocks: Blocks
) -> dict[str, float]:
    """Return signs of how sound an inference is, each of magnitude about 1.

    Parameters
    ----------
    choice : of the cells that `evidence` describes

    Notes
    -----
    * `margin`, `flows`: by how much layouts with other degrees are worse, and by net flows alone.
    * `odd`: the number of stages is no power of two, as chance has it more often than models, and
      the margin is small.
    * `order`, `members`: of stages, how clear their order is, and how many cells each has.
    * `fold`: the classes run back and forth along the platform's order, as those of a pipeline of
      twice as many stages do whose halves look alike.
    * `uneven`: blocks of a stage move different numbers of bytes.
    * `context`: context groups are seen.
    * `popular`: without stages, hosts send more than they receive, or less, all the time: the
      blocks wait for each other's experts, and are no context groups.
    * `one way`: without stages, traffic goes one way as in a pipeline.
    * `steady`, `plateau`: with stages and without, hosts send and receive at once all the time
      though neither experts nor context groups are seen, as do context groups of a whole stage.
    """
    alone = choice.count == 1
    margin = min(max(choice.margin, 0.0), MAX_MARGIN)
    popular = math.tanh(popularity(blocks) / POPULAR)
    unexplained = (1.0 - popular) * float(inner.kind is None)
    flow = math.tanh(math.log(max(evidence.one_way, 1e-4) / ONE_WAY_USUAL))
    signs = {
        "no stages": float(alone),
        "margin": math.log1p(margin) / 3,
        "flows": math.tanh(choice.flow_margin / 10),
        "odd": float(choice.count & (choice.count - 1) != 0) / (1.0 + margin / ODD_NATS),
        "order": 0.0 if alone else order.trust,
        "members": 0.0 if alone else math.log(choice.labels.size / choice.count / MEMBERS),
        "fold": float(choice.regular is None and folded(choice, evidence.known)),
        "uneven": math.tanh(unevenness(choice, evidence) / UNEVEN),
        "context": float(inner.kind == "cp"),
        "popular": popular if alone else 0.0,
        "one way": flow if alone else 0.0,
        "steady": 0.0 if alone else unexplained * steadiness(blocks),
        "plateau": unexplained * ramp(plateau(blocks), *PLATEAU_SHARE) if alone else 0.0,
    }
    # Further digits depend on the order of summation.
    return {name: round(value, 4) for name, value in signs.items()}


def folded(choice: Choice, known: Bools) -> bool:
    """Return whether classes run back and forth along the platform's order: 0 1 1 0, 0 1 2 2 1 0.

    Parameters
    ----------
    known : (n_blocks,) bool; others may be in any class
    """
    count, n = choice.count, choice.labels.size
    if count == 1 or n % (2 * count):
        return False
    seen = choice.labels[known]
    for each in divisors(n // (2 * count)):
        stage: Labels = np.arange(n) // each % (2 * count)
        fold = np.minimum(stage, 2 * count - 1 - stage)[known]
        if np.unique(np.stack([fold, seen]), axis=1).shape[1] == np.unique(seen).size == count:
            return True
    return False


def unevenness(choice: Choice, evidence: Evidence) -> float:
    """Return by what share of the most bytes blocks of a class differ, the median over classes."""
    moved = moved_bytes(evidence.profiles[evidence.known])
    labels = choice.labels[evidence.known]
    spread = [float(np.ptp(moved[labels == c])) for c in np.unique(labels)]
    return float(np.median(spread)) / max(float(moved.max()), 1e-300)


def popularity(blocks: Blocks) -> float:
    """Return by what share of their traffic hosts send more in all than they receive, or less.

    The median over hosts, less what all share: storage.
    """
    sent, got = (_of_hosts(blocks, rates).mean(axis=1) for rates in (blocks.tx, blocks.rx))
    net = sent - got
    apart = float(np.median(np.abs(net - np.median(net))))
    return apart / max(float(np.median(sent + got)), 1e-300)


def steadiness(blocks: Blocks) -> float:
    """Return what hosts send and receive at once in most of the iteration, over the most."""
    return float(np.quantile(_at_once(blocks), STEADY_QUANTILE))


def plateau(blocks: Blocks) -> float:
    """Return in what share of the iteration hosts send and receive at once, far below the most."""
    low, high = PLATEAU
    both = _at_once(blocks)
    return float(((both > low) & (both < high)).mean())


def _at_once(blocks: Blocks) -> Floats:
    """Return what hosts send and receive at once, the mean over hosts, over its most, (points,)."""
    both = np.minimum(_of_hosts(blocks, blocks.tx), _of_hosts(blocks, blocks.rx))
    usual: Floats = both.mean(axis=0)
    return usual / max(float(usual.max()), 1e-300)


def _of_hosts(blocks: Blocks, rates: Floats) -> Floats:
    """Return the rates of each host's known blocks together, (n_hosts, points)."""
    of_host = np.unique(blocks.hosts[blocks.known], return_inverse=True)[1]
    total = np.zeros((int(of_host.max(initial=0)) + 1, rates.shape[1]))
    np.add.at(total, of_host, rates[blocks.known])
    return total


def calibrated(signs: Mapping[str, float]) -> float:
    """Return how often an inference with these signs has the right degrees, 0 to 1."""
    total = BIAS + sum(weight * signs[name] for name, weight in WEIGHTS.items())
    return 1.0 / (1.0 + math.exp(-total))
