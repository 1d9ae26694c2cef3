"""Claims about silent agents: one for each that died alone, one for many that fell silent at once.

Many agents at once are one verdict on what they share: a switch or another place that all of them
hang on, the partition that their heartbeats stand in, or else the cluster. An agent that is part of
such a verdict stays so until it is heard again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from localizer.facts.inputs import Sources
from localizer.facts.liveness import Agent
from localizer.verdict.catalogue import KINDS
from localizer.verdict.claims import MAX_EVIDENCE, Claim, make_claim
from schemas.enums import AnomalyFamily, ComponentKind
from schemas.ids import FlowId
from schemas.records import FaultEvent
from schemas.topics import HEARTBEAT
from schemas.units import SECOND_NS, us_to_ns

SILENCE_CONFIDENCE: Final = 0.99
# From so many agents on, silence at once has one cause.
MANY_AGENTS: Final = 5
# Agents that fall silent within this time of each other do so together: their heartbeats are a
# second apart, and some are declared dead two seconds before others.
TOGETHER_NS: Final = 5 * SECOND_NS
# A verdict on many waits until nobody joined for so long.
SETTLE_NS: Final = 3 * SECOND_NS
# A place explains the silence if it holds at least this share of the silent, and at least this
# share of those that it holds are silent.
COVERED_SHARE: Final = 0.9
SILENT_SHARE: Final = 0.8
# Names per line of evidence, whose length is bounded, and how such a line begins.
NAMES_PER_LINE: Final = 60
SILENT_LINE: Final = "silent: "

# Lines of names, so that all evidence of a verdict has room.
MAX_LINES: Final = MAX_EVIDENCE - 4


def listed_names(begin: str, names: list[str]) -> list[str]:
    """Return names as lines of evidence, and how many there are if not all have room."""
    lines = [
        begin + ", ".join(names[at : at + NAMES_PER_LINE])
        for at in range(0, len(names), NAMES_PER_LINE)
    ]
    return lines if len(lines) <= MAX_LINES else [*lines[:MAX_LINES], f"{len(names)} in all"]


# A place that agents share: what it is, and its id.
Place = tuple[ComponentKind, str]


@dataclass(slots=True)
class _Group:
    """Agents that fell silent together.

    Attributes
    ----------
    places
        What the verdict names, best first; empty while more agents may join.
    """

    missed_ns: dict[str, int]
    joined_ns: int
    places: tuple[Place, ...] = ()
    names: set[str] = field(default_factory=set)

    @property
    def latest_ns(self) -> int:
        return max(self.missed_ns.values())


class SilenceClaims:
    """Claims the agents that are dead, alone or together."""

    def __init__(self, cluster: str, sources: Sources) -> None:
        self._cluster = cluster
        self._sources = sources
        self._groups: list[_Group] = []
        self._alone: set[str] = set()

    def restore(self, event: FaultEvent) -> None:
        """Take over a verdict on many that a former process has published."""
        names = [
            name
            for line in event.evidence
            if line.startswith(SILENT_LINE)
            for name in line.removeprefix(SILENT_LINE).split(", ")
        ]
        grouped = {name for group in self._groups for name in group.missed_ns}
        missed_ns = dict.fromkeys((n for n in names if n not in grouped), us_to_ns(event.onset_at))
        for name, at_ns in missed_ns.items():
            self._sources.liveness.remember_dead(name, "", at_ns)
        if missed_ns:
            place = ComponentKind(event.component_kind), event.component_id
            self._groups.append(_Group(missed_ns, us_to_ns(event.event_at), (place,)))

    def forget(self) -> None:
        """Forget who fell silent together: all is well."""
        self._groups.clear()
        self._alone.clear()

    def find(self, now_ns: int) -> list[Claim]:
        """Return a claim for each agent that is dead alone, and one for each group."""
        dead = self._sources.liveness.dead
        if not dead:
            self.forget()
            return []
        self._sort_into_groups(now_ns)
        failing = self._failing()
        claims = [self._claim_agent(agent, dead[agent], failing) for agent in sorted(self._alone)]
        return claims + [
            self._claim_group(group, failing) for group in self._groups if group.places
        ]

    def _sort_into_groups(self, now_ns: int) -> None:
        """Follow who died and who was heard again."""
        dead = self._sources.liveness.dead
        self._alone &= dead.keys()
        for group in self._groups:
            group.missed_ns = {a: at for a, at in group.missed_ns.items() if a in dead}
        self._groups = [group for group in self._groups if group.missed_ns]
        grouped = {a for group in self._groups for a in group.missed_ns}
        # Who yielded its name is a verdict of its own.
        known = grouped | self._alone | self._sources.reports.displaced.keys()
        fresh = sorted(dead.keys() - known, key=lambda a: (dead[a], a))
        around = self._sources.missed_ns(now_ns) if fresh else {}
        for agent in fresh:
            near = [g for g in self._groups if abs(dead[agent] - g.latest_ns) <= TOGETHER_NS]
            others = [
                a
                for a, at in around.items()
                if a not in self._alone and abs(at - dead[agent]) <= TOGETHER_NS
            ] if not near else []  # fmt: skip
            if near:
                near[0].missed_ns[agent] = dead[agent]
                near[0].joined_ns = now_ns
            elif len(others) >= MANY_AGENTS:
                self._groups.append(_Group({agent: dead[agent]}, now_ns))
            else:
                self._alone.add(agent)
        for group in [g for g in self._groups if not g.places]:
            if now_ns - group.joined_ns < SETTLE_NS:
                continue
            if len(group.missed_ns) < MANY_AGENTS:
                # The others were only late.
                self._alone |= group.missed_ns.keys()
                self._groups.remove(group)
            else:
                group.places = self._shared(group.missed_ns)

    def _shared(self, silent: Iterable[str]) -> tuple[Place, ...]:
        """Return the smallest places that explain the silence; the cluster if none does."""
        held, missing, agents = Counter[Place](), Counter[Place](), set(silent)
        for agent in self._sources.members():
            for place in self._places(agent):
                held[place] += 1
                missing[place] += agent.agent_id in agents
        found = [
            place
            for place, count in missing.items()
            if count >= COVERED_SHARE * len(agents) and count >= SILENT_SHARE * held[place]
        ]
        partitions = sum(place[1].startswith(HEARTBEAT.name) for place in held)
        found = [p for p in found if partitions > 1 or not p[1].startswith(HEARTBEAT.name)]
        if not found:
            return ((ComponentKind.UNKNOWN, self._cluster),)
        # Of two that hold as many a switch comes before a partition.
        least = min((held[p], p[1].startswith(HEARTBEAT.name)) for p in found)
        return tuple(
            sorted(p for p in found if (held[p], p[1].startswith(HEARTBEAT.name)) == least)
        )

    def _places(self, agent: Agent) -> set[Place]:
        """Return what an agent hangs on: the switches of its host, what holds it, its partition."""
        topology = self._sources.topology
        above = topology.parents(agent.agent_id)
        host = next((c for c in above if topology.kind(c) is ComponentKind.HOST), agent.host_id)
        found: set[Place] = {(topology.kind(c), c) for c in topology.parents(host)}
        for rnic in topology.children(host, ComponentKind.RNIC):
            found |= {
                (ComponentKind.SWITCH, c)
                for c in topology.neighbours(rnic)
                if topology.kind(c) is ComponentKind.SWITCH
            }
        if agent.partition is not None:
            found.add((ComponentKind.UNKNOWN, f"{HEARTBEAT.name}/{agent.partition}"))
        return found

    def _failing(self) -> dict[str, set[FlowId]]:
        """Return the bad 5-tuples to each dead agent's endpoints."""
        found: defaultdict[str, set[FlowId]] = defaultdict(set)
        for key, _ in self._sources.anomalies.by_family(AnomalyFamily.LOSS):
            agent = self._sources.roster.agent_of(key[1])
            if agent in self._sources.liveness.dead:
                found[str(agent)].add(key)
        return found

    def _claim_agent(self, agent_id: str, missed_ns: int, failing: dict[str, set[FlowId]]) -> Claim:
        keys = frozenset(failing.get(agent_id, ()))
        facts = [f"{len(keys)} 5-tuples to its endpoints are not answered"]
        known = self._sources.liveness.get(agent_id)
        if known is not None:
            every_s = known.interval_ns / SECOND_NS
            facts.insert(0, f"no heartbeat, though one is due every {every_s:g} s")
        return make_claim(
            self._sources,
            KINDS["agent_dead"],
            agent_id,
            decided=True,
            confidence=SILENCE_CONFIDENCE,
            candidates=[(agent_id, SILENCE_CONFIDENCE)],
            keys=keys,
            good=0,
            onset_ns=missed_ns,
            evidence=facts,
            ready=True,
            component_kind=ComponentKind.AGENT,
            tasks=self._sources.roster.tasks_of_agent(agent_id),
        )

    def _claim_group(self, group: _Group, failing: dict[str, set[FlowId]]) -> Claim:
        (kind, component_id), names = group.places[0], sorted(group.missed_ns)
        facts = [f"{len(names)} agents sent their last heartbeats within a few seconds"]
        if len(group.places) > 1:
            others = ", ".join(place for _, place in group.places[1:9])
            facts.append(f"the evidence cannot tell it from {others}")
        facts += listed_names(SILENT_LINE, names)
        return make_claim(
            self._sources,
            KINDS["agents_silent"],
            component_id,
            decided=True,
            confidence=SILENCE_CONFIDENCE,
            candidates=[(place, SILENCE_CONFIDENCE) for _, place in group.places],
            keys=frozenset[FlowId]().union(*(failing.get(a, ()) for a in names)),
            good=0,
            onset_ns=min(group.missed_ns.values()),
            evidence=facts,
            ready=True,
            component_kind=kind,
            tasks=frozenset[str]().union(*map(self._sources.roster.tasks_of_agent, names)),
        )
