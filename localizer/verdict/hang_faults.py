"""The join: which fault a hang of a training job is, and which jobs a fault stops.

A hang whose cause is the network is the network's fault, which then names the ranks that it stops;
nobody is paged twice. A hang whose cause is the job opens one fault of the layer JOB. One that the
network seems to have caused waits for the network's fault, but not for long: then it opens a fault
of its own, undecided between what its ends have, and the network's fault takes that one over when
it comes. Whichever comes first, the same faults are open in the end.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from localizer.config import CoreConfig
from localizer.facts.inputs import Sources
from localizer.verdict.catalogue import AGENT, HANG_GROUPS, KINDS, STUCK, FaultKind
from localizer.verdict.claims import MAX_EVIDENCE, MAX_TASKS, STOPS, Claim, make_claim
from localizer.verdict.incident import Incident, Trigger, follow, opened, resolve
from schemas.enums import Certainty, ComponentKind, FaultLifecycle, HangClass
from schemas.ids import FlowId, rank_id, rank_key
from schemas.records import Component, FaultEvent, Hang
from schemas.units import SECOND_NS, ns_to_us, us_to_ns

# How long a hang waits for the network's fault: probes show a cut in two seconds, and loss or
# latency in five at the earliest.
WAIT_NS: Final = 5 * SECOND_NS
# A connection that was cut goes on when its sender tries again: TCP's timer grows to two minutes.
# A fault of the network accounts for a hang for so long after its end.
RECOVERY_NS: Final = 120 * SECOND_NS
MAX_RANKS: Final = 4_096
MAX_RELATED: Final = 64
# What people call sure, likely and undecided; nothing here is measured well enough for a figure.
CONFIDENCE: Final = {
    Certainty.SURE: 0.95,
    Certainty.LIKELY: 0.7,
}
UNDECIDED_CONFIDENCE: Final = 0.3
KIND_OF: Final = {
    HangClass.NETWORK: "transfer_stuck",
    HangClass.PROCESS_STOPPED: "rank_stopped",
    HangClass.GPU_STOPPED: "gpu_stopped",
    HangClass.NEVER_LAUNCHED: "rank_never_launched",
    HangClass.DESYNCHRONISED: "rank_desynchronised",
    HangClass.RANK_MISSING: "rank_missing",
    HangClass.SLOW_COMPUTE: "rank_slow",
    HangClass.SLOW_SENDER: "rank_slow",
    HangClass.SLOW_RECEIVER: "rank_slow",
}
# Classes that a fault of the network may have caused, and those that a host that is down may have.
BY_NETWORK: Final = frozenset(
    {
        HangClass.NETWORK,
        HangClass.UNDECIDED,
        HangClass.UNKNOWN,
        HangClass.SLOW_SENDER,
        HangClass.SLOW_RECEIVER,
    }
)
BY_OUTAGE: Final = BY_NETWORK | {HangClass.RANK_MISSING}
OUTAGES: Final = frozenset({"host_down", "container_crash"})


@dataclass(frozen=True, slots=True)
class Reach:
    """What a hang is about: endpoints, pairs whose bytes are stuck, and what carries them."""

    endpoints: frozenset[str]
    pairs: frozenset[frozenset[str]]
    parts: frozenset[str]

    def meets(self, components: Iterable[str], keys: Iterable[FlowId]) -> bool:
        """Return whether a fault of some components, with some bad 5-tuples, is on its way."""
        if not self.parts.isdisjoint(components):
            return True
        if self.pairs:
            return any(frozenset(key[:2]) in self.pairs for key in keys)
        return any(key[0] in self.endpoints and key[1] in self.endpoints for key in keys)


class HangFaults:
    """Faults that hangs opened, and the ranks that faults of the network stop."""

    def __init__(self, config: CoreConfig, sources: Sources) -> None:
        self._config = config
        self._sources = sources
        # By job: its latest fault that no fault of the network has taken over.
        self._own: dict[str, Incident] = {}
        # By hang: what was last told of it, the version of the topology, and what it reaches there.
        self._reaches: dict[str, tuple[Hang, int, Reach]] = {}

    @property
    def idle(self) -> bool:
        """Whether the passing of time changes nothing."""
        return not self._sources.hangs.open_hangs() and not any(i.open for i in self._own.values())

    def open_faults(self) -> list[Incident]:
        """Return the open faults of its own, by job."""
        return [i for _, i in sorted(self._own.items()) if i.open]

    def force(self, event: FaultEvent) -> bool:
        """Apply a published transition; say whether it is one of a fault of a hang's own."""
        kind = KINDS.get(event.fault_kind)
        if kind is None or kind.group not in HANG_GROUPS or not event.tasks:
            self._own = {t: i for t, i in self._own.items() if i.event.fault_id != event.fault_id}
            return False
        self._own[event.tasks[0]] = Incident.restored(event)
        return True

    def release(self, claim: Claim) -> Incident | None:
        """Give away the open undecided fault that a claim of the network explains."""
        for hang, _ in self._sources.hangs.open_hangs():
            own = self._own.get(hang.task_id)
            if own is None or not own.open or own.group != STUCK:
                continue
            if _may_cause(hang, claim.group, claim.kind) and self._reach(hang).meets(
                (claim.component_id,), claim.keys
            ):
                del self._own[hang.task_id]
                return own
        return None

    def step(
        self,
        events: list[FaultEvent],
        open_faults: Iterable[Incident],
        resolved_faults: Iterable[Incident],
        now_ns: int,
    ) -> list[FaultEvent]:
        """Join hangs and faults at a grid point; return the transitions, those of both.

        Parameters
        ----------
        events
            Transitions of faults of the network at this grid point.
        open_faults, resolved_faults
            Faults of the network after them.
        """
        faults, over = list(open_faults), list(resolved_faults)
        hangs = self._sources.hangs.open_hangs()
        found: list[FaultEvent] = []
        for hang, since_ns in hangs:
            reach = self._reach(hang)
            fault = _first(faults, hang, reach)
            for other in faults:
                if other is not fault:
                    events, told = _without_ranks(events, other, hang.task_id, now_ns)
                    found += told
            own = self._own.get(hang.task_id)
            if fault is not None:
                events, told = _with_ranks(events, fault, hang, now_ns)
                found += told
                if own is not None and own.open:
                    found.append(self._end(own, fault.event.fault_id, now_ns))
                continue
            accounted = any(
                (now_ns - i.over_ns <= RECOVERY_NS or _still_stops(i, hang))
                and _concerns(i, hang, reach)
                for i in over
            )
            waits = hang.hang_class in BY_NETWORK and now_ns - since_ns < WAIT_NS
            if (waits or accounted) and (own is None or not own.open):
                continue
            found += self._tell(hang, reach, own, faults, now_ns)
        hanging = {hang.task_id for hang, _ in hangs}
        for task_id, own in sorted(self._own.items()):
            if own.open and task_id not in hanging:
                resolve(own, now_ns)
                found.append(own.event)
        self._forget(now_ns)
        return [*events, *found]

    def _end(self, own: Incident, other: str, now_ns: int) -> FaultEvent:
        resolve(own, now_ns)
        own.event = replace(
            own.event,
            summary=f"the same as {other}",
            related_fault_ids=(other,),
        )
        return own.event

    def _tell(
        self, hang: Hang, reach: Reach, own: Incident | None, faults: list[Incident], now_ns: int
    ) -> list[FaultEvent]:
        """Open the fault of a hang, or bring it up to date."""
        claim = self._claim(hang)
        related = tuple(
            sorted(i.event.fault_id for i in faults if reach.meets(i.components, i.keys or ()))
        )[:MAX_RELATED]
        ranks = _ranks(hang)
        if own is None or not self._is_same(own, claim, now_ns):
            own = self._own[hang.task_id] = opened(self._config.cluster, claim, now_ns)
        elif not own.open:
            follow(own, Trigger.RETURNED, claim, now_ns)
        else:
            event = own.event
            before = (event.fault_kind, event.component_id, event.decided, event.ranks)
            after = (claim.kind.name, claim.component_id, claim.decided, ranks)
            if before == after and event.related_fault_ids == related:
                return []
            follow(own, Trigger.REFINED, claim, now_ns)
        own.event = replace(own.event, ranks=ranks, related_fault_ids=related)
        return [own.event]

    def _is_same(self, own: Incident, claim: Claim, now_ns: int) -> bool:
        """Return whether a fault of the job goes on, or comes back where it was."""
        if own.open:
            return True
        soon = now_ns - own.changed_ns <= self._config.flap_ns
        return soon and own.event.component_id == claim.component_id

    def _claim(self, hang: Hang) -> Claim:
        name = KIND_OF.get(hang.hang_class, "collective_stuck")
        kind = KINDS[name]
        decided = hang.certainty in CONFIDENCE and kind.group != STUCK
        confidence = CONFIDENCE.get(hang.certainty, UNDECIDED_CONFIDENCE)
        parts = self._parts(hang) if name == "transfer_stuck" else []
        if parts:
            component, component_kind = parts[0], None
        else:
            blamed = hang.ranks or hang.waiting_ranks
            parts = [rank_id(hang.task_id, rank) for rank in blamed] or [hang.task_id]
            component, component_kind = parts[0], ComponentKind.RANK
        share = confidence / len(parts)
        return replace(
            make_claim(
                self._sources,
                kind,
                component,
                component_kind=component_kind,
                decided=decided,
                confidence=confidence if decided else share,
                candidates=[(part, share) for part in parts[:MAX_RELATED]],
                keys=frozenset(),
                good=0,
                onset_ns=us_to_ns(hang.onset_at),
                evidence=(*hang.evidence, *(f"next: {step}" for step in hang.next_steps)),
                ready=True,
                tasks=frozenset({hang.task_id}),
            ),
            headline=hang.summary,
        )

    def _parts(self, hang: Hang) -> list[str]:
        """Return what the network's candidates are: RNICs of the endpoints, and their cables.

        First those of the ranks that are blamed, then those where most of what is stuck ends.
        """
        topology = self._sources.topology
        ends = Counter(
            end
            for flow in hang.stuck_flows
            for end in (flow.src_endpoint_id, flow.dst_endpoint_id)
            if end is not None
        )
        blamed = {
            end
            for flow in hang.stuck_flows
            for end, rank in (
                (flow.src_endpoint_id, flow.src_rank), (flow.dst_endpoint_id, flow.dst_rank)
            )
            if rank in hang.ranks
        }  # fmt: skip
        ordered = sorted(hang.endpoint_ids, key=lambda e: (e not in blamed, -ends[e]))
        held = (topology.holders(endpoint).rnic for endpoint in ordered)
        # Of ten thousand endpoints, each once, in order.
        rnics = list(dict.fromkeys(rnic for rnic in held if rnic is not None))
        return [*rnics, *(link for rnic in rnics for link in topology.links_at(rnic))]

    def _reach(self, hang: Hang) -> Reach:
        """Return what a hang is about: made anew when the hang or the topology changes."""
        version = self._sources.topology.version
        known = self._reaches.get(hang.hang_id)
        if known is None or known[0] is not hang or known[1] != version:
            known = self._reaches[hang.hang_id] = hang, version, self._made_reach(hang)
        return known[2]

    def _made_reach(self, hang: Hang) -> Reach:
        topology = self._sources.topology
        parts = set(self._parts(hang))
        for endpoint in hang.endpoint_ids:
            parts |= {endpoint, *topology.holders(endpoint).parts}
            if (host := topology.host_of(endpoint)) is not None:
                parts.add(host)
        pairs = {
            frozenset((f.src_endpoint_id, f.dst_endpoint_id))
            for f in hang.stuck_flows
            if f.src_endpoint_id is not None and f.dst_endpoint_id is not None
        }
        ways = pairs or {frozenset(hang.endpoint_ids)}
        parts |= self._above({leaves for way in ways if (leaves := self._leaves(way))})
        return Reach(frozenset(hang.endpoint_ids), frozenset(pairs), frozenset(parts))

    def _leaves(self, endpoints: Iterable[str]) -> frozenset[str]:
        """Return the switches that the RNICs of some endpoints stand at."""
        topology = self._sources.topology
        rnics = {topology.holders(endpoint).rnic for endpoint in endpoints} - {None}
        return frozenset(
            other
            for rnic in rnics
            for other in topology.neighbours(rnic or "")
            if topology.kind(other) is ComponentKind.SWITCH
        )

    def _above(self, ways: Iterable[frozenset[str]]) -> set[str]:
        """Return what may carry bytes between some leaves: them, and what is above if they differ.

        Agents probe other pairs than those that a job uses, and which of the equal ways a job's
        bytes take nobody knows.
        """
        topology = self._sources.topology
        found = {leaf for leaves in ways for leaf in leaves}
        waiting = [leaf for leaf in found if any(leaf in w and len(w) > 1 for w in ways)]
        climbed = set(waiting)
        while waiting:
            low = waiting.pop()
            tier = _tier(topology.get(low))
            for high in topology.neighbours(low):
                above = _tier(topology.get(high))
                if tier is None or above is None or above <= tier:
                    continue
                link = topology.link_between(low, high)
                found |= {high} if link is None else {high, link}
                if high not in climbed:
                    climbed.add(high)
                    waiting.append(high)
        return found

    def _forget(self, now_ns: int) -> None:
        if len(self._reaches) > len(self._sources.hangs):
            still = {hang.hang_id for hang, _ in self._sources.hangs.open_hangs()}
            self._reaches = {name: r for name, r in self._reaches.items() if name in still}
        for task_id, own in list(self._own.items()):
            if not own.open and now_ns - own.changed_ns > self._config.flap_ns:
                del self._own[task_id]


def _tier(component: Component | None) -> int | None:
    return None if component is None else component.tier


def _still_stops(incident: Incident, hang: Hang) -> bool:
    """Return whether a fault that only a state shows stopped the job before routes went around."""
    event = incident.event
    return (
        incident.stands
        and us_to_ns(hang.onset_at) <= incident.over_ns
        and any(rank_key(rank)[0] == hang.task_id for rank in event.ranks)
    )


def _ranks(hang: Hang) -> tuple[str, ...]:
    """Return the ranks that a hang stops, culprits among them."""
    every = sorted({*hang.ranks, *hang.waiting_ranks})
    return tuple(rank_id(hang.task_id, rank) for rank in every[:MAX_RANKS])


def _may_cause(hang: Hang, group: str, kind: FaultKind) -> bool:
    """Return whether a fault of a group and kind can be what a hang of its class comes from."""
    if group == AGENT or kind.name in OUTAGES:
        return kind.name in OUTAGES and hang.hang_class in BY_OUTAGE
    return group not in HANG_GROUPS and hang.hang_class in BY_NETWORK


def _concerns(incident: Incident, hang: Hang, reach: Reach) -> bool:
    kind = KINDS.get(incident.event.fault_kind)
    if kind is None or not _may_cause(hang, incident.group, kind):
        return False
    keys = (incident.keys or frozenset()) | (incident.first or frozenset())
    return reach.meets(incident.components, keys)


def _first(faults: Iterable[Incident], hang: Hang, reach: Reach) -> Incident | None:
    """Return the open fault of the network that a hang comes from: a decided one, then by id.

    What a fault came first of does not matter, so that the order of arrival does not.
    """
    concerned = [i for i in faults if _concerns(i, hang, reach)]
    return min(concerned, key=lambda i: (not i.event.decided, i.event.component_id), default=None)


def _with_ranks(
    events: list[FaultEvent], fault: Incident, hang: Hang, now_ns: int
) -> tuple[list[FaultEvent], list[FaultEvent]]:
    """Let a fault name the job and the ranks that it stops.

    Returns
    -------
    events
        The transitions of this grid point, that of the fault with them.
    told
        The transition that says it, where the fault had none.
    """
    event = fault.event
    ranks = tuple(sorted({*event.ranks, *_ranks(hang)}, key=rank_key))[:MAX_RANKS]
    tasks = tuple(sorted({*event.tasks, hang.task_id}))[:MAX_TASKS]
    if (ranks, tasks) == (event.ranks, event.tasks):
        return events, []
    line = f"{STOPS}{hang.task_id}: {hang.summary}"
    evidence = event.evidence
    if line not in evidence:
        # The first step stands last.
        evidence = (*evidence[: MAX_EVIDENCE - 2], line, *evidence[-1:])
    return _changed(
        events, fault, replace(event, ranks=ranks, tasks=tasks, evidence=evidence), now_ns
    )


def _without_ranks(
    events: list[FaultEvent], fault: Incident, task_id: str, now_ns: int
) -> tuple[list[FaultEvent], list[FaultEvent]]:
    """Let a fault no longer name the ranks of a job whose hang has another cause; as above."""
    event = fault.event
    ranks = tuple(rank for rank in event.ranks if rank_key(rank)[0] != task_id)
    if ranks == event.ranks:
        return events, []
    evidence = tuple(e for e in event.evidence if not e.startswith(f"{STOPS}{task_id}: "))
    return _changed(events, fault, replace(event, ranks=ranks, evidence=evidence), now_ns)


def _changed(
    events: list[FaultEvent], fault: Incident, more: FaultEvent, now_ns: int
) -> tuple[list[FaultEvent], list[FaultEvent]]:
    """Put what a fault says now in place of its transition of this grid point, or after it."""
    event = fault.event
    if any(e is event for e in events):
        fault.event = more
        return [more if e is event else e for e in events], []
    fault.event = replace(
        more, seq=event.seq + 1, state=FaultLifecycle.UPDATED, event_at=ns_to_us(now_ns)
    )
    return events, [fault.event]
