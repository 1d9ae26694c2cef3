"""Faults over time: which claim belongs to which fault, and which changes are published."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from localizer.config import CoreConfig
from localizer.facts.states import SPECIFIC
from localizer.inference.loss_moments import LONGEST_NS
from localizer.verdict.catalogue import (
    AGENT,
    HOST_GROUPS,
    KINDS,
    LATENCY,
    LOSS,
    OVERLAY,
    PARTIAL,
    SELF_GROUPS,
    FaultKind,
)
from localizer.verdict.claims import Claim
from localizer.verdict.incident import (
    SPREAD_NS,
    Incident,
    Trigger,
    follow,
    opened,
    resolve,
    stand,
)
from schemas.enums import ComponentKind
from schemas.ids import FlowId
from schemas.records import FaultEvent
from schemas.units import SECOND_NS, us_to_ns

# Faults that are open or may return; beyond this no new one is opened, and counted as refused.
MAX_INCIDENTS: Final = 4_096
# A resolved fault is remembered at least this long, for latency that follows it.
REMEMBER_NS: Final = 120 * SECOND_NS
# A claim replaces a young fault if it explains this share of the fault's 5-tuples.
OVERLAP: Final = 0.5
# A claim beside an old fault is a separate fault if this share of its 5-tuples is new.
FRESH: Final = 0.3
# Adjacent faults that begin within this time are one.
TOGETHER_NS: Final = 3 * SECOND_NS
# Changes that are published although the verdict stays: the number of bad 5-tuples changed by this
# factor, or the confidence by this step.
GROWTH: Final = 1.5
CONFIDENCE_STEP: Final = 0.15
# A fault that comes and goes is well for minutes in between: it is over after this many times the
# damping time. So is one whose kind says so, and one that came back this often. And what a port
# cut off for less than `SPREAD_NS`, or delayed for less than `BRIEF_DELAY_NS`: nobody repairs
# anything so soon. At one fault an hour among hundreds of ports, another one is at the same port
# within eight minutes once in a thousand times.
FLAPPING_FACTOR: Final = 8
BRIEF_DELAY_NS: Final = 60 * SECOND_NS
FLAPPING: Final = "port_flapping"
EVICTIONS: Final = "repetitive_offload"
COMES_AND_GOES: Final = frozenset({FLAPPING, EVICTIONS})
FLAPPING_RETURNS: Final = 2
# A candidate of a fault was likely from this score on.
LIKELY: Final = 0.1
PORT_KINDS: Final = frozenset({ComponentKind.LINK, ComponentKind.RNIC})
# Minimum time between changes of the verdict itself: one that swings settles by itself.
ESSENTIAL_GAP_NS: Final = SECOND_NS // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is wrong at one instant, beside the claims.

    Attributes
    ----------
    bad_loss, bad_latency
        5-tuples with an open anomaly that is not attributed to their target's agent.
    crossing
        Returns which of a group's bad 5-tuples cross some components.
    unexplained
        Number of bad 5-tuples that no claim accounts for.
    echoes
        5-tuples that only lose replies because of open faults.
    replyless
        5-tuples of which the claims say that only their replies are lost.
    standing
        Returns what a state claims of a fault that probes do not show: that it is still there.
    """

    bad_loss: frozenset[FlowId]
    bad_latency: frozenset[FlowId]
    crossing: Callable[[frozenset[str], str], frozenset[FlowId]]
    unexplained: int
    echoes: frozenset[FlowId] = frozenset()
    replyless: frozenset[FlowId] = frozenset()
    standing: Callable[[Incident], Claim | None] = lambda _: None

    def bad(self, group: str) -> frozenset[FlowId]:
        """Return the bad 5-tuples that can be evidence of a fault of a group."""
        return self.bad_latency if group == LATENCY else self.bad_loss


class Lifecycle:
    """All faults that are open or were until recently.

    Parameters
    ----------
    heir
        Returns the open fault that somebody else has opened and a new claim explains: it becomes
        that of the claim.
    crossed_as
        Returns what stands for a component on paths.

    Attributes
    ----------
    refused
        Faults that were not opened because there were too many.
    """

    def __init__(
        self,
        config: CoreConfig,
        heir: Callable[[Claim], Incident | None] = lambda _: None,
        crossed_as: Callable[[str], str] = lambda component: component,
    ) -> None:
        self.refused = 0
        self._heir = heir
        self._crossed_as = crossed_as
        self._config = config
        self._incidents: dict[str, Incident] = {}

    def open_faults(self) -> list[Incident]:
        """Return the open faults that probes show, by id."""
        return [i for _, i in sorted(self._incidents.items()) if i.open and not i.stands]

    def resolved_faults(self) -> list[Incident]:
        """Return the faults that probes show no more, by id.

        They were resolved until recently, or a state says that they are still there.
        """
        return [i for _, i in sorted(self._incidents.items()) if not i.open or i.stands]

    def returned(self, component_id: str, now_ns: int) -> int:
        """Return how often a component's loss came back; once more if it is over for now."""
        return max(
            (
                i.flapped + ((not i.open or i.stands) and self._flaps(i, now_ns))
                for i in self._incidents.values()
                if i.group == LOSS and i.place == component_id
            ),
            default=0,
        )

    def force(self, event: FaultEvent) -> None:
        """Apply a transition that a former process has published."""
        known = self._incidents.get(event.fault_id)
        if known is None:
            self._incidents[event.fault_id] = Incident.restored(event)
        elif known.event.seq < event.seq:
            at_ns = us_to_ns(event.event_at)
            if event.flaps > known.event.flaps:
                known.come_back(at_ns, flaps=self._flaps(known, at_ns))
            group = Incident.restored(event).group
            known.event, known.group = event, group
            if known.stands and known.stood_ns is None:
                known.stood_ns = at_ns

    def observe(self, claims: Sequence[Claim], situation: Situation, now_ns: int) -> None:
        """Update which faults have evidence: what `step` does, but without transitions."""
        by_place = {(c.component_id, c.group): c for c in claims}
        for incident in self.open_faults():
            event = incident.event
            bad = situation.bad(incident.group)
            if incident.keys is None:
                incident.keys = situation.crossing(incident.components, incident.group)
            claim = by_place.get((event.component_id, incident.group)) or by_place.get(
                (incident.place, incident.group)
            )
            kept = frozenset() if incident.group in HOST_GROUPS else incident.keys & bad
            incident.keys = kept | (claim.keys if claim else frozenset())
            incident.replies = incident.replies & bad | (claim.replies if claim else frozenset())
            incident.note(now_ns)
            if claim or incident.keys:
                incident.quiet_ns = None
            elif incident.quiet_ns is None:
                incident.quiet_ns = now_ns
        for name, incident in list(self._incidents.items()):
            keep_ns = max(REMEMBER_NS, self._damping_ns(incident, at_place=True))
            if not incident.open and now_ns - incident.changed_ns > keep_ns:
                del self._incidents[name]

    def step(self, claims: Sequence[Claim], situation: Situation, now_ns: int) -> list[FaultEvent]:
        """Match claims with faults; return the transitions, in a fixed order."""
        for incident in self._incidents.values():
            # The topology may be known since the last step only, after a restart.
            incident.place = self._crossed_as(incident.event.component_id)
        claims = [self._as_flap(claim) for claim in claims]
        changed: list[Incident] = []
        matched: set[str] = set()
        fresh: list[Claim] = []
        for claim in sorted(claims, key=lambda c: (c.group, c.component_id)):
            known = self._known(claim)
            if known is None:
                fresh.append(claim)
            else:
                matched.add(known.event.fault_id)
                changed += self._update(known, claim, now_ns)
        for claim in fresh:
            young = (
                self._replaced(claim, matched)
                or self._went_down(claim, matched)
                or self._young(claim, matched, situation.replyless, now_ns)
            )
            if young is not None:
                matched.add(young.event.fault_id)
                changed += self._take_over(young, claim, now_ns)
            elif claim.ready and self._is_new(claim, situation.echoes, now_ns):
                changed += self._open(claim, matched, now_ns)
        for incident in changed:
            incident.event = replace(incident.event, unexplained_paths=situation.unexplained)
        self.observe(claims, situation, now_ns)
        changed += self._end(situation, now_ns)
        return [incident.event for incident in changed]

    def _end(self, situation: Situation, now_ns: int) -> list[Incident]:
        """Resolve what is over, and keep open what a state says is still there.

        Routes lead around a port that is down after some seconds, so that probes are well again;
        its reader may come a minute later.
        """
        ended = [
            i
            for i in self.open_faults()
            if i.quiet_ns is not None and now_ns - i.quiet_ns >= self._resolve_ns(i)
        ]
        changed = []
        for incident in self.resolved_faults():
            if incident.open:
                if situation.standing(incident) is None:
                    resolve(incident, now_ns)
                    changed.append(incident)
            else:
                ended.append(incident)
        for incident in ended:
            claim = situation.standing(incident)
            if claim is not None and (incident.open or not self._is_taken(incident)):
                stand(incident, claim, now_ns)
            elif incident.open:
                resolve(incident, now_ns)
            else:
                continue
            changed.append(incident)
        return changed

    def _is_taken(self, incident: Incident) -> bool:
        """Return whether another fault is open where a resolved one was."""
        return any(
            i.open and i is not incident and not i.components.isdisjoint(incident.components)
            for i in self._incidents.values()
        )

    def _as_flap(self, claim: Claim) -> Claim:
        """Return a claim as one of the open fault of which it is a flap, if there is one."""
        for incident in self.open_faults():
            if incident.event.decided and _is_flap(incident, claim):
                return _at_place_of(incident.event, claim)
        return claim

    def _known(self, claim: Claim) -> Incident | None:
        """Return the open fault of the same place, preferably of the same group and component.

        What a state names, another component of those that probes cannot tell apart, is no other
        fault than the one that they have found there.
        """
        place = self._crossed_as(claim.cause or claim.component_id)
        same = [
            i
            for i in self.open_faults()
            if (i.event.component_id == claim.component_id or i.place == place)
            and (i.group == claim.group or SELF_GROUPS.isdisjoint((i.group, claim.group)))
        ]
        return min(
            same,
            key=lambda i: (
                i.group != claim.group,
                i.event.component_id != claim.component_id,
                i.opened_ns,
            ),
            default=None,
        )

    def _replaced(self, claim: Claim, matched: set[str]) -> Incident | None:
        """Return the open fault of an agent, silent or of the claim's group, that it explains."""
        return next(
            (
                i
                for i in self.open_faults()
                if i.group in (AGENT, claim.group)
                and i.event.component_id in claim.replaces
                and i.event.fault_id not in matched
            ),
            None,
        )

    def _went_down(self, claim: Claim, matched: set[str]) -> Incident | None:
        """Return the open fault of the network that was the first sign of what is down."""
        return next(
            (
                i
                for i in self.open_faults()
                if i.event.fault_id not in matched and _is_outage_of(i, claim)
            ),
            None,
        )

    def _young(
        self, claim: Claim, matched: set[str], replyless: frozenset[FlowId], now_ns: int
    ) -> Incident | None:
        """Return the open fault for which the claim is only a better answer.

        Where replies come back another way, a fault shows first on 5-tuples that only lose replies;
        they do not cross its component, but may cross it on their way back, or a neighbour of it.
        """
        faults = self.open_faults()
        owners = [incident for incident in faults if _has_most_of(incident, claim)]
        for incident in faults:
            young = now_ns - incident.opened_ns <= self._config.refine_ns
            apart = not HOST_GROUPS.isdisjoint((claim.group, incident.group)) or (
                (claim.group == LATENCY) != (incident.group == LATENCY)
            )
            if incident.event.fault_id in matched or apart:
                continue
            # A switch that discards packets accounts for the leak of its cable that has been told
            # already. That it may lose the replies of yet another leak says nothing then.
            own = all(owner is incident for owner in owners)
            if own and _may_be_of(incident, claim):
                return incident
            if not incident.keys:
                continue
            # An undecided fault stays open to a better answer, of what began with it.
            if not young and (incident.event.decided or _began_later(incident, claim)):
                continue
            near = incident.event.component_id in claim.near
            # What a leaf may lose of replies, the cable of an RNIC there may lose as well, and to
            # the only one of an RNIC the search counts none.
            explained = claim.keys
            if own:
                explained |= replyless if near else claim.replies if young else frozenset()
            if len(explained & incident.keys) >= OVERLAP * len(incident.keys):
                return incident
        return None

    def _is_new(self, claim: Claim, echoes: frozenset[FlowId], now_ns: int) -> bool:
        """Return whether enough of a claim's 5-tuples belong to no open fault."""
        if claim.group in HOST_GROUPS:
            return True
        if any(
            self._shadows(incident, claim) or _is_rest_of(incident, claim)
            for incident in self.open_faults()
        ):
            return False
        few = len(claim.keys) < self._config.min_flows
        if any(self._is_rest_of_leak(i, claim, now_ns) for i in self.resolved_faults()):
            return False
        over = [i for i in self.resolved_faults() if few or self._may_outlast(i, claim, now_ns)]
        over += [i for i in self.open_faults() if i.group in HOST_GROUPS and i.quiet_ns is not None]
        if any(self._left_over(incident, claim) for incident in over):
            return False
        owned = echoes.union(*(i.keys or () for i in self.open_faults()))
        fresh = len(claim.keys - owned)
        # With a state out of order one 5-tuple is enough.
        least = 1 if claim.kind.name in SPECIFIC else self._config.min_flows
        return fresh == len(claim.keys) or fresh >= max(least, FRESH * len(claim.keys))

    @staticmethod
    def _shadows(incident: Incident, claim: Claim) -> bool:
        """Return whether a claim is of replies that an open fault of an adjacent component loses.

        Replies may take another way than probes. Those lost at the same fault share no component
        with it except adjacent ones, and begin with it.
        """
        return (
            incident.group == claim.group
            and incident.event.component_id in claim.near
            and _began_together(incident, claim)
        )

    def _may_outlast(self, incident: Incident, claim: Claim, now_ns: int) -> bool:
        """Return whether latency of a fault that is over may still be reported, in part.

        Windows tell it until they close. An agent that restarts in one takes back what was told of
        its endpoints, which resolves the fault, and what is repeated then looks new.
        """
        return (
            incident.group == claim.group == LATENCY
            and not _is_same(incident, claim)
            and now_ns - incident.over_ns < self._config.aftermath_ns
        )

    def _is_rest_of_leak(self, incident: Incident, claim: Claim, now_ns: int) -> bool:
        """Return whether a claim is of the replies that a leak lost before it was over.

        Lost probes count for a minute. Those of 5-tuples that lost replies alone show longest,
        since few replies came through it; they cross other components.
        """
        return (
            incident.group == claim.group
            and not _is_same(incident, claim)
            and {incident.event.fault_kind, claim.kind.name} <= PARTIAL - SPECIFIC
            and claim.onset_ns <= incident.over_ns
            and now_ns - incident.over_ns < self._config.aftermath_ns
            and claim.keys <= incident.replies.union(incident.first or ())
        )

    @staticmethod
    def _left_over(incident: Incident, claim: Claim) -> bool:
        """Return whether a claim is the remainder of a fault that is over, or an agent's that ends.

        A 5-tuple whose prober was away, or whose clock was wrong, is cleared late.
        """
        return claim.keys <= (incident.first or frozenset()) and claim.onset_ns <= incident.over_ns

    def _take_over(self, incident: Incident, claim: Claim, now_ns: int) -> list[Incident]:
        event = incident.event
        surer = claim.confidence >= event.confidence + CONFIDENCE_STEP
        better = claim.decided or (not event.decided and surer)
        if not (claim.ready and better) or now_ns - incident.changed_ns < ESSENTIAL_GAP_NS:
            return []
        follow(incident, Trigger.REFINED, claim, now_ns)
        return [incident]

    def _update(self, incident: Incident, claim: Claim, now_ns: int) -> list[Incident]:
        event = incident.event
        proven = (incident.group, claim.group) == (LOSS, OVERLAY)
        if claim.group != incident.group and not proven:
            return []  # late as well as lossy: one fault, and the graver kind names it
        if event.decided and not claim.decided:
            return []  # what was decided stays so until something better is
        claim = _at_height(event, claim)
        named = claim.kind.name == event.fault_kind and event.fault_kind in SPECIFIC
        surer = claim.decided and not event.decided
        if named and not surer and claim.component_id != event.component_id:
            # Where a state has told it to be it stays until another kind of state tells otherwise.
            claim = _at_place_of(event, claim)
        since_ns = now_ns - incident.changed_ns
        if (claim.decided, claim.kind.name) != (event.decided, event.fault_kind):
            if not claim.ready or since_ns < ESSENTIAL_GAP_NS:
                return []
            follow(incident, Trigger.REFINED, claim, now_ns)
            return [incident]
        # A fault that clears shows less and less: what its height has shown stays.
        moved = claim.bad >= GROWTH * max(1, event.bad_paths) or (
            claim.bad >= event.bad_paths and claim.confidence >= event.confidence + CONFIDENCE_STEP
        )
        # How many probes of a silent agent's endpoints fail just now is no news.
        if not moved or since_ns < self._config.update_gap_ns or incident.group in HOST_GROUPS:
            return []
        follow(incident, Trigger.CHANGED, claim, now_ns)
        return [incident]

    def _open(self, claim: Claim, matched: set[str], now_ns: int) -> list[Incident]:
        for incident in self.resolved_faults():
            at_place = _is_at_place_of(incident, claim)
            within_ns = self._damping_ns(incident, at_place=at_place)
            # What stands elsewhere is no more the same fault than what was resolved then.
            since_ns = incident.over_ns if incident.stands else incident.changed_ns
            back = (incident.stands and at_place) or now_ns - since_ns <= within_ns
            if back and (
                _is_same(incident, claim)
                or _is_outage_of(incident, claim)
                or _are_evictions_again(incident, claim)
            ):
                matched.add(incident.event.fault_id)
                known = incident.event
                if known.decided and (
                    not claim.decided
                    or _is_flap(incident, claim)
                    or claim.component_id == incident.place != known.component_id
                ):
                    claim = _at_place_of(known, claim)
                if claim.component_id == known.component_id:
                    claim = replace(claim, kind=_kind(known, claim))
                flaps = self._flaps(incident, now_ns)
                follow(incident, Trigger.RETURNED, claim, now_ns)
                incident.come_back(now_ns, flaps=flaps)
                return [incident]
        if len(self._incidents) >= MAX_INCIDENTS:
            self.refused += 1
            return []
        heir = self._heir(claim)
        if heir is not None:
            follow(heir, Trigger.REFINED, claim, now_ns)
        incident = heir or opened(self._config.cluster, claim, now_ns)
        self._incidents[incident.event.fault_id] = incident
        matched.add(incident.event.fault_id)
        return [incident]

    def _damping_ns(self, incident: Incident, *, at_place: bool) -> int:
        """Return within what time a resolved fault that shows again is the same fault.

        Parameters
        ----------
        at_place
            Whether it shows at one of its places; else among the candidates of what is undecided.
        """
        kind, flap_ns = incident.event.fault_kind, self._config.flap_ns
        if (
            kind in COMES_AND_GOES
            or incident.flapped >= FLAPPING_RETURNS
            or (at_place and self._ended_by_itself(incident))
        ):
            return flap_ns * FLAPPING_FACTOR
        return max(flap_ns, LONGEST_NS) if kind in PARTIAL else flap_ns

    def _ended_by_itself(self, incident: Incident) -> bool:
        """Return whether it was there for so short a time that nobody repaired it.

        A port cut something off, or packets were delayed for less than a minute.
        """
        lasted_ns = incident.over_ns - self._resolve_ns(incident) - incident.began_ns
        if incident.group == LATENCY:
            return lasted_ns <= BRIEF_DELAY_NS
        return (
            incident.group == LOSS
            and incident.event.fault_kind not in PARTIAL
            and incident.event.component_kind in PORT_KINDS
            and lasted_ns <= SPREAD_NS
        )

    def _flaps(self, incident: Incident, now_ns: int) -> bool:
        """Return whether a resolved fault that shows again now does what a flapping port does.

        A share of the packets is lost again as soon as there is traffic for it, or luck.
        """
        soon = now_ns - incident.over_ns <= self._config.flap_ns
        return soon or incident.event.fault_kind not in PARTIAL

    def _resolve_ns(self, incident: Incident) -> int:
        """Return how long a fault must be quiet; doubles each time it comes back."""
        longest = max(self._config.resolve_ns, self._config.flap_resolve_max_ns)
        return min(longest, self._config.resolve_ns << min(incident.event.flaps, 20))


def _is_same(incident: Incident, claim: Claim) -> bool:
    """Return whether a claim is of the place of a resolved fault.

    A fault that was undecided may return with a better answer, and a decided one with a worse.
    """
    if incident.group != claim.group:
        return False
    if _is_at_place_of(incident, claim):
        return True
    place = incident.event.component_id
    return not claim.decided and any(candidate == place for candidate, _ in claim.candidates)


def _are_evictions_again(incident: Incident, claim: Claim) -> bool:
    """Return whether an undecided delay is that of entries which are evicted again.

    Probes tell them first; the state that names the virtual switch is read later. Until then the
    claim names another place that was likely the first time, and 5-tuples that were late then.
    """
    event = incident.event
    first = incident.first or frozenset()
    return (
        event.fault_kind == EVICTIONS
        and incident.group == claim.group
        and not claim.decided
        and claim.kind.name not in SPECIFIC
        and any(
            candidate.component_id == claim.component_id and candidate.score >= LIKELY
            for candidate in event.candidates
        )
        and 2 * len(claim.keys & first) >= min(len(claim.keys), len(first))
    )


def _is_at_place_of(incident: Incident, claim: Claim) -> bool:
    """Return whether a claim names a place of a fault, or the other end of a port that flaps."""
    return claim.component_id in incident.components or _is_flap(incident, claim)


def _is_outage_of(incident: Incident, claim: Claim) -> bool:
    """Return whether a fault of the network was a host or a container that went down.

    What is down is known some heartbeats after the losses. Of these most are of its endpoints, and
    they began with the silence of its agents.
    """
    first = incident.first or incident.keys or frozenset()
    return (
        incident.group == LOSS
        and claim.group == AGENT
        and claim.kind.severity == "critical"
        and abs(us_to_ns(incident.event.onset_at) - claim.onset_ns) <= SPREAD_NS
        and bool(first)
        and len(claim.keys & first) >= OVERLAP * len(first)
    )


def _began_together(incident: Incident, claim: Claim) -> bool:
    return abs(us_to_ns(incident.event.onset_at) - claim.onset_ns) <= TOGETHER_NS


def _is_rest_of(incident: Incident, claim: Claim) -> bool:
    """Return whether a claim is what is left of a delay that ends.

    Windows of agents end one after another. The last 5-tuples that are late may be those whose
    replies were, which cross other components. There are fewer of them, they are late since the
    fault began, and the claim is undecided between other places and where the fault is.
    """
    return (
        incident.group == claim.group == LATENCY
        and not claim.decided
        and len(claim.keys) < len(incident.first or ())
        and _began_together(incident, claim)
        and not incident.components.isdisjoint(name for name, _ in claim.candidates)
    )


def _may_be_of(incident: Incident, claim: Claim) -> bool:
    """Return whether a leak is at one of the places where an undecided one may be.

    Few losses of a leak are on the same 5-tuples as those before them.
    """
    event = incident.event
    return (
        not event.decided
        and incident.group == claim.group
        and {event.fault_kind, claim.kind.name} <= PARTIAL
        and claim.component_id in incident.components
    )


def _has_most_of(incident: Incident, claim: Claim) -> bool:
    """Return whether most of a claim's 5-tuples are those of a fault already."""
    shared = claim.keys & (incident.keys or frozenset())
    return incident.group == claim.group and len(shared) > OVERLAP * len(claim.keys)


def _began_later(incident: Incident, claim: Claim) -> bool:
    """Return whether all that a claim accounts for became bad long after a fault had begun.

    While a fault clears, what is left of it may be what a later fault hits as well. Partial loss
    and latency show on one 5-tuple after another, so that nothing follows from their times.
    """
    event = incident.event
    return (
        incident.group == LOSS
        and event.fault_kind not in PARTIAL
        and claim.onset_ns > us_to_ns(event.onset_at) + SPREAD_NS
    )


def _is_flap(incident: Incident, claim: Claim) -> bool:
    """Return whether a claim is a flap of a port that is known to flap.

    The seconds of one flap may not tell an RNIC from its cable.
    """
    event = incident.event
    return (
        event.fault_kind == FLAPPING
        and incident.group == claim.group
        and claim.component_kind in PORT_KINDS
        and event.component_kind in PORT_KINDS
        and event.component_id in claim.near
    )


def _at_place_of(event: FaultEvent, claim: Claim) -> Claim:
    """Return a claim at the place that a fault has been told to be at."""
    return replace(
        claim,
        component_id=event.component_id,
        component_kind=ComponentKind(event.component_kind),
        layer=event.layer,
        decided=event.decided,
        confidence=event.confidence,
        candidates=tuple((c.component_id, c.score) for c in event.candidates),
    )


def _at_height(event: FaultEvent, claim: Claim) -> Claim:
    """Return a claim about a continuing fault with what the fault's largest extent has shown.

    A fault that is ending shows less and less: fewer 5-tuples are bad, fewer witnesses tell its
    component from others, and its state is in order again.
    """
    claim = replace(claim, kind=_kind(event, claim))
    if claim.bad >= event.bad_paths or claim.confidence >= event.confidence:
        return claim
    return replace(
        claim,
        confidence=event.confidence,
        candidates=tuple((c.component_id, c.score) for c in event.candidates),
        bad=event.bad_paths,
        good=event.good_paths,
    )


def _kind(event: FaultEvent, claim: Claim) -> FaultKind:
    """Return the kind of a continuing fault: the most specific one, and of the largest extent.

    What a state has named, another state replaces only if it explains the first one's, too, or if
    as much is wrong as ever.
    """
    known = KINDS.get(event.fault_kind)
    if known is None or known.name == claim.kind.name or known.name in claim.kind.explains:
        return claim.kind
    specific = claim.kind.name in SPECIFIC
    if known.name not in SPECIFIC:
        return claim.kind if specific or claim.bad >= event.bad_paths else known
    return claim.kind if specific and claim.bad >= event.bad_paths else known
