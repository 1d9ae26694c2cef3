"""Which kind of fault it is, by likelihood: what probes show, and what is out of order.

The inference says which component is at fault. Here its possible kinds compete, each with

    log P(kind) + log P(what probes show | kind) + sum of the evidence of what the kind explains

Kinds that probes alone can show are always possible; a specific one needs something that is out of
order and means it (`localizer.facts.findings`). A kind explains its own states and those of the
kinds that it makes as well (`FaultKind.explains`). So a port that is down names a cut cable at
once, one that has flapped names it better, and CRC errors do not name a cable that is cut off.

States are read where packets pass the same way: at a cable and the RNIC at its end probes see the
same, and at parallel cables, so there the component follows from the states, too. So it does where
a switch, real or virtual, drops or delays single pairs by a rule: whichever component few others
cross, probes cannot tell it from that rule.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from localizer.facts.findings import Findings, Hint, Span
from localizer.facts.states import StateBook
from localizer.network.topology import Topology
from localizer.verdict.catalogue import DOWN, KINDS, LATENCY, FaultKind, Shows
from schemas.enums import AnomalyFamily, ComponentKind

# Probability that a bad 5-tuple is cut off. Loss of a share cuts some off for a moment; when a cut
# begins and ends, some 5-tuples still pass. With these odds a cut is likelier from `CUT_SHARE` on,
# from which on the judge decides as for a cut.
CUT_OFF: Final = {Shows.DOWN: 0.95, Shows.CUT: 0.95, Shows.FLAPS: 0.5, Shows.SHARE: 0.14}
# Probability that a 5-tuple through the component is bad: of what is down, and of what need not be.
ALL_BAD: Final = 0.95
SOME_BAD: Final = 0.5
# 5-tuples at one moment are no independent witnesses: however many they are, they count as two.
WITNESSES: Final = 2
# Log prior of a kind that a state means, against one that only says what probes see: a third.
SPECIFIC_PRIOR: Final = -1.0
# Probability that a fault comes back within a minute after it was over, each time: of what flaps;
# of what loses a share, where luck, bursts or traffic decide when it shows; and of all others,
# whose evidence fades now and then.
RETURNS: Final = {Shows.FLAPS: 0.7, Shows.SHARE: 0.5, Shows.CUT: 0.1, Shows.DOWN: 0.1}
# What can flap.
PORTS: Final = frozenset({ComponentKind.LINK, ComponentKind.RNIC})
FLAPPING: Final = "port_flapping"
# What has rules for single pairs.
SWITCHES: Final = frozenset({ComponentKind.SWITCH, ComponentKind.VSWITCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """What probes through a component show.

    Attributes
    ----------
    family
        Loss or latency.
    cut_share
        Share of the bad 5-tuples that are cut off, 0 to 1.
    bad_share
        Share of the 5-tuples through the component that are bad, 0 to 1.
    sudden
        Latency rose at once, not over hours.
    returned
        How often the fault has come back.
    spans
        Between which times each bad 5-tuple became bad (ns).
    """

    family: AnomalyFamily
    cut_share: float = 0.0
    bad_share: float = 1.0
    sudden: bool = True
    returned: int = 0
    spans: tuple[Span, ...] = ()

    def log_likelihood(self, kind: FaultKind) -> float:
        """Return the log-probability of these symptoms if it is that kind.

        Examples
        --------
        >>> seen = Symptoms(family=AnomalyFamily.LOSS, cut_share=1.0)
        >>> round(seen.log_likelihood(KINDS["connectivity"])
        ...       - seen.log_likelihood(KINDS["packet_loss"]), 1)
        3.8
        """
        if kind.group == LATENCY:
            return 0.0
        extent = _bernoulli(self.bad_share, ALL_BAD)
        if kind.shows is not Shows.DOWN:
            extent = max(extent, _bernoulli(self.bad_share, SOME_BAD))
        found = WITNESSES * (_bernoulli(self.cut_share, CUT_OFF[kind.shows]) + extent)
        return found + self.returned * log(RETURNS[kind.shows])


def _bernoulli(share: float, chance: float) -> float:
    return share * log(chance) + (1 - share) * log(1 - chance)


@dataclass(frozen=True, slots=True)
class LikeliestKind:
    """The likeliest kind of a fault.

    Attributes
    ----------
    component_id
        The component that shows it: of those that probes cannot tell apart.
    facts
        What is out of order and speaks for it, for people.
    fresh
        Whether some of that began with the symptoms.
    evidence
        How much what began with the symptoms says, of all the most, as a log-likelihood ratio.
    """

    kind: FaultKind
    component_id: str
    facts: tuple[str, ...] = ()
    fresh: bool = False
    evidence: float = 0.0


class KindModel:
    """Finds the kind of a fault at a component."""

    def __init__(self, topology: Topology, states: StateBook, findings: Findings) -> None:
        self._topology = topology
        self._states = states
        self._findings = findings

    def find(
        self,
        component_id: str,
        symptoms: Symptoms,
        others: frozenset[str] = frozenset(),
        crossed: Iterable[frozenset[str]] = (),
    ) -> LikeliestKind:
        """Return the likeliest kind of a fault at a component.

        Parameters
        ----------
        others
            Components with faults of their own: what is out of order there explains those.
        crossed
            What each bad 5-tuple crosses, or may cross.
        """
        hints = self._hints(component_id, symptoms, others, crossed)
        scored: list[tuple[float, LikeliestKind]] = []
        for kind, place in self._candidates(component_id, symptoms, hints):
            explained = [(p, h, e) for p, h, e in hints if _explains(kind, h)]
            score = symptoms.log_likelihood(kind) + sum(e for _, _, e in explained)
            own = [h for _, h, _ in explained if h.finding.kind == kind.name]
            score += SPECIFIC_PRIOR if own or kind.name == FLAPPING else 0.0
            ordered = sorted((h for _, h, _ in explained), key=lambda h: h not in own)
            facts = tuple(_fact(h) for h in ordered)
            fresh = [e for _, h, e in explained if h.fresh]
            most = max(fresh, default=0.0)
            scored.append((score, LikeliestKind(kind, place, facts, bool(fresh), most)))
        return max(scored, key=lambda one: one[0])[1]

    def same_place(self, component_id: str) -> list[str]:
        """Return what probes cannot tell from a component.

        That is what the same packets cross: a cable's RNIC, an RNIC's cables, its ends. And of
        parallel cables the others, since no trace tells which of them a packet took.
        """
        topology = self._topology
        match topology.kind(component_id):
            case ComponentKind.LINK:
                ends = topology.ends(component_id)
                rnics = [end for end in ends if topology.kind(end) is ComponentKind.RNIC]
                found = [*rnics, *topology.parallels(component_id)]
            case ComponentKind.RNIC:
                found, rnics = topology.links_at(component_id), [component_id]
            case _:
                return []
        for rnic in rnics:
            for kind in (ComponentKind.VTEP, ComponentKind.ENDPOINT):
                found += topology.children(rnic, kind)
        return found

    def in_maintenance(self, component_id: str) -> bool:
        """Return whether an operator works on the component, its host, or an end of the cable."""
        places = {
            component_id,
            *self.same_place(component_id),
            *self._topology.parents(component_id),
        }
        return any(self._states.in_maintenance(place) for place in places)

    def _hints(
        self,
        component_id: str,
        symptoms: Symptoms,
        others: frozenset[str],
        crossed: Iterable[frozenset[str]],
    ) -> list[tuple[str, Hint, float]]:
        """Return what is out of order: (component that would be at fault, hint, evidence).

        Of components beside the one that is blamed, only what began with the symptoms counts.
        """
        family, spans = symptoms.family, symptoms.spans
        find = self._findings.hints
        found = [(component_id, h, h.evidence) for h in find(component_id, family, spans)]
        for place in self.same_place(component_id):
            if place not in others:
                found += [(place, h, h.evidence) for h in find(place, family, spans) if h.fresh]
        kind = self._topology.kind(component_id)
        if kind is ComponentKind.SWITCH:
            found += self._at_cables(component_id, symptoms, others, crossed)
        elif kind is ComponentKind.LINK:
            found += [
                (component_id, h, h.evidence)
                for h in self._findings.end_hints(component_id, family, spans)
                if h.finding.component_id not in others
            ]
        if kind is not ComponentKind.SWITCH:
            found += self._at_rules(symptoms, others, crossed)
        return found

    def _at_rules(
        self, symptoms: Symptoms, others: frozenset[str], crossed: Iterable[frozenset[str]]
    ) -> list[tuple[str, Hint, float]]:
        """Return what switches drop or delay by a rule, if all bad 5-tuples may cross them.

        A rule for one pair looks like a fault of the component that few others cross: mostly the
        pair's RNIC or its cable. So does an entry of a virtual switch that is not in hardware.
        """
        ways = iter(crossed)
        rules = {
            switch: hints
            for switch in next(ways, frozenset())
            if switch not in others
            and self._topology.kind(switch) in SWITCHES
            and (hints := self._findings.rule_hints(switch, symptoms.family, symptoms.spans))
        }
        for way in ways if rules else ():
            rules = {switch: hints for switch, hints in rules.items() if switch in way}
        return [(s, hint, hint.evidence) for s, hints in sorted(rules.items()) for hint in hints]

    def _at_cables(
        self,
        switch_id: str,
        symptoms: Symptoms,
        others: frozenset[str],
        crossed: Iterable[frozenset[str]],
    ) -> list[tuple[str, Hint, float]]:
        """Return what is out of order at the cables of a switch.

        If most cables show something, the switch makes it. If one does, replies that come by other
        ports may have made the switch look guilty: that one is, if all bad 5-tuples may cross it.
        """
        hints = self._findings.cable_hints(switch_id, symptoms.family, symptoms.spans)
        if self._findings.together(switch_id, hints):
            return [(switch_id, h, h.evidence) for h in hints]
        hints = [h for h in hints if h.finding.component_id not in others]
        if len(hints) != 1:
            return []
        cable = hints[0].finding.component_id
        at = self._topology.crossed_as(cable)
        if not all(at in ways for ways in crossed):
            return []
        return [(cable, hints[0], hints[0].evidence)]

    def _candidates(
        self, component_id: str, symptoms: Symptoms, hints: Sequence[tuple[str, Hint, float]]
    ) -> list[tuple[FaultKind, str]]:
        """Return the kinds that are possible, each with the component that would be at fault."""
        at = self._topology.kind(component_id)
        if symptoms.family is AnomalyFamily.LATENCY:
            names = ["high_latency" if symptoms.sudden else "latency_drift"]
        else:
            # Of equal ones the first is taken: where all is bad, it is down.
            names = [*([DOWN[at]] if at in DOWN else []), "connectivity", "packet_loss"]
            if at in PORTS and symptoms.returned:
                names.append(FLAPPING)
        found = [(KINDS[name], component_id) for name in names]
        whole = [kind for kind, _ in found if kind.name != FLAPPING]
        for place, hint, _ in hints:
            # What all cables of a switch show, the switch may be called by; not so if it is down.
            # What comes back may be flaps, or what makes their states without them.
            if not any(_explains(kind, hint) for kind in whole):
                found.append((KINDS[hint.finding.kind], place))
        return found


def _explains(kind: FaultKind, hint: Hint) -> bool:
    return hint.finding.kind == kind.name or hint.finding.kind in kind.explains


def _fact(hint: Hint) -> str:
    since = "" if hint.fresh else " (already before)"
    disputed = ", another reader denies it" if hint.finding.disputed else ""
    return f"{hint.finding.component_id}: {hint.finding.shown}{disputed}{since}"
