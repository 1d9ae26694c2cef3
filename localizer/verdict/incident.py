"""One fault from its opening to its resolution, and the table of its transitions."""

import hashlib
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from localizer.verdict.catalogue import GRADUAL, KINDS, LOSS
from localizer.verdict.claims import Claim
from schemas.enums import FaultLifecycle
from schemas.ids import FlowId
from schemas.records import Candidate, FaultEvent
from schemas.units import SECOND_NS, ns_to_us, us_to_ns
from schemas.version import VERSION

# Time in which a fault hits everything that it is going to hit: three rounds, a trace, and slack.
SPREAD_NS: Final = 10 * SECOND_NS


class Trigger(Enum):
    """What can happen to a fault."""

    OPENED = "evidence suffices"
    REFINED = "component, kind, severity or certainty changed"
    CHANGED = "the extent changed"
    RETURNED = "evidence came back within the damping time"
    STANDS = "probes show it no more, but a state says that it is still there"
    CLEARED = "no evidence for long enough"


# The life cycle of a fault; any transition not in this table is a programming error.
TRANSITIONS: Final[dict[tuple[FaultLifecycle | None, Trigger], FaultLifecycle]] = {
    (None, Trigger.OPENED): FaultLifecycle.OPEN,
    (FaultLifecycle.OPEN, Trigger.REFINED): FaultLifecycle.UPDATED,
    (FaultLifecycle.OPEN, Trigger.CHANGED): FaultLifecycle.UPDATED,
    (FaultLifecycle.OPEN, Trigger.CLEARED): FaultLifecycle.RESOLVED,
    (FaultLifecycle.UPDATED, Trigger.REFINED): FaultLifecycle.UPDATED,
    (FaultLifecycle.UPDATED, Trigger.CHANGED): FaultLifecycle.UPDATED,
    (FaultLifecycle.UPDATED, Trigger.CLEARED): FaultLifecycle.RESOLVED,
    (FaultLifecycle.RESOLVED, Trigger.RETURNED): FaultLifecycle.UPDATED,
    (FaultLifecycle.OPEN, Trigger.STANDS): FaultLifecycle.UPDATED,
    (FaultLifecycle.UPDATED, Trigger.STANDS): FaultLifecycle.UPDATED,
    (FaultLifecycle.RESOLVED, Trigger.STANDS): FaultLifecycle.UPDATED,
    # Of what stood only by a state.
    (FaultLifecycle.UPDATED, Trigger.RETURNED): FaultLifecycle.UPDATED,
}


def fault_id(cluster: str, component_id: str, group: str, *, onset_ns: int, opened_ns: int) -> str:
    """Return the id of a fault; equal inputs give the same id on every machine.

    The time of opening is part of it, since evidence that nobody clears can open a second fault
    with the onset of the first.

    >>> fault_id("lab", "spine:0", "loss", onset_ns=10**18, opened_ns=10**18 + 10**9)
    'f-2e02b90120121261'
    """
    times = (str(ns_to_us(onset_ns)), str(ns_to_us(opened_ns)))
    text = "\x00".join((cluster, component_id, group, *times))
    return "f-" + hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Incident:
    """A fault: its last published event, and what matters only until the next one.

    Attributes
    ----------
    keys
        Bad 5-tuples that belong to it; None: taken over from a former process, not known yet.
    first
        Those that belonged to it soon after it opened or came back; None: not known.
    replies
        5-tuples that are bad and do not cross it, but whose replies it may have lost.
    quiet_ns
        Since when there has been no evidence; None: there is evidence.
    back_ns
        When it last came back; None: it never did.
    flapped
        How often it came back as what flaps does.
    place
        What stands for its component on paths: of parallel cables one does for all.
    stood_ns
        Since when only a state shows it, or showed it until it was resolved; None: none did.
    """

    event: FaultEvent
    group: str
    keys: frozenset[FlowId] | None = None
    first: frozenset[FlowId] | None = None
    replies: frozenset[FlowId] = frozenset()
    quiet_ns: int | None = None
    back_ns: int | None = None
    flapped: int = 0
    place: str = ""
    stood_ns: int | None = None

    def __post_init__(self) -> None:
        """Its component stands for itself until something else is known."""
        self.place = self.place or self.event.component_id

    def note(self, now_ns: int) -> None:
        """Remember the 5-tuples that belong to it soon after it opened or came back."""
        if self.keys is not None and now_ns <= self.began_ns + SPREAD_NS:
            self.first = (self.first or frozenset()) | self.keys

    def come_back(self, now_ns: int, *, flaps: bool) -> None:
        """Start over: what it hit before says little about what it hits now."""
        self.back_ns, self.first, self.stood_ns = now_ns, None, None
        self.replies = frozenset()
        self.flapped += flaps

    def let_pass(self, key: FlowId, onset_ns: int) -> bool:
        """Return whether a 5-tuple that crosses it became bad long after the fault began.

        Not for what hits one 5-tuple after another.
        """
        return (
            self.first is not None
            and self.event.fault_kind not in GRADUAL
            and onset_ns > self.began_ns + SPREAD_NS
            and key not in self.first
        )

    @property
    def open(self) -> bool:
        """Whether it is not resolved."""
        return self.event.state is not FaultLifecycle.RESOLVED

    @property
    def stands(self) -> bool:
        """Whether only a state shows it: a fault that loses packets, but none now."""
        event = self.event
        lossless = event.state is FaultLifecycle.UPDATED and event.bad_paths == 0
        return lossless and self.group == LOSS

    @property
    def changed_ns(self) -> int:
        """When it was last published."""
        return us_to_ns(self.event.event_at)

    @property
    def over_ns(self) -> int:
        """When probes did not show it any more, of one that they do not show."""
        return self.changed_ns if self.stood_ns is None else self.stood_ns

    @property
    def opened_ns(self) -> int:
        """When it was opened."""
        return us_to_ns(self.event.opened_at)

    @property
    def began_ns(self) -> int:
        """When it was opened, or last came back."""
        return self.opened_ns if self.back_ns is None else self.back_ns

    @property
    def components(self) -> frozenset[str]:
        """Components that it blames: one, or all candidates while undecided; and its place."""
        event = self.event
        if event.decided:
            return frozenset((event.component_id, self.place))
        others = (c.component_id for c in event.candidates)
        return frozenset((event.component_id, self.place, *others))

    @classmethod
    def restored(cls, event: FaultEvent) -> "Incident":
        """Return the incident whose last published event this is."""
        kind = KINDS.get(event.fault_kind)
        return cls(event, kind.group if kind else "unknown", flapped=event.flaps)


def opened(cluster: str, claim: Claim, now_ns: int) -> Incident:
    """Return a new fault."""
    state = TRANSITIONS[None, Trigger.OPENED]
    blank = FaultEvent(
        cluster=cluster,
        fault_id=fault_id(
            cluster, claim.component_id, claim.group, onset_ns=claim.onset_ns, opened_ns=now_ns
        ),
        seq=0,
        state=state,
        event_at=ns_to_us(now_ns),
        onset_at=ns_to_us(claim.onset_ns),
        opened_at=ns_to_us(now_ns),
        layer=claim.layer,
        component_kind=claim.component_kind.value,
        component_id=claim.component_id,
        decided=claim.decided,
        fault_kind=claim.kind.name,
        severity=claim.kind.severity,
        confidence=claim.confidence,
        summary="",
        bad_paths=0,
        good_paths=0,
        unexplained_paths=0,
        flaps=0,
        producer_version=VERSION,
        tasks=(),
        candidates=(),
        evidence=(),
    )
    return Incident(_with_claim(blank, claim, state, now_ns), claim.group, claim.keys)


def follow(incident: Incident, trigger: Trigger, claim: Claim, now_ns: int) -> FaultEvent:
    """Apply a claim to a fault; return and remember the event.

    Raises
    ------
    ValueError
        If the fault's state has no such transition.
    """
    event = _with_claim(incident.event, claim, _next(incident, trigger), now_ns)
    if trigger is Trigger.RETURNED:
        event = replace(event, flaps=event.flaps + 1, resolved_at=None)
    incident.event = event
    incident.group = claim.group
    incident.keys = claim.keys | (incident.keys or frozenset())
    incident.quiet_ns = None
    return event


def stand(incident: Incident, claim: Claim, now_ns: int) -> FaultEvent:
    """Keep a fault open by what a state claims; return and remember the event; raises as `follow`.

    What it lost it loses no more: there is no 5-tuple left in the claim.
    """
    event = _with_claim(incident.event, claim, _next(incident, Trigger.STANDS), now_ns)
    incident.event = replace(event, resolved_at=None)
    incident.stood_ns = now_ns
    return incident.event


def resolve(incident: Incident, now_ns: int) -> FaultEvent:
    """Resolve a fault; return and remember the event; raises ValueError as `follow`."""
    event = incident.event
    state = _next(incident, Trigger.CLEARED)
    incident.event = replace(
        event,
        state=state,
        seq=event.seq + 1,
        event_at=ns_to_us(now_ns),
        resolved_at=ns_to_us(now_ns),
        summary=f"resolved: {event.component_id}: no evidence any more",
        bad_paths=0,
        good_paths=event.good_paths + event.bad_paths,
        unexplained_paths=0,
    )
    return incident.event


def _next(incident: Incident, trigger: Trigger) -> FaultLifecycle:
    try:
        return TRANSITIONS[incident.event.state, trigger]
    except KeyError:
        raise ValueError(
            f"fault {incident.event.fault_id} is {incident.event.state}: {trigger} cannot happen"
        ) from None


def _with_claim(event: FaultEvent, claim: Claim, state: FaultLifecycle, now_ns: int) -> FaultEvent:
    return replace(
        event,
        state=state,
        seq=event.seq + 1,
        event_at=ns_to_us(now_ns),
        # The onset may move to an earlier time as evidence comes in.
        onset_at=min(event.onset_at, ns_to_us(claim.onset_ns))
        if event.resolved_at is None
        else event.onset_at,
        layer=claim.layer,
        component_kind=claim.component_kind.value,
        component_id=claim.component_id,
        decided=claim.decided,
        fault_kind=claim.kind.name,
        severity=claim.kind.severity,
        confidence=claim.confidence,
        summary=claim.summary,
        bad_paths=claim.bad,
        good_paths=claim.good,
        tasks=claim.tasks,
        candidates=tuple(Candidate(component_id=c, score=s) for c, s in claim.candidates),
        evidence=claim.evidence,
    )
