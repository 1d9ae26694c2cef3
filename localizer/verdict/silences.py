"""Claims about silent agents: what they have in common, or each alone.

Many agents at once are one verdict on what they share: a switch or another place that all of them
hang on, the partition that their heartbeats stand in, or else the cluster. Silence alone is a
warning: others still answer for the network. A host that is down and a container that crashed are
critical, and either states say so (`localizer.verdict.outages`), or all agents of the host fell
silent at once and nothing there answers, or a training job that hangs finds nobody there either. A
single agent that is silent and does not answer may otherwise have died alone: that stays a warning,
which says what cannot be told.

Whoever is part of a verdict stays so until it is heard again. Nobody misses the agents of a host
that an operator works on.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from localizer.facts.agents import Agent
from localizer.facts.inputs import Sources
from localizer.facts.reachability import Reachability
from localizer.verdict.catalogue import KINDS
from localizer.verdict.claims import MAX_EVIDENCE, Claim, make_claim
from localizer.verdict.outages import (
    Outage,
    Place,
    crashed_container,
    host_of,
    host_without_job,
    host_without_ports,
)
from schemas.enums import AnomalyFamily, ComponentKind
from schemas.ids import FlowId
from schemas.records import FaultEvent
from schemas.topics import HEARTBEAT
from schemas.units import SECOND_NS, us_to_ns

SILENCE_CONFIDENCE: Final = 0.99
# From so many agents on, silence at once has one cause. At one death an agent and month, 1,000
# agents see three independent ones within `TOGETHER_NS` once in a hundred years.
MANY_AGENTS: Final = 3
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


def silent_agents(evidence: Iterable[str]) -> set[str]:
    """Return the agents that lines of a verdict's evidence list as silent."""
    return {
        name
        for line in evidence
        if line.startswith(SILENT_LINE)
        for name in line.removeprefix(SILENT_LINE).split(", ")
    }


@dataclass(slots=True)
class _Group:
    """Agents that are silent for one reason.

    Attributes
    ----------
    kind
        Kind of its verdict.
    places
        What the verdict names, best first; empty while more agents may join.
    fact
        Why it is of this kind; empty for silence alone.
    """

    missed_ns: dict[str, int]
    joined_ns: int
    kind: str = "agents_silent"
    places: tuple[Place, ...] = ()
    fact: str = ""

    @property
    def latest_ns(self) -> int:
        return max(self.missed_ns.values())


class SilenceClaims:
    """Claims the agents that are silent, alone or together."""

    def __init__(self, cluster: str, sources: Sources, reach: Reachability) -> None:
        self._cluster = cluster
        self._sources = sources
        self._reach = reach
        self._groups: list[_Group] = []
        self._alone: set[str] = set()

    def restore(self, event: FaultEvent) -> None:
        """Take over from a former process whose silence an open fault is about."""
        onset_ns = us_to_ns(event.onset_at)
        if event.fault_kind == "agent_dead":
            self._sources.liveness.remember_silent(event.component_id, onset_ns, dead=True)
            return
        names = silent_agents(event.evidence)
        names -= {name for group in self._groups for name in group.missed_ns}
        dead = event.fault_kind != "agents_silent"
        for name in sorted(names):
            self._sources.liveness.remember_silent(name, onset_ns, dead=dead)
        if names:
            kind = ComponentKind(event.component_kind)
            places = tuple(
                (ComponentKind.AGENT if c.component_id in names else kind, c.component_id)
                for c in event.candidates
            )
            self._alone -= names
            self._groups.append(
                _Group(dict.fromkeys(sorted(names), onset_ns), us_to_ns(event.event_at),
                       event.fault_kind, places)
            )  # fmt: skip

    def forget(self) -> None:
        """Forget who fell silent together: all is well."""
        self._groups.clear()
        self._alone.clear()

    def find(self, now_ns: int) -> list[Claim]:
        """Return a claim for each agent that is silent alone, and one for each group."""
        silent = self._missed()
        if not silent:
            self.forget()
            return []
        hosts = self._hosts()
        around = self._sources.missed_ns(now_ns)
        self._sort_into_groups(silent, around, now_ns)
        self._find_outages(silent, hosts, now_ns)
        self._settle(silent, around, now_ns)
        waiting = around.keys() - silent.keys()
        failing = self._failing(silent)
        claims = [
            self._claim_agent(agent, silent[agent], failing)
            for agent in sorted(self._alone)
            # Another agent of its host may have died with it.
            if waiting.isdisjoint(hosts.get(self._host(agent), ()))
        ]
        return claims + [
            self._claim_group(group, failing) for group in self._groups if group.places
        ]

    def _missed(self) -> dict[str, int]:
        """Return the silent agents whose host nobody works on."""
        silent, states = self._sources.liveness.silent, self._sources.states
        return {
            agent: at_ns
            for agent, at_ns in silent.items()
            if not any(states.in_maintenance(place) for place in (agent, self._host(agent)))
        }

    def _hosts(self) -> dict[str, set[str]]:
        """Return by host the agents that should be heard."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        gone = self._sources.roster.deserted_agents()
        for agent in self._sources.members():
            if not agent.leaving and agent.agent_id not in gone:
                found[host_of(self._sources, agent)].add(agent.agent_id)
        # Those of which a former process told no host.
        found.pop("", None)
        return found

    def _host(self, agent_id: str) -> str:
        agent = self._sources.liveness.get(agent_id)
        return "" if agent is None else host_of(self._sources, agent)

    def _sort_into_groups(
        self, silent: dict[str, int], around: dict[str, int], now_ns: int
    ) -> None:
        """Follow who fell silent and who was heard again.

        Parameters
        ----------
        silent, around
            Agents that are silent, and those that may soon be, with when each was first missed.
        """
        self._alone &= silent.keys()
        for group in self._groups:
            left = {a: at for a, at in group.missed_ns.items() if a in silent}
            if group.kind == "host_down" and len(left) < len(group.missed_ns):
                # A host that is down has no agent that is heard.
                self._alone |= left.keys()
                left = {}
            group.missed_ns = left
        self._groups = [group for group in self._groups if group.missed_ns]
        grouped = {a for group in self._groups for a in group.missed_ns}
        # Who yielded its name is a verdict of its own.
        known = grouped | self._alone | self._sources.reports.displaced.keys()
        fresh = sorted(silent.keys() - known, key=lambda a: (silent[a], a))
        for agent in fresh:
            near = [
                g
                for g in self._groups
                if g.kind == "agents_silent" and abs(silent[agent] - g.latest_ns) <= TOGETHER_NS
            ]
            others = [
                a
                for a, at in around.items()
                if a not in self._alone and abs(at - silent[agent]) <= TOGETHER_NS
            ] if not near else []  # fmt: skip
            if near:
                near[0].missed_ns[agent] = silent[agent]
                near[0].joined_ns = now_ns
            elif len(others) >= MANY_AGENTS:
                self._groups.append(_Group({agent: silent[agent]}, now_ns))
            else:
                self._alone.add(agent)

    def _find_outages(
        self, silent: dict[str, int], hosts: dict[str, set[str]], now_ns: int
    ) -> None:
        """Make groups of those whose host is down or whose container crashed, as far as is known.

        Not of those that share more than a host: one thing took several hosts.
        """
        free = self._alone.copy()
        for group in self._groups:
            if group.kind == "agents_silent" and len({*map(self._host, group.missed_ns)}) == 1:
                free |= group.missed_ns.keys()
        for agent in sorted(free & self._sources.liveness.dead.keys()):
            if agent not in free:
                continue
            host = self._host(agent)
            down = hosts.get(host, set())
            outage = self._down(host, down, silent, now_ns) if down and down <= free else None
            if outage is None:
                outage, down = crashed_container(self._sources, agent, silent[agent]), {agent}
            if outage is None:
                continue
            free -= down
            self._alone -= down
            for group in self._groups:
                group.missed_ns = {a: at for a, at in group.missed_ns.items() if a not in down}
            self._groups = [group for group in self._groups if group.missed_ns]
            self._groups.append(
                _Group({a: silent[a] for a in sorted(down)}, now_ns, outage.kind,
                       (outage.place,), outage.fact)
            )  # fmt: skip

    def _down(
        self, host: str, agents: set[str], silent: dict[str, int], now_ns: int
    ) -> Outage | None:
        """Return that a host is down, all of whose agents are silent, if anything says so."""
        if not agents <= self._sources.liveness.dead.keys():
            return None
        missed_ns = [silent[agent] for agent in agents]
        outage = host_without_ports(self._sources, host, min(missed_ns))
        if outage is not None:
            return outage
        if not all(self._reach.of_agent(a, now_ns).unreachable for a in agents):
            return None
        outage = host_without_job(self._sources, host)
        together = max(missed_ns) - min(missed_ns) <= TOGETHER_NS
        if outage is not None or len(agents) == 1 or not together:
            return outage
        fact = "its agents fell silent at once, and none of its endpoints answers"
        return Outage("host_down", (ComponentKind.HOST, host), fact)

    def _settle(self, silent: dict[str, int], around: dict[str, int], now_ns: int) -> None:
        """Say what the agents of a group share, once all that may belong to it have joined."""
        for group in [g for g in self._groups if not g.places]:
            late = any(
                abs(at - group.latest_ns) <= TOGETHER_NS
                for agent, at in around.items()
                if agent not in silent
            )
            if late and now_ns - group.joined_ns < SETTLE_NS:
                continue
            if len(group.missed_ns) < MANY_AGENTS:
                # The others were only late.
                self._alone |= group.missed_ns.keys()
                self._groups.remove(group)
            else:
                group.places = self._shared(group.missed_ns)

    def _shared(self, silent: Iterable[str]) -> tuple[Place, ...]:
        """Return the smallest places that explain the silence; the agents if none does.

        Where most agents of the cluster are silent, the cluster is what they share.
        """
        held, missing, agents = Counter[Place](), Counter[Place](), set(silent)
        cluster = ComponentKind.UNKNOWN, self._cluster
        for agent in self._sources.members():
            for place in (*self._places(agent), cluster):
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
            return tuple((ComponentKind.AGENT, agent) for agent in sorted(agents))
        # Of two that hold as many a switch comes before a partition.
        least = min((held[p], p[1].startswith(HEARTBEAT.name)) for p in found)
        return tuple(
            sorted(p for p in found if (held[p], p[1].startswith(HEARTBEAT.name)) == least)
        )

    def _places(self, agent: Agent) -> set[Place]:
        """Return what an agent hangs on: its host and the switches of it, its partition."""
        topology, host = self._sources.topology, host_of(self._sources, agent)
        found: set[Place] = {(topology.kind(c), c) for c in topology.parents(host)}
        found.add((ComponentKind.HOST, host))
        for rnic in topology.children(host, ComponentKind.RNIC):
            found |= {
                (ComponentKind.SWITCH, c)
                for c in topology.neighbours(rnic)
                if topology.kind(c) is ComponentKind.SWITCH
            }
        if agent.partition is not None:
            found.add((ComponentKind.UNKNOWN, f"{HEARTBEAT.name}/{agent.partition}"))
        return found

    def _failing(self, silent: dict[str, int]) -> dict[str, set[FlowId]]:
        """Return the bad 5-tuples to each silent agent's endpoints."""
        found: defaultdict[str, set[FlowId]] = defaultdict(set)
        for key, _ in self._sources.anomalies.by_family(AnomalyFamily.LOSS):
            agent = self._sources.roster.agent_of(key[1])
            if agent in silent:
                found[str(agent)].add(key)
        return found

    def _claim_agent(self, agent_id: str, missed_ns: int, failing: dict[str, set[FlowId]]) -> Claim:
        keys = frozenset(failing.get(agent_id, ()))
        if agent_id in self._sources.liveness.unheard:
            facts = ["its endpoints answer probes: the agent lives, and is not heard"]
        else:
            facts = [
                f"{len(keys)} 5-tuples to its endpoints are not answered",
                "no state says that its container or its host is down",
            ]
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
        facts = [group.fact] if group.fact else []
        if len(names) > 1:
            facts.append(f"{len(names)} agents sent their last heartbeats within a few seconds")
        # Several places are the same to the evidence; several agents are what is silent.
        apart = len(group.places) > 1 and kind is ComponentKind.AGENT
        if apart:
            facts.append("nothing that they share explains it")
        elif len(group.places) > 1:
            others = ", ".join(place for _, place in group.places[1:9])
            facts.append(f"the evidence cannot tell it from {others}")
        unheard = len(self._sources.liveness.unheard.keys() & group.missed_ns.keys())
        if unheard:
            facts.append(f"the endpoints of {unheard} of them answer probes")
        facts += listed_names(SILENT_LINE, names)
        return make_claim(
            self._sources,
            KINDS[group.kind],
            component_id,
            decided=not apart,
            confidence=SILENCE_CONFIDENCE,
            candidates=[(place, SILENCE_CONFIDENCE) for _, place in group.places],
            keys=frozenset[FlowId]().union(*(failing.get(a, ()) for a in names)),
            good=0,
            onset_ns=min(group.missed_ns.values()),
            evidence=facts,
            ready=True,
            component_kind=kind,
            tasks=frozenset[str]().union(*map(self._sources.roster.tasks_of_agent, names)),
            replaces=frozenset(names),
        )
