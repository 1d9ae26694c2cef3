"""How much of a fault's evidence is there by now: what a 5-tuple without anomaly says. Pure.

A 5-tuple is probed once a round, and a detector needs some probes: for a while
after a fault began, those that it hits look good. Counting them as good would
speak against the right answer; not counting any would never clear a neighbour.
"""

from collections.abc import Sequence
from math import exp
from typing import Final, Protocol

from localizer.facts.anomalies import Family
from schemas.units import SECOND_NS

# Rounds are a second apart; three losses of one round in a row take half a second.
CUT_FIRST_NS: Final = 400_000_000
CUT_SPREAD_NS: Final = 1_100_000_000
# Mean time in which the loss test notices 10 % loss per crossing on a 5-tuple.
LOSS_MEAN_NS: Final = 12 * SECOND_NS
# Windows end at the same time everywhere, and come in within their lateness.
WINDOW_FIRST: Final = 0.4
WINDOW_SPREAD_NS: Final = 5 * SECOND_NS
LEAST: Final = 0.05
# No detector is perfect, nor is the path that a trace found the path for ever.
MOST: Final = {"cut": 0.98, "loss": 0.9, "latency": 0.9}


class Flow(Protocol):
    """What is asked of a bad 5-tuple."""

    @property
    def cut(self) -> bool:
        """Whether nothing gets through."""

    @property
    def components(self) -> tuple[str, ...]:
        """What it crosses."""

    @property
    def open(self) -> bool:
        """Whether it is bad now."""

    @property
    def onset_ns(self) -> int:
        """When it became bad."""

    @property
    def seen_ns(self) -> int:
        """When that was known."""


def shown_by_now(
    family: Family, bad: Sequence[Flow], *, now_ns: int, known: frozenset[str]
) -> float:
    """Return the share of truly bad 5-tuples that have shown themselves by now, 0.05 to 0.98.

    Parameters
    ----------
    known
        Components of open faults: what crosses them is no news, and the clock runs
        from the first of the news.
    """
    fresh = [flow for flow in bad if known.isdisjoint(flow.components)]
    if not fresh:
        return MOST["latency" if family is Family.LATENCY else "cut"]
    if family is Family.LATENCY:
        since_ns = now_ns - min(flow.seen_ns for flow in fresh)
        return min(MOST["latency"], WINDOW_FIRST + since_ns / WINDOW_SPREAD_NS / 2)
    since_ns = now_ns - min(flow.onset_ns for flow in fresh)
    if cut_share(fresh) >= 0.5:
        share = (since_ns - CUT_FIRST_NS) / CUT_SPREAD_NS
        return min(MOST["cut"], max(LEAST, share))
    return min(MOST["loss"], max(LEAST, 1.0 - exp(-since_ns / LOSS_MEAN_NS)))


def cut_share(bad: Sequence[Flow]) -> float:
    """Return the share of 5-tuples that get nothing through at all now."""
    return sum(flow.open and flow.cut for flow in bad) / len(bad) if bad else 0.0
