"""The injected faults of a scenario and the verdicts of a diagnosis, as scores compare them.

Diagnosis never sees a `TrueFault`; a test of the architecture holds that.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.enums import FaultLifecycle, Layer
from schemas.records import FaultEvent
from schemas.units import US_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueFault:
    """One injected fault.

    Attributes
    ----------
    fault_id : its name in the scenario
    kind : name of the kind that a verdict should give
    also_kinds : kinds that are as right, since no observer could tell
    layer : where it is
    components : the right answers: the sick component, and those that no observer could
        tell from it (a cable and the port at its end)
    begin_ns, end_ns : event time; `end_ns` None: it outlasts the scenario
    hard : whether everything of somebody's is lost; otherwise it is gray
    """

    fault_id: str
    kind: str
    layer: Layer
    components: frozenset[str]
    begin_ns: int
    end_ns: int | None
    hard: bool
    also_kinds: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.components:
            raise ValueError(f"fault {self.fault_id} has no component")
        if self.end_ns is not None and self.end_ns < self.begin_ns:
            raise ValueError(f"fault {self.fault_id} ends before it begins")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One fault as a diagnosis told it.

    `candidates` best first, at least one; `decided`: the first of them is the answer;
    `pages`: whether somebody is called for it.
    """

    fault_id: str
    kind: str
    layer: Layer
    candidates: tuple[str, ...]
    opened_ns: int
    decided: bool
    pages: bool


def verdicts_of(events: Iterable[FaultEvent]) -> list[Verdict]:
    """Return the verdicts that transitions amount to, in the order in which they were opened.

    A verdict is what was last said of it before it was resolved; it counts from its
    first OPEN.
    """
    opened: dict[str, int] = {}
    last: dict[str, FaultEvent] = {}
    for event in sorted(events, key=lambda e: (e.event_at, e.fault_id, e.seq)):
        opened.setdefault(event.fault_id, event.event_at * US_NS)
        if event.state is not FaultLifecycle.RESOLVED or event.fault_id not in last:
            last[event.fault_id] = event
    return [
        Verdict(
            fault_id=fault_id,
            kind=event.fault_kind,
            layer=event.layer,
            candidates=_candidates(event),
            opened_ns=opened[fault_id],
            decided=event.decided,
            pages=event.layer is not Layer.HOST or event.severity == "critical",
        )
        for fault_id, event in last.items()
    ]


def _candidates(event: FaultEvent) -> tuple[str, ...]:
    others = (c.component_id for c in event.candidates if c.component_id != event.component_id)
    return (event.component_id, *others)
