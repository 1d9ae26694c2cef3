"""What is out of order at a component by states and flow tables, and how much that says.

A reading shows that something changed since the reading before. It belongs to a fault if it may
have changed when the first probes went bad. How much that says follows from chance: things go out
of order for other reasons, too, and the longer the time that is accepted, the likelier is it that
one of them fell into it.
"""

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import log
from typing import Final

from localizer.facts.overlay import FlowTables
from localizer.facts.states import IN_SOFTWARE, SELECTIVE, Finding, StateBook
from localizer.network.topology import Topology
from schemas.enums import AnomalyFamily, ComponentKind
from schemas.units import SECOND_NS

# Probes show a fault up to this long after the state: a queue takes time to fill, 5-tuples to be
# probed, and a host to notice that nobody answers.
LEAD_NS: Final = 120 * SECOND_NS
# Clocks of readers and agents differ by so much, and a reading takes time.
SLACK_NS: Final = 5 * SECOND_NS
# A state of a component goes out of order once in so long for reasons that harm no probe: jobs
# that load a cable, maintenance, tests. Four hours are less than on most days, to be careful.
CHANCE_NS: Final = 4 * 3600 * SECOND_NS
# Log-likelihood ratio of a fault for one that was out of order before: it harmed nobody until then.
OLD: Final = 1.5
# What a second reader costs that sees it in order: readers are late, or wrong, once in so often.
DISPUTED: Final = -log(0.3)

# What is seen at a switch speaks less for one of its cables: either end might show it by chance.
ENDS: Final = log(2)

# When something began: after the first time, and at the latest at the second.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hint:
    """A finding held against the onsets of symptoms.

    Attributes
    ----------
    evidence
        Log-likelihood ratio that the fault made it, against chance.
    fresh
        Whether it may have begun together with the symptoms.
    """

    finding: Finding
    evidence: float
    fresh: bool


class Findings:
    """Findings of states and flow tables by component."""

    def __init__(self, topology: Topology, states: StateBook, tables: FlowTables) -> None:
        self._topology = topology
        self._states = states
        self._tables = tables

    def of(self, component_id: str, family: AnomalyFamily) -> list[Finding]:
        """Return what is out of order at a component and explains a family's symptoms."""
        found = self._states.findings(component_id, family)
        if family is AnomalyFamily.LATENCY:
            found += self._tables.findings(component_id)
        return found

    def marked(self, components: Collection[str], family: AnomalyFamily) -> set[str]:
        """Return those with a finding there, at a cable of the switch, at an end of the cable."""
        bad: Collection[str] = self._states.bad
        if len(bad) > len(components):
            # A setting that is wrong everywhere, while few components are asked for.
            bad = {n for c in components for n in (c, *self._near(c))} & self._states.bad
        by_state = [c for c in bad if self._states.findings(c, family)]
        near = {*by_state, *(n for c in by_state for n in self._near(c))}
        return {c for c in components if c in near or self.of(c, family)}

    def _near(self, component_id: str) -> Sequence[str]:
        kind = self._topology.kind
        match kind(component_id):
            case ComponentKind.SWITCH:
                return self._topology.links_at(component_id)
            case ComponentKind.LINK:
                return [*self._switches(component_id), *self._topology.parallels(component_id)]
            case _:
                return ()

    def _switches(self, link_id: str) -> list[str]:
        """Return the switches that a cable joins."""
        kind = self._topology.kind
        return [e for e in self._topology.ends(link_id) if kind(e) is ComponentKind.SWITCH]

    def hints(self, component_id: str, family: AnomalyFamily, spans: Iterable[Span]) -> list[Hint]:
        """Return the findings of a component, each held against the symptoms.

        Parameters
        ----------
        spans
            Between which times each bad 5-tuple through it became bad (ns).
        """
        found = self.of(component_id, family)
        # Most components show nothing, and in a storm there are a hundred thousand spans.
        if not found:
            return []
        at = _distinct(spans)
        return [hint_of(finding, at) for finding in found]

    def end_hints(self, link_id: str, family: AnomalyFamily, spans: Iterable[Span]) -> list[Hint]:
        """Return fresh findings at the switches that a cable joins.

        A counter of a whole switch does not say of which cable it is. What a rule of the switch
        drops is no cable's.
        """
        at = _distinct(spans)
        return [
            replace(hint, evidence=max(0.0, hint.evidence - ENDS))
            for end in self._switches(link_id)
            for hint in self.hints(end, family, at)
            if hint.fresh and hint.finding.kind not in SELECTIVE
        ]

    def in_software(self, component_id: str) -> bool:
        """Return whether some of a component's flow entries are or were not in hardware."""
        return any(f.kind in IN_SOFTWARE for f in self.of(component_id, AnomalyFamily.LATENCY))

    def rule_hints(
        self, switch_id: str, family: AnomalyFamily, spans: Iterable[Span]
    ) -> list[Hint]:
        """Return fresh findings of a switch, real or virtual, that concern single pairs."""
        found = (f for f in self.of(switch_id, family) if f.kind in SELECTIVE | IN_SOFTWARE)
        at = _distinct(spans)
        return [hint for f in found if (hint := hint_of(f, at)).fresh]

    def evidence(self, component_id: str, family: AnomalyFamily, spans: Iterable[Span]) -> float:
        """Return how much the findings say that a component is at fault; 0: nothing.

        Several findings of one component have one reason: the strongest counts. What most cables
        of a switch show is evidence for the switch, and counts twice: of two cables it would be
        chance twice.
        """
        at = _distinct(spans)
        found = [h.evidence for h in self.hints(component_id, family, at) if h.fresh]
        match self._topology.kind(component_id):
            case ComponentKind.LINK:
                found += [h.evidence for h in self.end_hints(component_id, family, at)]
                # It stands for all of them on paths.
                for other in self._topology.parallels(component_id):
                    found += [h.evidence for h in self.hints(other, family, at) if h.fresh]
            case ComponentKind.SWITCH:
                cables = self.cable_hints(component_id, family, at)
                if self.together(component_id, cables):
                    found.append(sum(sorted(h.evidence for h in cables)[-2:]))
        return max(found, default=0.0)

    def rose_since(
        self, component_id: str, family: AnomalyFamily, since_ns: int
    ) -> tuple[int, float] | None:
        """Return since when a component, or a switch that a cable joins, is out of order.

        Only what went out of order after a time counts. Returns the earliest time at which it may
        have, and how much less than usual that says, as a log-likelihood ratio; None: nothing did.
        """
        alike = [component_id, *self._topology.parallels(component_id)]
        found = [(f, 0.0) for one in alike for f in self.of(one, family)]
        if self._topology.kind(component_id) is ComponentKind.LINK:
            ends = self._switches(component_id)
            found += [(f, ENDS) for end in ends for f in self.of(end, family)]
        rose = [
            (f.before_ns, doubt + (DISPUTED if f.disputed else 0.0))
            for f, doubt in found
            if f.since_ns >= since_ns
        ]
        return min(rose, default=None)

    def cable_hints(
        self, switch_id: str, family: AnomalyFamily, spans: Iterable[Span]
    ) -> list[Hint]:
        """Return fresh findings at the cables of a switch, one for each cable."""
        at = _distinct(spans)
        found = []
        for link in self._topology.links_at(switch_id):
            fresh = [h for h in self.hints(link, family, at) if h.fresh]
            found += fresh[:1]
        return found

    def together(self, switch_id: str, hints: list[Hint]) -> bool:
        """Return whether findings at a switch's cables are the switch's own matter.

        They are if most of its cables show one, of those that were read since the first did.
        """
        if len(hints) < 2:
            return False
        since_ns = min(h.finding.since_ns for h in hints)
        attributes = {h.finding.shown.split(" ", 1)[0] for h in hints}
        read = sum(
            any(self._states.read_since(link, a, since_ns - SLACK_NS) for a in attributes)
            for link in self._topology.links_at(switch_id)
        )
        return 2 * len(hints) > read


def _distinct(spans: Iterable[Span]) -> AbstractSet[Span]:
    return spans if isinstance(spans, AbstractSet) else set(spans)


def hint_of(finding: Finding, spans: Iterable[Span]) -> Hint:
    """Return what a finding says of a fault that began within one of some spans.

    Examples
    --------
    A port seen down two seconds after the first lost probe, read each five seconds; the same of a
    reader that comes once a minute; and one that was down an hour before.

    >>> from localizer.facts.states import LOSS
    >>> second = 1_000_000_000
    >>> def seen(before_s: int, since_s: int) -> Hint:
    ...     return hint_of(Finding(kind="port_down", family=LOSS, component_id="x",
    ...                            before_ns=before_s * second, since_ns=since_s * second,
    ...                            shown="port_state is down"),
    ...                    [(5_000 * second, 5_001 * second)])
    >>> [(hint.fresh, round(hint.evidence, 1))
    ...  for hint in (seen(4_997, 5_002), seen(4_990, 5_050), seen(1_000, 1_005))]
    [(True, 4.7), (True, 4.3), (False, 1.5)]
    """
    doubt = DISPUTED if finding.disputed else 0.0
    best: float | None = None
    late = True
    for onset_ns, seen_ns in spans:
        if finding.before_ns > seen_ns + SLACK_NS:
            continue
        late = False
        if finding.since_ns >= onset_ns - LEAD_NS:
            width_ns = (
                (finding.since_ns - finding.before_ns) + (seen_ns - onset_ns) + LEAD_NS + SLACK_NS
            )
            evidence = log(CHANCE_NS / width_ns) if width_ns < CHANCE_NS else 0.0
            best = evidence if best is None else max(best, evidence)
    if best is not None:
        return Hint(finding, best - doubt, fresh=True)
    return Hint(finding, 0.0 if late else OLD - doubt, fresh=False)
