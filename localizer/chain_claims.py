"""Claims from the overlay's flow tables: what the replay of chains finds broken."""

from collections import defaultdict
from dataclasses import replace

from localizer.anomalies import Family
from localizer.bad_flows import BadFlows
from localizer.claims import Claim, make_claim
from localizer.kinds import KINDS
from localizer.overlay import Break, ChainFault, FlowTables
from localizer.paths import FlowKey
from localizer.suspicion import BadFlow, Sources
from schemas.enums import ComponentKind

# A table that lacks the entry that lost packets need leaves little doubt.
REPLAY_CONFIDENCE = 0.99


class ChainClaims:
    """Replays the chains of what is cut off."""

    def __init__(self, sources: Sources, tables: FlowTables, flows: BadFlows) -> None:
        self._sources = sources
        self._tables = tables
        self._flows = flows
        # By pair, as of some tables and a topology.
        self._versions = (-1, -1)
        self._replayed: dict[tuple[str, str], ChainFault | None] = {}

    def find(self, now_ns: int) -> tuple[list[Claim], frozenset[FlowKey]]:
        """Replay the chains of all that is cut off; return claims, and what they explain."""
        found: defaultdict[tuple[str, Break], list[tuple[BadFlow, ChainFault]]] = defaultdict(list)
        broken: set[FlowKey] = set()
        if not len(self._tables):
            return [], frozenset()
        for flow in self._flows.find(Family.LOSS, now_ns):
            if not flow.cut:
                continue
            fault = self._round_trip(flow.key[0], flow.key[1])
            if fault is not None:
                fault = self._of_switch(fault)
                broken.add(flow.key)
                if flow.open:
                    found[fault.node, fault.how].append((flow, fault))
        places = sorted(found, key=lambda place: (place[0], place[1].value))
        return [self._claim(*place, found[place]) for place in places], frozenset(broken)

    def _round_trip(self, src: str, dst: str) -> ChainFault | None:
        """Replay the chains of a pair, once as long as no table and no component changes."""
        versions = (self._tables.version, self._sources.topology.version)
        if versions != self._versions:
            self._versions, self._replayed = versions, {}
        if (src, dst) not in self._replayed:
            self._replayed[src, dst] = self._tables.round_trip(src, dst)
        return self._replayed[src, dst]

    def _of_switch(self, fault: ChainFault) -> ChainFault:
        """Name the virtual switch of a loop: its table is what all loops of a host share."""
        members = (fault.node, *fault.others)
        kinds = self._sources.topology.kind
        switches = [m for m in members if kinds(m) is ComponentKind.VSWITCH]
        if fault.how is not Break.LOOP or not switches or fault.node in switches:
            return fault
        others = tuple(m for m in members if m != switches[0])
        return replace(fault, node=switches[0], others=others)

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
            # A container that is being removed loses its entries before it signs off.
            ready=alive,
        )
