"""How soon any test could find a loss, at our rate of false alarms: what is physics, not waiting.

Of the tests with a mean time g between false alarms none finds a change sooner, on average, than
after log(g) / I observations, for large g, I being the information of one observation: the
Kullback-Leibler divergence of what the fault makes from what is usual (Lorden, Procedures for
reacting to a change in distribution, 1971; Wald, Sequential analysis, 1947, for the expected number
of observations). The test of the bound knows which probes and replies the fault hits, what share
of them is lost and when, and what the network loses usually; ours knows nothing of that.

Here g is that of one component if one false alarm a month is accepted over all.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final

from arena.sealed.stream import Injected, SealedWorld
from arena.sealed.truth import geometry
from localizer.inference.pooled_loss import MONTH_NS
from schemas.units import SECOND_NS

# An effect belongs to a fault if it begins and ends with it, to so many seconds.
SLACK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time during which observations tell of a fault.

    Attributes
    ----------
    begin_s, end_s
        Since the fault began.
    rate_hz
        Observations a second.
    share
        Of the packets, lost.
    """

    begin_s: float
    end_s: float
    rate_hz: float
    share: float


def information(share: float, usual: float) -> float:
    """Return the divergence of a loss probability from the usual one, nats an observation.

    Examples
    --------
    >>> round(information(0.01, 1e-4), 4)
    0.0362
    """
    if share >= 1.0:
        return -log(usual)
    if share <= usual:
        return 0.0
    return share * log(share / usual) + (1 - share) * log((1 - share) / (1 - usual))


def least_delay_s(stretches: Iterable[Stretch], *, usual: float, components: int) -> float | None:
    """Return after how many seconds the information suffices on average; None: never.

    Parameters
    ----------
    stretches
        When which observations tell of the fault; they may overlap.
    usual
        Share of the packets that is lost without a fault.
    components
        How many could be at fault.

    Examples
    --------
    A cable with ten 5-tuples that loses 0.1 % of probes and of replies:

    >>> steady = Stretch(begin_s=0, end_s=900, rate_hz=20, share=0.001)
    >>> round(least_delay_s([steady], usual=1e-5, components=300))
    325
    """
    known = [s for s in stretches if s.end_s > s.begin_s and s.rate_hz > 0]
    needed = log(MONTH_NS / SECOND_NS * components * max((s.rate_hz for s in known), default=1.0))
    times = sorted({t for s in known for t in (s.begin_s, s.end_s)})
    told = 0.0
    for begin_s, end_s in pairwise(times):
        rate = sum(
            s.rate_hz * information(s.share, usual)
            for s in known
            if s.begin_s <= begin_s and s.end_s >= end_s
        )
        if rate > 0 and told + rate * (end_s - begin_s) >= needed:
            return begin_s + (needed - told) / rate
        told += rate * (end_s - begin_s)
    return None


def stretches_of(world: SealedWorld, fault: Injected) -> list[Stretch]:
    """Return when probes and replies tell of a fault of a sealed world that loses packets."""
    begin_s = (fault.begin_ns - world.start_ns) / SECOND_NS
    end_s = (
        world.duration_s if fault.end_ns is None else ((fault.end_ns - world.start_ns) / SECOND_NS)
    )
    known = geometry(world.site, world.plan, begin_s, end_s)
    found = []
    for effect in world.plan.effects:
        schedule = effect.schedule
        within = schedule.begin_s >= begin_s - SLACK_S and schedule.end_s <= end_s + SLACK_S
        if effect.loss <= 0 or not within:
            continue
        probes, replies = known.hit(effect.where)
        # One probe of each 5-tuple a second.
        rate_hz = float(len(probes) + len(replies))
        found += [
            Stretch(max(0.0, first - begin_s), last - begin_s, rate_hz, effect.loss)
            for first, last in zip(schedule.starts.tolist(), schedule.ends.tolist(), strict=True)
        ]
    return found


def least_delays_ns(world: SealedWorld) -> dict[str, float | None]:
    """Return of each fault that loses packets the least delay, nanoseconds; None: none suffices."""
    fabric = world.site.fabric
    found: dict[str, float | None] = {}
    for fault in world.injected:
        stretches = [] if fault.confounder else stretches_of(world, fault)
        if stretches:
            least_s = least_delay_s(
                stretches, usual=world.background, components=len(fabric.cables) + len(fabric.nodes)
            )
            found[fault.name] = None if least_s is None else least_s * SECOND_NS
    return found
