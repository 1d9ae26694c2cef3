"""Refine a generic kind of fault ("nothing gets through here") by component states.

Probes find where a fault is and how bad. States of the component, or of components that probes
cannot tell apart from it, say which kind it is.
"""

from dataclasses import dataclass

from localizer.facts.overlay import FlowTables
from localizer.facts.states import BEFORE_NS, Finding, StateBook
from localizer.network.topology import Topology
from localizer.verdict.catalogue import KINDS, FaultKind
from schemas.enums import AnomalyFamily, ComponentKind


@dataclass(frozen=True, slots=True)
class Specific:
    """A kind with the component that shows it, and the sentence that says so."""

    kind: FaultKind
    component_id: str
    fact: str
    fresh: bool


class Specifier:
    """Finds states that explain a fault."""

    def __init__(self, topology: Topology, states: StateBook, tables: FlowTables) -> None:
        self._topology = topology
        self._states = states
        self._tables = tables

    def find(
        self,
        component_id: str,
        family: AnomalyFamily,
        onset_ns: int,
        others: frozenset[str] = frozenset(),
    ) -> Specific | None:
        """Return the kind that a state gives to a fault at a component; None: no state does.

        States that changed at about the onset come before older ones, those of the component itself
        before those of components close to it. States of `others` explain other faults.
        """
        places = [component_id, *(c for c in self._close(component_id) if c not in others)]
        for place in places:
            fresh = self._states.fresh(place, family, onset_ns)
            if fresh:
                return _specific(fresh[0], fresh=True)
        found = self._port(component_id, family, onset_ns, others)
        if found is None and family is AnomalyFamily.LATENCY:
            found = self._not_offloaded(component_id, onset_ns)
        if found is not None:
            return found
        old = self._states.findings(component_id, family)
        return _specific(old[0], fresh=False) if old else None

    def in_maintenance(self, component_id: str) -> bool:
        """Return whether an operator works on the component, its host, or an end of the cable."""
        places = {component_id, *self._close(component_id), *self._topology.parents(component_id)}
        return any(self._states.in_maintenance(place) for place in places)

    def _close(self, component_id: str) -> list[str]:
        """Return what the same packets cross: a cable's RNIC, an RNIC's cable, its endpoints."""
        topology = self._topology
        component = topology.get(component_id)
        if component is None:
            return []
        if component.kind is ComponentKind.LINK:
            ends = [e for e in (component.a, component.b) if e is not None]
            near = [e for e in ends if topology.kind(e) is ComponentKind.RNIC]
            return [*near, *(e for n in near for e in self._endpoints(n))]
        if component.kind is ComponentKind.RNIC:
            return [*topology.links_at(component_id), *self._endpoints(component_id)]
        return []

    def _endpoints(self, rnic_id: str) -> list[str]:
        return self._topology.children(rnic_id, ComponentKind.ENDPOINT)

    def _port(
        self, component_id: str, family: AnomalyFamily, onset_ns: int, others: frozenset[str]
    ) -> Specific | None:
        """Return the single cable of a switch whose state explains the symptoms.

        Replies reach the switch by other ports, so probes blame the switch instead of the cable. If
        two cables have such states, the switch itself is at fault.
        """
        if self._topology.kind(component_id) is not ComponentKind.SWITCH:
            return None
        found = [
            fresh[0]
            for link in self._topology.links_at(component_id)
            if link not in others and (fresh := self._states.fresh(link, family, onset_ns))
        ]
        return _specific(found[0], fresh=True) if len(found) == 1 else None

    def _not_offloaded(self, component_id: str, onset_ns: int) -> Specific | None:
        """Return what the flow tables say: entries that the RNIC does not forward in hardware."""
        if self._topology.kind(component_id) is not ComponentKind.VSWITCH:
            return None
        found = self._tables.not_offloaded(component_id)
        if found is None:
            return None
        count, since_ns = found
        fact = f"{count} entries of its host's tables are not offloaded"
        fresh = since_ns >= onset_ns - BEFORE_NS
        return Specific(KINDS["not_offloaded"], component_id, fact, fresh)


def _specific(finding: Finding, *, fresh: bool) -> Specific:
    since = "" if fresh else " (already before)"
    fact = f"{finding.component_id}: {finding.shown}{since}"
    return Specific(KINDS[finding.rule.kind], finding.component_id, fact, fresh)
