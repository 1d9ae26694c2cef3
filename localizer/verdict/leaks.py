"""Turns losses of a leaking component into symptoms that inference explains and a fault owns.

`localizer.inference.pooled_loss` says that a component leaks. The 5-tuples that lost a probe there
then count as lossy until the leak is over: it is over when no loss follows for several times the
usual gap.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log
from statistics import median
from typing import Final, NamedTuple, Self

import numpy as np

from localizer.facts.anomalies import Symptom
from localizer.facts.findings import CHANCE_NS
from localizer.facts.inputs import Sources
from localizer.facts.stray_losses import HORIZON_NS, StrayLoss
from localizer.inference.loss_both_ways import NO_REPLIES, Returning
from localizer.inference.loss_columns import PooledLoss
from localizer.inference.loss_moments import BIN_NS, LONGEST_NS
from localizer.inference.observations import ResolvedFaults
from localizer.inference.pooled_loss import (
    MONTH_NS,
    NO_FAULTS,
    Counted,
    Expected,
    Leak,
    find_leaks,
)
from localizer.inference.starvation import LEAST_EVIDENCE, late_evidence
from localizer.network.directions import Directions
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays, Shares
from localizer.verdict.incident import Incident
from schemas.enums import AnomalyFamily, AnomalyKind
from schemas.ids import FlowId
from schemas.units import SECOND_NS, us_to_ns

STEP_NS: Final = SECOND_NS
# In a storm the test takes long, and finds nothing that a second more would not.
MANY_LOSSES: Final = 1_024
MANY_STEP_NS: Final = 5 * SECOND_NS
# More leaks than this at once are one larger fault, or noise.
MAX_LEAKS: Final = 8
# 5-tuples of a component that tell how often replies cross it, or an open fault.
SAMPLED_FLOWS: Final = 64
# A leak is over after so many usual gaps without a loss. One in ten thousand gaps is as long by
# chance (exp(-9)), and a leak that goes on has hundreds of them.
QUIET_GAPS: Final = 9
LEAST_QUIET_NS: Final = 30 * SECOND_NS
MOST_QUIET_NS: Final = 300 * SECOND_NS
# The ring of a worker, in which it counts `sent`.
COUNTED_S: Final = 60


class _Crossing(NamedTuple):
    """A loss, what its probe crossed, and the hosts of prober and responder."""

    loss: StrayLoss
    components: tuple[str, ...]
    hosts: tuple[str, str]


@dataclass(slots=True)
class _Leak:
    """A leak that goes on; `losses_ns` are its losses in order."""

    since_ns: int
    losses_ns: list[int]

    def observe(self, component: str, crossed: Sequence[_Crossing]) -> list[StrayLoss]:
        """Return the losses of a leaking component, and remember when they were."""
        mine = [
            one.loss
            for one in crossed
            if component in one.components and one.loss.lost_ns >= self.since_ns
        ]
        self.losses_ns = sorted(loss.lost_ns for loss in mine) or self.losses_ns
        return mine

    def is_over(self, now_ns: int) -> bool:
        return not self.losses_ns or is_over(self.losses_ns, now_ns)


def is_over(times_ns: Sequence[int], now_ns: int) -> bool:
    """Return whether what happened at these times, in order, would have happened again by now."""
    gap_ns = (times_ns[-1] - times_ns[0]) // max(1, len(times_ns) - 1)
    quiet_ns = min(max(QUIET_GAPS * gap_ns, LEAST_QUIET_NS), MOST_QUIET_NS)
    return now_ns - times_ns[-1] > quiet_ns


class Leaks:
    """The components that lose a small share of all packets now."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._leaks: dict[str, _Leak] = {}
        self._next_ns = 0
        # Since when losses are known. A process that starts again has read back the longest span.
        self._since_ns = 0

    def observe_time(
        self,
        now_ns: int,
        places: Directions,
        resolved: ResolvedFaults,
        open_faults: Sequence[Incident],
    ) -> None:
        """Look for leaks every `STEP_NS`; let their 5-tuples count as lossy."""
        if now_ns < self._next_ns:
            return
        sources = self._sources
        self._since_ns = self._since_ns or now_ns
        # At multiples of it, so that a process that starts again tests when the former one would.
        step_ns = STEP_NS if len(sources.strays) <= MANY_LOSSES else MANY_STEP_NS
        self._next_ns = (now_ns // step_ns + 1) * step_ns
        sources.strays.expire(now_ns)
        if not len(sources.strays) and not self._leaks:
            return
        self._leave_to(resolved)
        crossed = self._crossed(now_ns)
        for component, leak in self._find(now_ns, crossed, places, open_faults).items():
            self._leaks.setdefault(component, _Leak(leak.since_ns, []))
        lost = {name: leak.observe(name, crossed) for name, leak in self._leaks.items()}
        over = {name for name, leak in self._leaks.items() if leak.is_over(now_ns)}
        blamed = frozenset[str]().union(*(fault.components for fault in open_faults))
        if not over.isdisjoint(blamed):
            self._leave_replies(over & blamed, blamed, crossed, places.replies)
            # What an open fault blames goes on; others are found again if anything is left of them.
            over |= self._leaks.keys() - blamed
        symptoms: dict[FlowId, Symptom] = {}
        for name in over:
            del self._leaks[name]
        for loss in (one for name in self._leaks for one in lost[name]):
            symptoms[loss.key] = _symptom(loss, symptoms.get(loss.key), now_ns)
        sources.anomalies.set_pooled(AnomalyKind.STRAY_LOSS, symptoms)

    @property
    def components(self) -> frozenset[str]:
        """What leaks, and what crosses the same 5-tuples so that it might be that instead."""
        return frozenset(self._leaks)

    def _find(
        self,
        now_ns: int,
        crossed: Sequence[_Crossing],
        places: Directions,
        open_faults: Sequence[Incident],
    ) -> dict[str, Leak]:
        """Return the leaks, first what explains most losses, and then what it does not explain.

        Replies that it loses are losses of other 5-tuples, on components that are well.
        """
        index = places.index
        rate_hz = _rate_hz([one.loss for one in crossed])
        measure = partial(
            _Lossy.of, crossed=crossed, crossing=index.count, rate_hz=rate_hz, now_ns=now_ns
        )
        lossy = [measure(f.components, onset_ns=us_to_ns(f.event.onset_at)) for f in open_faults]
        leaks: dict[str, Leak] = {}
        for _ in range(MAX_LEAKS):
            beside = _Beside(lossy, places)
            free = list(beside.losses(crossed))
            at_places = find_leaks(
                free,
                places.count,
                flows=len(index),
                components=places.place_count(),
                rate_hz=rate_hz,
                watched_ns=now_ns - self._since_ns,
                now_ns=now_ns,
                expected=beside.expected,
                counted=lambda place: self._counted(
                    places.cable(place), now_ns, len(index.components)
                ),
                returning=beside.returning,
                at_host=partial(self._at_host, index),
            )
            found = _of_components(at_places, places)
            if not found:
                break
            best = min(found.values(), key=_explaining_most)
            # They begin and end together: the same losses say all that is known of them.
            alike = _alike(best.component, found, free)
            since_ns = min(found[name].since_ns for name in alike)
            leaks |= {name: replace(found[name], since_ns=since_ns) for name in alike}
            lossy.append(measure(frozenset((best.component,)), onset_ns=best.since_ns))
        return leaks

    def _leave_to(self, resolved: ResolvedFaults) -> None:
        """Let the losses that resolved faults account for never count again.

        Faults are forgotten sooner than losses. Those of a cable that was healed would show the
        leak once more. What crosses a leak that goes on is that leak's: a fault that is over may
        have lost some of its replies, but ends no other.
        """
        strays, components_of = self._sources.strays, self._sources.paths.components
        until_ns: dict[FlowId, int] = {}
        for loss in strays.losses():
            if loss.key not in until_ns:
                leaking = bool(self._leaks) and not self._leaks.keys().isdisjoint(
                    components_of(loss.key)
                )
                until_ns[loss.key] = 0 if leaking else resolved.until_ns(loss.key)
            if loss.lost_ns <= until_ns[loss.key]:
                strays.explain(loss.key, until_ns[loss.key])

    def _leave_replies(
        self,
        over: set[str],
        blamed: frozenset[str],
        crossed: Sequence[_Crossing],
        replies: ReplyWays,
    ) -> None:
        """Let what may be replies that leaks lost until they ended never count again.

        Replies are lost at a leak as well, so that components which its probes do not cross seem to
        leak with it. While it lasts it explains their losses, and these are remembered for longer.
        """
        for one in crossed:
            key = one.loss.key
            if blamed.isdisjoint(one.components) and not over.isdisjoint(replies.shares(*key[:2])):
                self._sources.strays.explain(key, one.loss.lost_ns)

    def _counted(self, component: str, now_ns: int, components: int) -> Counted | None:
        """Return the counter that went out of order at a component of late."""
        findings = self._sources.findings
        rose = findings.rose_since(component, AnomalyFamily.LOSS, now_ns - HORIZON_NS)
        if rose is None:
            return None
        since_ns, doubt = rose
        return Counted(since_ns, log(components * MONTH_NS / CHANCE_NS) + doubt)

    def _crossed(self, now_ns: int) -> list[_Crossing]:
        """Return the losses that the network may be responsible for, with what they crossed."""
        sources = self._sources
        troubled = sources.liveness.excusable()
        left, agent_of = sources.roster.has_left, sources.roster.agent_of
        found = []
        for loss in sources.strays.losses():
            source, target = loss.key[:2]
            responder = agent_of(target)
            if responder is None or left(source) or left(target) or _at_starved_host(loss):
                continue
            if troubled and any(
                agent in troubled
                and sources.liveness.excused(
                    agent, loss.lost_ns, now_ns, prober=loss.agent_id, loss=True
                )
                for agent in (loss.agent_id, responder)
            ):
                continue
            crossed = sources.paths.components(loss.key, loss.lost_ns)
            hosts = self._host(loss.agent_id), self._host(responder)
            found.append(_Crossing(loss, crossed, hosts))
        return found

    def _at_host(self, index: FlowIndex, host: str) -> int:
        """Return how many 5-tuples begin or end at a host."""
        return sum(
            int(index.crossing[number])
            for known in (index.probers, index.responders)
            for agent, number in known.items()
            if self._host(agent) == host
        )

    def _host(self, agent_id: str) -> str:
        agent = self._sources.liveness.get(agent_id)
        return agent.host_id if agent is not None and agent.host_id else agent_id


@dataclass(frozen=True, slots=True)
class _Lossy:
    """A fault that loses packets.

    Attributes
    ----------
    share
        Of the probes that cross it, which are lost.
    bins
        Share of the bins in which any is.
    """

    components: frozenset[str]
    share: float
    bins: float

    @classmethod
    def of(
        cls,
        components: frozenset[str],
        crossed: Sequence[_Crossing],
        *,
        crossing: Callable[[str], int],
        rate_hz: float,
        onset_ns: int,
        now_ns: int,
    ) -> Self:
        """Measure a fault by the losses of 5-tuples that cross it."""
        times_ns = [
            one.loss.lost_ns
            for one in crossed
            if one.loss.lost_ns >= onset_ns - BIN_NS and not components.isdisjoint(one.components)
        ]
        span_ns = min(max(now_ns - onset_ns, BIN_NS), LONGEST_NS)
        probes = max(1, *map(crossing, components)) * rate_hz * span_ns / SECOND_NS
        bins = len({at_ns // BIN_NS for at_ns in times_ns})
        return cls(components, min(1.0, len(times_ns) / probes), min(1.0, bins * BIN_NS / span_ns))


@dataclass(frozen=True, slots=True)
class _Beside:
    """What is lost beside faults that are known, and what these lose of replies."""

    faults: Sequence[_Lossy]
    places: Directions

    def losses(self, crossed: Sequence[_Crossing]) -> Iterator[PooledLoss]:
        """Yield the losses of 5-tuples that cross none of the faults."""
        blamed = frozenset[str]().union(*(fault.components for fault in self.faults))
        for one in crossed:
            if blamed.isdisjoint(one.components):
                pair = one.loss.key[:2]
                way, ways = self.places.crossed(one.components), self.places.returned(*pair)
                explained = not blamed.isdisjoint(ways)
                yield PooledLoss(one.loss.lost_ns, way, pair, one.hosts, ways, explained)

    def expected(self, component: str) -> Expected:
        """Return the losses of a component's 5-tuples whose replies the faults lose."""
        if not self.faults:
            return NO_FAULTS
        ways = self._ways(component)
        share, bins = 0.0, 0.0
        for fault in self.faults:
            through = sum(max((w.get(c, 0.0) for c in fault.components), default=0.0) for w in ways)
            if through > 0:
                share += fault.share * through / len(ways)
                bins += fault.bins
        return Expected(share, min(bins, 1.0))

    def returning(self, place: str) -> Returning:
        """Return the 5-tuples whose replies may cross a place, and whose probes do not.

        ECMP deals probes as it deals replies. So as many replies cross it as probes do, and if of
        the ways between two leaves a share s does, there are 1 / s as many 5-tuples between them
        as cross it. Replies that cross a cable in one direction are those of probes that cross it
        in the other, if at all; unless nothing tells their direction.
        """
        ways, cable = self._ways(place), self.places.cable(place)
        known, others_only = _positive(ways, place), False
        if not known and cable != place:
            known, others_only = _positive(ways, cable), True
        if not known:
            return NO_REPLIES
        each = sum(1 / share for share in known) / len(known)
        others = each if others_only else each - 1
        return Returning(self.places.count(place) * others, 1 / each)

    def _ways(self, place: str) -> list[Shares]:
        """Return the ways of the replies of some 5-tuples that cross a place."""
        rows, key = self.places.rows(place), self.places.index.key
        # A few of them tell the mean; in order, so that they are always the same.
        rows = np.sort(rows)[:: max(1, len(rows) // SAMPLED_FLOWS)]
        return [self.places.returned(*key(row)[:2]) for row in rows.tolist()]


def _positive(ways: Sequence[Shares], place: str) -> list[float]:
    """Return the shares of a place, where it has any."""
    return [share for one in ways if (share := one.get(place, 0.0)) > 0]


def _of_components(found: Mapping[str, Leak], places: Directions) -> dict[str, Leak]:
    """Return the leaks of components: of a cable that of the direction that shows it best."""
    best: dict[str, Leak] = {}
    for leak in sorted(found.values(), key=_explaining_most):
        component = places.cable(leak.component)
        best.setdefault(component, replace(leak, component=component))
    return best


def _explaining_most(leak: Leak) -> tuple[float, float, str]:
    """Return a key that sorts the leak first by which the losses are the likeliest."""
    return -leak.gain, leak.log_chance, leak.component


def _alike(best: str, found: Mapping[str, Leak], losses: Sequence[PooledLoss]) -> list[str]:
    """Return the components that leak by the same losses as one: it may be any of them."""
    both: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for loss in losses:
        own.update(loss.components)
        if best in loss.components:
            both.update(loss.components)
    return [name for name in found if 2 * both[name] >= own[name]]


def _at_starved_host(loss: StrayLoss) -> bool:
    """Return whether late answers show that prober or target lacked CPU when a probe was lost.

    What such a host loses is no component's, and no chance of the network's either.
    """
    late = (late_evidence(count) for count in (loss.prober_late, loss.responder_late))
    return max(late) >= LEAST_EVIDENCE


def _rate_hz(losses: Sequence[StrayLoss]) -> float:
    """Return how often a 5-tuple is probed, by what those that lost a probe have sent."""
    return max(median([loss.sent for loss in losses]) / COUNTED_S, 1e-3) if losses else 1.0


def _symptom(loss: StrayLoss, known: Symptom | None, now_ns: int) -> Symptom:
    """Return that a 5-tuple loses probes: since its first loss, with the latest counts."""
    return Symptom(
        kind=AnomalyKind.STRAY_LOSS,
        agent_id=loss.agent_id,
        onset_ns=known.onset_ns if known is not None else loss.lost_ns,
        onset_at=known.onset_at if known is not None else loss.onset_at,
        seen_ns=now_ns,
        last_ns=now_ns,
        sent=loss.sent,
        lost=loss.lost,
        rtt_ns=None,
        baseline_ns=None,
        host_delay_ns=None,
        prober_late=loss.prober_late,
        responder_late=loss.responder_late,
    )
