"""How far an inference can be trusted.

The confidence is the lesser of two numbers. One is the weakest of several parts, each 0 to 1, that
must hold for the inference to mean anything. The other is a logistic regression on signs of the
inference: how often one that looks like this has the right DP and PP degrees. Its weights are
fitted on the arena's `dev` captures (`python -m arena.skeletons --calibrate` prints new ones;
docs/figures/skeleton.md has the results on other captures).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skeleton_job.layout.layouts import Choice
from skeleton_job.layout.stages import StageOrder
from skeleton_job.rhythm.iterations import MIN_ITERATIONS, MIN_STRENGTH, Rhythm

# Each part rises from 0 at the first number to 1 at the second.
STRENGTH: Final = (MIN_STRENGTH, 0.7)
ITERATIONS: Final = (MIN_ITERATIONS - 1.0, 10.0)
# The difference between layouts in nats overstates the evidence, since blocks are not independent.
MARGIN_NATS: Final = 3.0
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
# Fitted, see the module's docstring.
BIAS: Final = -0.93
WEIGHTS: Final[Mapping[str, float]] = {
    "blocks": -0.69, "members": 0.87, "margin": 1.62, "one way": 0.06, "no stages": -1.89,
    "joined": 0.92, "order": 0.74, "doubtful": -0.91,
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
    order: StageOrder,
    *,
    seen_share: float,
    doubtful: float,
    one_way: float,
    placed: bool,
) -> list[Part]:
    """Return the parts of an inference's confidence."""
    clear = 1.0 / (1.0 + math.exp(-min(choice.margin, 100.0) / MARGIN_NATS))
    parts = [
        Part(ramp(rhythm.strength, *STRENGTH), "the iterations are not much alike"),
        Part(ramp(rhythm.iterations, *ITERATIONS), "too few iterations in the window"),
        Part(clear, "pipeline stages do not stand apart clearly"),
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
    if choice.count > 2:
        parts.append(Part(order.trust, "the order of the stages is not clear"))
    return parts


def signs_of(
    choice: Choice, order: StageOrder, *, one_way: float, doubtful: float, joined: bool
) -> dict[str, float]:
    """Return signs of how sound an inference is, each of magnitude about 1."""
    n, alone = choice.labels.size, choice.count == 1
    flow = math.tanh(math.log(max(one_way, 1e-4) / ONE_WAY_USUAL))
    signs = {
        "blocks": math.log(n / 8),
        "members": math.log(n / choice.count / 4),
        "margin": math.tanh(choice.margin / 10),
        "one way": -flow if alone else flow,
        "no stages": float(alone),
        "joined": float(joined),
        "order": order.trust,
        "doubtful": doubtful,
    }
    # Further digits depend on the order of summation.
    return {name: round(value, 4) for name, value in signs.items()}


def calibrated(signs: Mapping[str, float]) -> float:
    """Return how often an inference with these signs has the right degrees, 0 to 1."""
    total = BIAS + sum(weight * signs[name] for name, weight in WEIGHTS.items())
    return 1.0 / (1.0 + math.exp(-total))
