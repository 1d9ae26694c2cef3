"""Which share of the truly bad 5-tuples has been detected by now.

Each 5-tuple is probed once a round, and a detector needs several probes. Shortly after a fault
begins, most of the 5-tuples that it hits still look good. To count them as good would be evidence
against the true fault; to ignore all good 5-tuples would leave nothing that clears its neighbours.
So the likelihood of a good 5-tuple is weighted by the share that this module returns.
"""

from collections.abc import Sequence
from math import exp
from typing import Final, Protocol

from schemas.enums import AnomalyFamily
from schemas.units import SECOND_NS

# Rounds are a second apart; three consecutive losses of one round take half a second.
CUT_FIRST_NS: Final = 400_000_000
CUT_SPREAD_NS: Final = 1_100_000_000
# Mean time until the loss test detects 10 % loss per crossing on a 5-tuple.
LOSS_MEAN_NS: Final = 12 * SECOND_NS
# Agents' windows close one after the other over so long (`DetectionConfig.closing_spread_ns`).
WINDOW_SPREAD_NS: Final = 10 * SECOND_NS
LEAST: Final = 0.05
# Upper bounds: no detector is perfect, and a traced path may have changed since.
MOST: Final = {"cut": 0.98, "loss": 0.9, "latency": 0.9}


class Flow(Protocol):
    """The attributes of a bad 5-tuple that this module reads."""

    @property
    def cut(self) -> bool:
        """Whether nothing gets through."""

    @property
    def open(self) -> bool:
        """Whether it is bad now."""

    @property
    def onset_ns(self) -> int:
        """When it became bad."""

    @property
    def seen_ns(self) -> int:
        """When that was known."""


def shown_by_now(family: AnomalyFamily, fresh: Sequence[Flow], *, now_ns: int) -> float:
    """Return the share of truly bad 5-tuples that have been detected by now.

    Parameters
    ----------
    family
        Loss or latency: their detectors take different times.
    fresh
        The bad 5-tuples that no open fault accounts for: the clock starts with the first of them.
        Without any, the upper bound is returned.
    now_ns
        Event time of the decision, nanoseconds.

    Returns
    -------
    float
        From 0.05 to 0.98.
    """
    if not fresh:
        return MOST["latency" if family is AnomalyFamily.LATENCY else "cut"]
    if family is AnomalyFamily.LATENCY:
        since_ns = now_ns - min(flow.seen_ns for flow in fresh)
        return min(MOST["latency"], LEAST + since_ns / WINDOW_SPREAD_NS)
    since_ns = now_ns - min(flow.onset_ns for flow in fresh)
    if cut_share(fresh) >= 0.5:
        share = (since_ns - CUT_FIRST_NS) / CUT_SPREAD_NS
        return min(MOST["cut"], max(LEAST, share))
    return min(MOST["loss"], max(LEAST, 1.0 - exp(-since_ns / LOSS_MEAN_NS)))


def cut_share(bad: Sequence[Flow]) -> float:
    """Return the share of 5-tuples that are cut off now: none of their probes is answered."""
    return sum(flow.open and flow.cut for flow in bad) / len(bad) if bad else 0.0
