"""Claims from what agents say of themselves: displaced, probing nothing, lists refused, clock off.

The rules are data. Of a kind that several agents of a host show at once the host is claimed, and
the cluster if it is those of many hosts, with the list in the evidence: it has one cause.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from localizer.facts.inputs import Sources
from localizer.verdict.catalogue import KINDS
from localizer.verdict.claims import Claim, make_claim
from localizer.verdict.outages import host_of
from localizer.verdict.silences import MANY_AGENTS, listed_names
from schemas.enums import ComponentKind
from schemas.units import SECOND_NS

SELF_CONFIDENCE: Final = 0.99
# Of a reason in a heartbeat so many characters are shown.
MAX_REASON: Final = 256

# Agent, since when, and what its heartbeats say.
Complaint = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a kind of fault is claimed.

    Attributes
    ----------
    find
        Returns the agents that show it.
    settle_ns
        How long it must last: a restart or a list on its way shows it for a moment.
    """

    kind: str
    find: Callable[[Sources], Iterator[Complaint]]
    settle_ns: int


def _displaced(sources: Sources) -> Iterator[Complaint]:
    for agent_id, known in sources.reports.displaced.items():
        text = f"the process that started at {known.incarnation} ns yielded its name"
        agent = sources.liveness.get(agent_id)
        if known.displaced_by is not None:
            text += f" to the one that registered with {known.displaced_by} ns"
            if agent is None or agent.incarnation != known.displaced_by:
                text += ", of which there are no heartbeats: it ended, or its registration is false"
        yield agent_id, known.since_ns, text


def _stopped(sources: Sources) -> Iterator[Complaint]:
    for agent_id in sources.reports.notable:
        report = sources.reports.get(agent_id)
        if report.stopped_ns is not None and sources.roster.has_peers(agent_id):
            why = f": {report.reason[:MAX_REASON]}" if report.reason else ""
            text = f"its heartbeats say {report.probing.value}{why}, and its task is running"
            yield agent_id, report.stopped_ns, text


def _refused(sources: Sources) -> Iterator[Complaint]:
    for agent_id in sources.reports.notable:
        report = sources.reports.get(agent_id)
        if report.refused_ns is not None:
            why = str(report.refusal)[:MAX_REASON]
            text = f"the newest list was refused: {why}; an earlier one is in force"
            yield agent_id, report.refused_ns, text


def _clock(sources: Sources) -> Iterator[Complaint]:
    for agent_id in sources.reports.notable:
        report = sources.reports.get(agent_id)
        if report.clock_ns is not None and report.offset_ns is not None:
            side = "ahead of" if report.offset_ns > 0 else "behind"
            text = f"its clock is {abs(report.offset_ns) / SECOND_NS:.3f} s {side} the broker's"
            yield agent_id, report.clock_ns, text


RULES: Final = (
    Rule(kind="agent_displaced", find=_displaced, settle_ns=10 * SECOND_NS),
    Rule(kind="probing_stopped", find=_stopped, settle_ns=30 * SECOND_NS),
    Rule(kind="list_refused", find=_refused, settle_ns=10 * SECOND_NS),
    # The offset is a median over a minute already.
    Rule(kind="agent_clock", find=_clock, settle_ns=0),
)


def self_claims(cluster: str, sources: Sources, now_ns: int) -> list[Claim]:
    """Return what agents say of themselves as claims; those of silent agents are left out."""
    claims: list[Claim] = []
    for rule in RULES:
        found = sorted(
            one
            for one in rule.find(sources)
            if rule.find is _displaced or sources.liveness.seen_recently(one[0], now_ns)
        )
        settled = [one for one in found if now_ns - one[1] >= rule.settle_ns]
        hosts: defaultdict[str, list[Complaint]] = defaultdict(list)
        for one in settled:
            agent = sources.liveness.get(one[0])
            hosts[one[0] if agent is None else host_of(sources, agent)].append(one)
        if len(hosts) >= MANY_AGENTS:
            claims.append(_claim_together(sources, rule, cluster, ComponentKind.UNKNOWN, found))
            continue
        for host, mine in sorted(hosts.items()):
            if len(mine) > 1:
                claims.append(_claim_together(sources, rule, host, ComponentKind.HOST, mine))
            else:
                ((agent_id, since_ns, text),) = mine
                what = agent_id, since_ns, [text]
                claims.append(_claim(sources, rule, what, ComponentKind.AGENT, [agent_id]))
    return claims


def _claim_together(
    sources: Sources, rule: Rule, place: str, kind: ComponentKind, found: list[Complaint]
) -> Claim:
    """Return the claim of a place whose agents show the same: better than those of each."""
    names = [agent_id for agent_id, _, _ in found]
    facts = [f"{len(names)} agents at once; {names[0]}: {found[0][2]}"]
    facts += listed_names("agents: ", names)
    onset_ns = min(since_ns for _, since_ns, _ in found)
    claim = _claim(sources, rule, (place, onset_ns, facts), kind, names)
    return replace(claim, replaces=frozenset(names))


def _claim(
    sources: Sources,
    rule: Rule,
    what: tuple[str, int, list[str]],
    kind: ComponentKind,
    agents: list[str],
) -> Claim:
    name, onset_ns, facts = what
    return make_claim(
        sources,
        KINDS[rule.kind],
        name,
        decided=True,
        confidence=SELF_CONFIDENCE,
        candidates=[(name, SELF_CONFIDENCE)],
        keys=frozenset(),
        good=0,
        onset_ns=onset_ns,
        evidence=facts,
        ready=True,
        component_kind=kind,
        tasks=frozenset[str]().union(*map(sources.roster.tasks_of_agent, agents)),
    )
