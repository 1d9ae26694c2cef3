"""Claims: what is wrong at one instant, with its evidence. Input of the incidents' life cycle.

`make_claim` builds any claim. `ChainClaims` claims broken forwarding chains of the overlay.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

from localizer.facts.bad_flows import BadFlow, BadFlows
from localizer.facts.inputs import Sources
from localizer.facts.overlay import Break, ChainFault
from localizer.network.topology import Topology
from localizer.verdict.catalogue import KINDS, LAYER_OF, FaultKind
from schemas.enums import AnomalyFamily, ComponentKind, Layer
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# Bounds of fault.event.v1.
MAX_TASKS: Final = 4_096
MAX_CANDIDATES: Final = 64
MAX_EVIDENCE: Final = 64
# Candidates below this probability are left out.
LEAST_SHARE: Final = 0.01
# How the lines of a fault's evidence begin that say which jobs it stops.
STOPS: Final = "stops "


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A component, what is wrong with it, and why.

    Attributes
    ----------
    candidates
        (component, posterior probability), best first; the first is `component_id`, or part of it.
    keys
        5-tuples that it explains.
    replies
        Bad 5-tuples that nothing else explains, but whose replies it may lose.
    near
        Adjacent components: the ends of a cable, the cables of a switch.
    ready
        Whether the evidence suffices to open a fault; an open one is updated in any case.
    cause
        The component that probes blame, where a state names another one; None: itself.
    replaces
        Agents whose silence, or whose own reports, it explains: it is the better answer to them.
    headline
        The sentence for people, where another process has written it.
    """

    component_id: str
    component_kind: ComponentKind
    layer: Layer
    kind: FaultKind
    decided: bool
    confidence: float
    candidates: tuple[tuple[str, float], ...]
    keys: frozenset[FlowId]
    bad: int
    good: int
    onset_ns: int
    tasks: tuple[str, ...]
    evidence: tuple[str, ...]
    ready: bool
    cause: str | None = None
    near: frozenset[str] = frozenset()
    replaces: frozenset[str] = frozenset()
    replies: frozenset[FlowId] = frozenset()
    headline: str | None = None

    @property
    def group(self) -> str:
        """Group of the kind; faults of one component and group are one fault."""
        return self.kind.group

    @property
    def summary(self) -> str:
        """One sentence for people."""
        if self.headline is not None:
            return self.headline
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
    keys: frozenset[FlowId],
    good: int,
    onset_ns: int,
    evidence: Iterable[str],
    ready: bool,
    component_kind: ComponentKind | None = None,
    tasks: frozenset[str] = frozenset(),
    replaces: frozenset[str] = frozenset(),
    replies: frozenset[FlowId] = frozenset(),
    cause: str | None = None,
) -> Claim:
    """Return a claim; derives layer, affected jobs and adjacent components."""
    found = component_kind or sources.topology.kind(component_id)
    known = sources.topology.get(component_id)
    layer = kind.layer or LAYER_OF.get(found) or (known.layer if known else Layer.UNKNOWN)
    # A storm's claim has a hundred thousand keys, of which these calls make sets without a loop.
    ends = {*map(itemgetter(0), keys), *map(itemgetter(1), keys)}
    hit = set[str]().union(*map(sources.roster.tasks_of, ends))
    kept = [(c, round(s, 6)) for c, s in candidates if s >= LEAST_SHARE or c == component_id]
    # Two findings may say the same, such as one of each of a host's two endpoints.
    facts = tuple(dict.fromkeys(evidence))
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
        evidence=(*facts[: MAX_EVIDENCE - 1], f"first step: {kind.runbook}"),
        ready=ready,
        cause=None if cause == component_id else cause,
        near=_near(sources.topology, component_id),
        replaces=replaces,
        replies=replies,
    )


def _near(topology: Topology, component_id: str) -> frozenset[str]:
    """Return what is adjacent to a component; of an RNIC's cable also the RNIC's other cables."""
    ends = topology.ends(component_id)
    return frozenset(
        found
        for at in (component_id, *topology.rnics_at(component_id))
        for found in (*topology.neighbours(at), *topology.links_at(at), *ends)
    )


# A flow table that lacks the entry which lost packets need leaves little doubt.
REPLAY_CONFIDENCE = 0.99


# A 5-tuple that is cut off so long after its list, its agents and the tables were there had got
# through before: its first probes would have been lost within seconds.
GOT_THROUGH_NS: Final = 30 * SECOND_NS


class ChainClaims:
    """Replays the forwarding chains of cut-off 5-tuples.

    A missing entry that no table ever had is held against two other facts. If probes got through
    without it, they do not need it, and the loss has another cause. If the endpoints are on two
    rails and no probe ever got through, the pair has no way through the overlay, and stands on the
    ping list by mistake.

    Attributes
    ----------
    without_way
        Such pairs among those cut off at the last replay, as (src, dst).
    """

    def __init__(self, sources: Sources, flows: BadFlows) -> None:
        self.without_way: frozenset[tuple[str, str]] = frozenset()
        self._sources = sources
        self._tables = sources.tables
        self._flows = flows
        # Results by pair, valid for these versions of tables and topology.
        self._versions = (-1, -1)
        self._replayed: dict[tuple[str, str], ChainFault | None] = {}

    def find(
        self, now_ns: int, accused: frozenset[str] = frozenset()
    ) -> tuple[list[Claim], frozenset[FlowId]]:
        """Replay the chains of all cut-off 5-tuples; return claims, and what they explain.

        Parameters
        ----------
        accused
            Components of open faults of the overlay. An entry that they lack was there once, even
            if no table shows it any more: after a restart only the latest ones are read.
        """
        found: defaultdict[tuple[str, Break], list[tuple[BadFlow, ChainFault]]] = defaultdict(list)
        broken: set[FlowId] = set()
        without_way: set[tuple[str, str]] = set()
        self.without_way = frozenset()
        if not len(self._tables):
            return [], frozenset()
        for flow, fault in self._cut_off(now_ns, known=bool(accused)):
            lost = fault.lost or fault.node in accused
            if not lost and self._got_through(flow, fault):
                continue
            broken.add(flow.key)
            if not lost and not self._sources.roster.same_rail(*flow.key[:2]):
                without_way.add(flow.key[:2])
            elif flow.open:
                blamed = blame_member(self._sources.topology, fault)
                found[blamed.node, blamed.how].append((flow, blamed))
        self.without_way = frozenset(without_way)
        places = sorted(found, key=lambda place: (place[0], place[1].value))
        return [self._claim(*place, found[place]) for place in places], frozenset(broken)

    def _cut_off(self, now_ns: int, *, known: bool) -> Iterator[tuple[BadFlow, ChainFault]]:
        """Yield the cut-off 5-tuples whose chain is broken, and where it is.

        Those that a storm's sample leaves out only if some in it are among them, or such a fault is
        known: what breaks no chain of a thousand is hardly the storm, and its chains are many.
        """
        for flow in self._flows.all_bad(AnomalyFamily.LOSS, now_ns):
            if flow.cut and (fault := self._round_trip(*flow.key[:2])):
                known = True
                yield flow, fault
        agent_of = self._sources.roster.agent_of
        left_out = self._flows.left_out(AnomalyFamily.LOSS, now_ns) if known else ()
        for key, symptoms in left_out:
            if symptoms and (fault := self._round_trip(*key[:2])):
                flow = BadFlow.left_out(key, symptoms, agent_of(key[1]))
                if flow.cut:
                    yield flow, fault

    def _round_trip(self, src: str, dst: str) -> ChainFault | None:
        """Replay the chains of a pair; cached until a table or a component changes."""
        versions = (self._tables.version, self._sources.topology.version)
        if versions != self._versions:
            self._versions, self._replayed = versions, {}
        if (src, dst) not in self._replayed:
            self._replayed[src, dst] = self._tables.round_trip(src, dst)
        return self._replayed[src, dst]

    def _got_through(self, flow: BadFlow, fault: ChainFault) -> bool:
        """Return whether probes of a 5-tuple were answered although its entry was missing."""
        since_ns = [fault.captured_ns, self._sources.roster.listed_ns(flow.prober)]
        for agent_id in (flow.prober, flow.responder):
            agent = None if agent_id is None else self._sources.liveness.get(agent_id)
            if agent is not None:
                since_ns.append(agent.first_ns)
                since_ns += [seen_ns for _, seen_ns in agent.silences]
        return flow.onset_ns > max(since_ns) + GOT_THROUGH_NS

    def _claim(self, node: str, how: Break, hits: list[tuple[BadFlow, ChainFault]]) -> Claim:
        onset_ns = min(flow.onset_ns for flow, _ in hits)
        ends = {a for flow, _ in hits for a in (flow.prober, flow.responder) if a is not None}
        others = sorted({other for _, fault in hits for other in fault.others})
        dsts = sorted({fault.dst for _, fault in hits})
        alive = all(self._sources.liveness.alive_after(agent, onset_ns) for agent in ends)
        what = "has no entry for" if how is Break.MISSING else "closes a loop of packets to"
        facts = [f"{node} {what} {dst}" for dst in dsts[:16]]
        if others:
            facts.append(f"the loop goes through {', '.join(others)}")
        rest = (1.0 - REPLAY_CONFIDENCE) / len(others) if others else 0.0
        return make_claim(
            self._sources,
            KINDS["flow_missing" if how is Break.MISSING else "flow_loop"],
            node,
            decided=True,
            confidence=REPLAY_CONFIDENCE,
            candidates=[(node, REPLAY_CONFIDENCE), *((other, rest) for other in others)],
            keys=frozenset(flow.key for flow, _ in hits),
            good=0,
            onset_ns=onset_ns,
            evidence=facts,
            # A container that is being removed loses its entries before its agent signs off.
            ready=alive,
        )


def blame_member(topology: Topology, fault: ChainFault) -> ChainFault:
    """Blame the same member of a loop wherever packets enter it: one loop is one fault.

    A virtual switch, since all loops of a host share its table. Of several members that on the
    destination's host: packets had arrived there.
    """
    if fault.how is not Break.LOOP:
        return fault
    members = (fault.node, *fault.others)
    switches = [m for m in members if topology.kind(m) is ComponentKind.VSWITCH]
    host = topology.host_of(fault.dst)
    node = min(switches or members, key=lambda m: (topology.host_of(m) != host, m))
    return replace(fault, node=node, others=tuple(m for m in members if m != node))
