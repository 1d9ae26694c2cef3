"""What the core holds to be wrong at one instant: the input of the incidents' life cycle."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from localizer.kinds import LAYER_OF, FaultKind
from localizer.paths import FlowKey
from localizer.suspicion import Sources
from localizer.topology import Topology
from schemas.enums import ComponentKind, Layer

# As fault.event.v1 holds them.
MAX_TASKS: Final = 4_096
MAX_CANDIDATES: Final = 64
MAX_EVIDENCE: Final = 64
# A candidate with less belief than this is none.
LEAST_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A component, what is wrong with it, and why.

    Attributes
    ----------
    candidates
        (component, share of the belief), best first; the first is `component_id`.
    keys
        5-tuples that it explains.
    near
        What it is joined to: the ends of a cable, the cables of a switch.
    ready
        Whether the evidence suffices to open a fault; an open one is updated anyway.
    """

    component_id: str
    component_kind: ComponentKind
    layer: Layer
    kind: FaultKind
    decided: bool
    confidence: float
    candidates: tuple[tuple[str, float], ...]
    keys: frozenset[FlowKey]
    bad: int
    good: int
    onset_ns: int
    tasks: tuple[str, ...]
    evidence: tuple[str, ...]
    ready: bool
    near: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        """Group of the kind; faults of one component and group are one fault."""
        return self.kind.group

    @property
    def summary(self) -> str:
        """One sentence for people."""
        crossing = self.bad + self.good
        share = f" ({self.bad} of {crossing} 5-tuples)" if crossing else ""
        if self.decided:
            return f"{self.component_id}: {self.kind.symptom}{share}"
        names = ", ".join(component for component, _ in self.candidates[:4])
        return f"undecided between {names}: {self.kind.symptom}{share}"


def make_claim(
    sources: Sources,
    kind: FaultKind,
    component_id: str,
    *,
    decided: bool,
    confidence: float,
    candidates: Iterable[tuple[str, float]],
    keys: frozenset[FlowKey],
    good: int,
    onset_ns: int,
    evidence: Iterable[str],
    ready: bool,
    component_kind: ComponentKind | None = None,
    tasks: frozenset[str] = frozenset(),
) -> Claim:
    """Return a claim with what follows from its parts: layer, jobs hit, bounds."""
    found = component_kind or sources.topology.kind(component_id)
    known = sources.topology.get(component_id)
    layer = kind.layer or LAYER_OF.get(found) or (known.layer if known else Layer.UNKNOWN)
    ends = {end for key in keys for end in key[:2]}
    hit = {t for end in ends for t in sources.roster.tasks_of(end)}
    kept = [(c, round(s, 6)) for c, s in candidates if s >= LEAST_SHARE or c == component_id]
    return Claim(
        component_id=component_id,
        component_kind=found,
        layer=layer,
        kind=kind,
        decided=decided,
        confidence=round(min(1.0, max(0.0, confidence)), 6),
        candidates=tuple(kept[:MAX_CANDIDATES]),
        keys=keys,
        bad=len(keys),
        good=good,
        onset_ns=onset_ns,
        tasks=tuple(sorted(hit | tasks)[:MAX_TASKS]),
        evidence=(*tuple(evidence)[: MAX_EVIDENCE - 1], f"first step: {kind.runbook}"),
        ready=ready,
        near=_near(sources.topology, component_id),
    )


def _near(topology: Topology, component_id: str) -> frozenset[str]:
    """Return what a component is joined to; by an RNIC's cable also the RNIC's others."""
    known = topology.get(component_id)
    ends = [] if known is None else [end for end in (known.a, known.b) if end is not None]
    bonded = [end for end in ends if topology.kind(end) is ComponentKind.RNIC]
    return frozenset(
        found
        for at in (component_id, *bonded)
        for found in (*topology.neighbours(at), *topology.links_at(at), *ends)
    )
