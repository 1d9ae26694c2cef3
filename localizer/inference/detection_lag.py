"""Which share of the truly bad 5-tuples has been detected by now, by the agent that probes them.

Each 5-tuple is probed once a round, and a detector needs several probes. Shortly after a fault
begins, most of the 5-tuples that it hits still look good. To count them as good would be evidence
against the true fault; to ignore all good 5-tuples would leave nothing that clears its neighbours.
So the likelihood of a good 5-tuple is weighted by the share that this module returns.

An agent reports all its 5-tuples in one message a round. So they are not detected independently:
before its first message since the onset all of them look good together, however many they are. An
agent that has reported something bad has been heard up to the time of that report. Of the others
nobody knows when their last message was, only that it was less than a round ago.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from statistics import median
from typing import Final, Protocol, Self

from localizer.config import GRID_NS
from schemas.enums import AnomalyFamily
from schemas.units import SECOND_NS

# Distance of an agent's rounds, and so of its messages.
ROUND_NS: Final = SECOND_NS
# Shares of single agents are rounded to multiples of this: 5-tuples of equal shares are counted
# together.
STEP: Final = 0.1
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
    def prober(self) -> str:
        """The agent that probes it."""

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


@dataclass(frozen=True, slots=True)
class Shown:
    """Share of the truly bad 5-tuples that has been detected, by their probers.

    Attributes
    ----------
    usual
        Of each agent that is not in `heard`.
    heard
        Of agents whose last report is known.
    """

    usual: float
    heard: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def by_reports(
        cls, fresh: Sequence[Flow], bad: Sequence[Flow], *, now_ns: int, alike: float
    ) -> Self:
        """Return the shares of a cut, by what each agent has reported since it began.

        Parameters
        ----------
        fresh, bad, now_ns, alike
            As in `shown_by_now`; at least one of the fresh ones is cut off.
        """
        cut = [flow for flow in fresh if flow.cut]
        first_ns = began_ns(cut) + round(median([flow.seen_ns - flow.onset_ns for flow in cut]))

        def share(heard_ns: int) -> float:
            return min(MOST["cut"], max(0.0, (heard_ns - first_ns) / ROUND_NS))

        # Messages of so long ago are here: an agent sends one a round, and a worker says four
        # times a second how far it is.
        surely_ns = now_ns - ROUND_NS - GRID_NS
        heard_ns: dict[str, int] = {}
        for flow in bad:
            # A round goes on for a while after its last loss.
            until_ns = min(flow.seen_ns + GRID_NS, now_ns)
            heard_ns[flow.prober] = max(until_ns, heard_ns.get(flow.prober, surely_ns))
        # The chance that an agent which reported nothing has sent a message since the first of its
        # 5-tuples could be known to be bad. All of them together say no more than this.
        alike = max(1.0, alike)
        sent = share(now_ns - round(ROUND_NS / (alike + 1.0)))
        return cls(
            max(LEAST, share(surely_ns), 1.0 - (1.0 - sent) ** (1.0 / alike)),
            {agent: max(LEAST, _rounded(share(at))) for agent, at in sorted(heard_ns.items())},
        )

    def of(self, prober: str) -> float:
        """Return the share of an agent's 5-tuples."""
        return self.heard.get(prober, self.usual)


def shown_by_now(
    family: AnomalyFamily,
    fresh: Sequence[Flow],
    bad: Sequence[Flow],
    *,
    now_ns: int,
    alike: float = 1.0,
) -> Shown:
    """Return the share of truly bad 5-tuples that have been detected by now.

    Parameters
    ----------
    family
        Loss or latency: their detectors take different times.
    fresh
        The bad 5-tuples that no open fault accounts for: the clock starts with the first of them.
        Without any, the upper bound is returned.
    bad
        All of them: what their probers have reported.
    now_ns
        Event time of the decision, nanoseconds.
    alike
        How many 5-tuples of one agent cross the same suspect, on average.

    Returns
    -------
    Shown
        Shares from 0.05 to 0.98.
    """
    if not fresh:
        return Shown(MOST["latency" if family is AnomalyFamily.LATENCY else "cut"])
    if family is AnomalyFamily.LATENCY:
        since_ns = now_ns - min(flow.seen_ns for flow in fresh)
        return Shown(min(MOST["latency"], LEAST + since_ns / WINDOW_SPREAD_NS))
    # A cut that is over was one as well: it is known within a round, or not at all.
    if cut_share(fresh) >= 0.5 or all(flow.cut for flow in fresh):
        return Shown.by_reports(fresh, bad, now_ns=now_ns, alike=alike)
    since_ns = now_ns - min(flow.onset_ns for flow in fresh)
    return Shown(min(MOST["loss"], max(LEAST, 1.0 - exp(-since_ns / LOSS_MEAN_NS))))


def began_ns(cut: Sequence[Flow]) -> int:
    """Return when a cut began: with the first 5-tuple of the last uninterrupted run of onsets.

    Everything that a cut hits shows within a round. What has been bad for long by itself is older.
    """
    onsets = sorted((flow.onset_ns for flow in cut), reverse=True)
    began_ns = onsets[0]
    for onset_ns in onsets:
        if began_ns - onset_ns > ROUND_NS:
            break
        began_ns = onset_ns
    return began_ns


def _rounded(share: float) -> float:
    return min(MOST["cut"], round(share / STEP) * STEP)


def cut_share(bad: Sequence[Flow]) -> float:
    """Return the share of 5-tuples that are cut off now: none of their probes is answered."""
    return sum(flow.open and flow.cut for flow in bad) / len(bad) if bad else 0.0
