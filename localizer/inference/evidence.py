"""Build the inference problem of one family: columns, priors and observations.

In: the bad 5-tuples, the index of all probed 5-tuples, traces, states. Out: an `Evidence` whose
`problem` goes to `localizer.inference.search.explain`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, compress
from math import log
from typing import Final

import numpy as np

from localizer.facts.anomalies import NO_LATE, Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.facts.findings import Span
from localizer.facts.inputs import Sources
from localizer.facts.sampling import Sample
from localizer.inference.address_blind import find_doubts
from localizer.inference.bonds import Bonds
from localizer.inference.causes import Cause, Columns, Reason
from localizer.inference.detection_lag import shown_by_now
from localizer.inference.good_flows import GoodFlows
from localizer.inference.hop_rows import HopRows
from localizer.inference.observations import ResolvedFaults, flow_rows
from localizer.inference.search import Problem
from localizer.inference.selective import selective_evidence
from localizer.inference.starvation import StarvedAgent, starved_agents
from localizer.network.directions import Directions
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from schemas.columns.arrays import Int64s
from schemas.enums import AnomalyFamily, ComponentKind
from schemas.ids import FlowId
from schemas.units import SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The observations of one family (loss or latency) at one time.

    Attributes
    ----------
    good
        Number of good 5-tuples that cross each column, shape (columns,).
    well
        Returns the number of good 5-tuples at an agent's endpoints.
    hidden
        Returns the number of 5-tuples through a component that are not bad, but whose agents are
        late: they may be good, or about to be missed.
    known
        Components of open faults.
    contested
        Cables that let others pass than those that are cut off, see `address_blind`.
    echoing
        Bad 5-tuples that cross no known component but whose replies may.
    bonds
        What tells bonded RNICs from their cables.
    replies
        Possible ways of replies.
    hosts
        The starved agents, each with its host.
    unseen
        Bad 5-tuples that were not looked at.
    """

    family: AnomalyFamily
    bad: tuple[BadFlow, ...]
    causes: tuple[Cause, ...]
    problem: Problem
    good: Int64s
    well: Callable[[str], int]
    hidden: Callable[[str], int]
    known: frozenset[str]
    contested: frozenset[str]
    echoing: frozenset[FlowId]
    bonds: Bonds
    replies: ReplyWays
    hosts: Mapping[str, str]
    unseen: "Unseen"


@dataclass(frozen=True, slots=True)
class Unseen:
    """The bad 5-tuples that are left out of a storm's sample.

    Attributes
    ----------
    keys
        Those that nothing else accounts for and that the index knows.
    symptoms
        The anomalies of each that count.
    places
        Their rows in the index, shape (keys,).
    onsets_ns
        When the first evidence of each was sent, shape (keys,).
    rows
        The rows of all, also of those that something else accounts for.
    index
        What all probed 5-tuples cross.
    """

    keys: tuple[FlowId, ...]
    symptoms: tuple[tuple[Symptom, ...], ...]
    places: Int64s
    onsets_ns: Int64s
    rows: Int64s
    index: FlowIndex

    @classmethod
    def of(
        cls, left_out: Iterable[tuple[FlowId, tuple[Symptom, ...]]], index: FlowIndex
    ) -> "Unseen":
        """Look up what a sample leaves out, as `BadFlows.left_out` yields it."""
        place = index.by_key.get
        rows, places, onsets_ns = list[int](), list[int](), list[int]()
        keys, symptoms = list[FlowId](), list[tuple[Symptom, ...]]()
        for key, some in left_out:
            row = place(key)
            if row is None:
                continue
            rows.append(row)
            if some:
                keys.append(key)
                symptoms.append(some)
                places.append(row)
                onsets_ns.append(
                    some[0].onset_ns if len(some) == 1 else min([s.onset_ns for s in some])
                )
        return cls(
            keys=tuple(keys),
            symptoms=tuple(symptoms),
            places=np.array(places, np.int64),
            onsets_ns=np.array(onsets_ns, np.int64),
            rows=np.array(rows, np.int64),
            index=index,
        )

    def through(self, cause: Cause, since_ns: int) -> frozenset[FlowId]:
        """Return those that cross a component, or are an agent's, and are bad only since a time."""
        number = self._number(cause)
        if number is None or not self.keys:
            return frozenset()
        crossing = (self.index.rows[self.places] == number).any(axis=1)
        return frozenset(compress(self.keys, (crossing & (self.onsets_ns >= since_ns)).tolist()))

    def _number(self, cause: Cause) -> int | None:
        match cause.reason:
            case Reason.COMPONENT:
                return self.index.components.get(cause.name)
            case Reason.PROBER:
                return self.index.probers.get(cause.name)
            case Reason.RESPONDER:
                return self.index.responders.get(cause.name)
            case _:
                return None


# Prior log odds of a fault: one in a thousand for a cable, half of that for what fails less often;
# more for noise, the most frequent cause. Only differences matter, and only where evidence is thin.
LOG_PRIOR: Final = {
    ComponentKind.LINK: -6.9,
    ComponentKind.RNIC: -7.2,
    ComponentKind.SWITCH: -7.6,
    ComponentKind.VSWITCH: -7.6,
    ComponentKind.VTEP: -7.6,
}
NOISE_PRIOR: Final = {
    (AnomalyFamily.LOSS, Reason.PROBER): -7.0,
    (AnomalyFamily.LOSS, Reason.RESPONDER): -7.0,
    # The evidence of late answers is added.
    (AnomalyFamily.LOSS, Reason.STARVED): -7.0,
    (AnomalyFamily.LOSS, Reason.REPLY): -6.0,
    (AnomalyFamily.LOSS, Reason.GLOBAL): -9.0,
    (AnomalyFamily.LATENCY, Reason.PROBER): -4.5,
    (AnomalyFamily.LATENCY, Reason.RESPONDER): -4.5,
    (AnomalyFamily.LATENCY, Reason.GLOBAL): -6.0,
}
# Added to the prior of a component with an open fault: it explains further bad observations first.
# And to that of one that leaks: chance is excluded already, by a test of much more than which
# 5-tuples lost anything, and so is what open faults lose of replies. All that might be the one at
# fault get it, so it does not say which.
KNOWN_BONUS: Final = 6.0
# Faults of one cluster's network are this far apart on average: a few a day, and once an hour to be
# careful.
BETWEEN_FAULTS_NS: Final = 3600 * SECOND_NS
# How exactly the onset of a fault is known: a round and its confirmations, or a window and a half.
DATING_NS: Final = {AnomalyFamily.LOSS: 2 * SECOND_NS, AnomalyFamily.LATENCY: 45 * SECOND_NS}
# Grid of (probability that a 5-tuple is bad by chance, log weight). Detectors keep below the first;
# the higher rates describe a machine in trouble.
CHANCE: Final = {
    AnomalyFamily.LOSS: ((0.002, 0.0), (0.02, -2.5), (0.15, -5.0), (0.5, -7.0)),
    AnomalyFamily.LATENCY: ((0.005, 0.0), (0.05, -2.0), (0.3, -4.0), (0.7, -6.0)),
}
# Probability that a single probe of a trace is lost, or late, without a fault of the network.
HOP_CHANCE: Final = {AnomalyFamily.LOSS: 0.02, AnomalyFamily.LATENCY: 0.1}
# Replies are lost at faults that lose probes as well: lost replies are a candidate cause where less
# than this share of the bad 5-tuples that cross no open fault reached the target.
REPLY_SHARE: Final = 0.8
# A cluster-wide disturbance is a candidate cause if this share of all 5-tuples is bad.
GLOBAL_SHARE: Final = 0.3
# Suspects that tell how many 5-tuples of one agent cross the same one.
MAX_SUSPECTS: Final = 64


def gather(
    sources: Sources,
    places: Directions,
    family: AnomalyFamily,
    bad: list[BadFlow],
    *,
    now_ns: int,
    explained: frozenset[FlowId],
    resolved: ResolvedFaults,
    known_ns: Mapping[str, int],
    owned: frozenset[FlowId],
    decided: frozenset[FlowId],
    settled: frozenset[str] = frozenset(),
    leaking: frozenset[str] = frozenset(),
    allow_global: bool,
    hops: HopRows,
    sample: Sample,
    left_out: Iterable[tuple[FlowId, tuple[Symptom, ...]]],
) -> Evidence | None:
    """Return the observations to explain; None if no bad 5-tuple crosses a candidate cause.

    Parameters
    ----------
    places
        The directed cables of all 5-tuples, with their index and the ways of replies.
    bad
        As `BadFlows.unexplained` returns them.
    explained
        5-tuples that something else accounts for; their traces do not count either.
    resolved
        What resolved faults account for: traces from before their resolution do not count.
    known_ns
        Components of decided open faults, and when these began.
    owned, decided
        5-tuples of open faults, and of those that are decided.
    settled
        Components of decided open faults that are not moved to another one any more.
    leaking
        Components that lose more than chance explains, by all their losses together.
    allow_global
        Whether a cluster-wide disturbance is still accepted as a cause.
    hops
        What the family's last decision made of traces.
    sample
        Which 5-tuples with open anomalies were looked at to find the bad ones.
    left_out
        As `BadFlows.left_out` yields them.
    """
    index, replies = places.index, places.replies
    known = frozenset(known_ns)
    bad = [*_possibly_replyless(bad, known, replies)]
    unseen = Unseen.of(left_out, index)
    excluded = _excluded(sources, index, family, bad, sample=sample, now_ns=now_ns)
    good = GoodFlows.of(index, *excluded, bad_rows=unseen.rows)
    crossed = set[str]().union(*(f.components for f in bad))
    priors = _priors(sources, crossed)
    total = sum(flow.stands_for for flow in bad) + good.total
    causes = [Cause.of(Reason.COMPONENT, c) for c in sorted(priors)]
    causes += [Cause.of(Reason.PROBER, a) for a in sorted({f.prober for f in bad})]
    causes += [
        Cause.of(Reason.RESPONDER, a) for a in sorted({f.responder for f in bad if f.responder})
    ]
    starved: dict[str, StarvedAgent] = {}
    if family is AnomalyFamily.LOSS:
        # What a sample leaves out may be all that some target has answered late.
        late = chain(bad, _unseen_flows(sources, unseen))
        starved = starved_agents(late, sources.roster.host_of)
    hosts = {agent: one.host for agent, one in starved.items()}
    causes += [Cause.of(Reason.STARVED, host) for host in sorted(set(hosts.values()))]
    open_count = sum(flow.stands_for for flow in bad if flow.open)
    if any(flow.replyless for flow in bad):
        causes.append(Cause.of(Reason.REPLY))
    if allow_global and open_count >= max(4, GLOBAL_SHARE * total):
        causes.append(Cause.of(Reason.GLOBAL))
    if not causes:
        return None
    column = Columns.of(tuple(causes), tuple(hosts.items()))
    hints = _hints(sources, family, bad, priors)
    # What open faults account for began with them. It dates nothing that began later.
    fresh = [f for f in bad if f.key not in owned and known.isdisjoint(f.components)]
    second = _chance_of_another(
        family, known_ns.values(), (f for f in bad if not _accounted(f, known, decided))
    )
    echoing = frozenset(
        flow.key
        for flow in (bad if known else ())
        if known.isdisjoint(flow.components) and not known.isdisjoint(replies.shares(*flow.key[:2]))
    )
    if family is AnomalyFamily.LOSS:
        fresh = [flow for flow in fresh if flow.key not in echoing]
    suspects = sorted({c for flow in fresh if flow.cut for c in flow.components if c in priors})
    shown = shown_by_now(
        family,
        fresh,
        bad,
        now_ns=now_ns,
        alike=good.alike(suspects[:: 1 + len(suspects) // MAX_SUSPECTS]),
    )
    contested = frozenset[str]()
    if family is AnomalyFamily.LOSS:
        through = _through_switches(sources, bad, priors)
        selective = selective_evidence(
            good,
            replies.shares,
            through,
            shown,
            leaves=replies.leaves,
            all_bad=bad,
            chance=CHANCE[family][0][0],
        )
        for switch, ratio in selective.items():
            hints[switch] = hints.get(switch, 0.0) + ratio
        bad, contested = find_doubts(bad, good, shown, places, sources.paths.components)
    unlisted = good.columns(column, len(causes), shown)
    counts = sum((rows.counts for rows in unlisted), np.zeros(len(causes))).astype(np.int64)
    problem = Problem(
        names=tuple(f"{cause.order}{cause.name}" for cause in causes),
        log_prior=np.array(
            [
                priors[cause.name]
                + (0.0 if cause.name in known or cause.name in leaking else second)
                + max(
                    KNOWN_BONUS * (cause.name in known or cause.name in leaking),
                    hints.get(cause.name, 0.0),
                )
                if cause.reason is Reason.COMPONENT
                else _noise_prior(family, cause, starved)
                for cause in causes
            ]
        ),
        blamable=np.ones(len(causes), dtype=np.bool_),
        flows=flow_rows(replies, bad, column, unlisted, starved),
        hops=hops.block(
            sources,
            bad,
            column,
            index=index,
            replies=replies,
            explained=explained,
            known=known,
            resolved=resolved,
            onset_ns=min(flow.onset_ns for flow in fresh or bad),
            now_ns=now_ns,
        ),
        chance=CHANCE[family],
        hop_chance=HOP_CHANCE[family],
    )
    return Evidence(
        family=family,
        bad=tuple(bad),
        causes=tuple(causes),
        problem=problem,
        good=counts,
        well=good.at_agent,
        hidden=good.hidden_at,
        known=known,
        contested=contested,
        bonds=Bonds(
            topology=sources.topology,
            good=good,
            bad=bad,
            log_prior={name: prior + hints.get(name, 0.0) for name, prior in priors.items()},
            strays=cache(sources.strays.counts) if family is AnomalyFamily.LOSS else None,
            known=known,
            settled=settled,
        ),
        replies=replies,
        echoing=echoing,
        hosts=hosts,
        unseen=unseen,
    )


def _unseen_flows(sources: Sources, unseen: Unseen) -> Iterator[BadFlow]:
    """Yield those of the 5-tuples that were not looked at whose symptoms tell of late answers."""
    agent_of = sources.roster.agent_of
    for key, symptoms in zip(unseen.keys, unseen.symptoms, strict=True):
        if any(s.prober_late != NO_LATE or s.responder_late != NO_LATE for s in symptoms):
            yield BadFlow.left_out(key, symptoms, agent_of(key[1]))


def _possibly_replyless(
    bad: list[BadFlow], known: frozenset[str], replies: ReplyWays
) -> Iterator[BadFlow]:
    """Yield the 5-tuples as replyless only where a fault elsewhere can have lost their replies.

    In traces, a dead port of the target looks like a reply lost on its way: all but the target
    answer. An open fault that no reply can cross has lost none.
    """
    fresh = [flow for flow in bad if known.isdisjoint(flow.components)]
    among_others = sum(flow.replyless for flow in fresh) < REPLY_SHARE * len(fresh)
    for flow in bad:
        ways = replies.shares(*flow.key[:2]) if known and flow.replyless else known
        # Where the ways of its reply are not known, they may cross the open fault.
        elsewhere = bool(known) and not (ways and known.isdisjoint({*ways, *flow.components}))
        if flow.replyless and not (among_others or elsewhere):
            yield flow.without_passed(flow.components, replyless=False, traced=flow.traced)
        else:
            yield flow


def _accounted(flow: BadFlow, known: frozenset[str], decided: frozenset[FlowId]) -> bool:
    """Return whether a decided open fault explains a bad 5-tuple: its own, or one that crosses it.

    Not what it had let pass.
    """
    return flow.key in decided or not flow.passed_before.issuperset(
        known.intersection(flow.components)
    )


def _chance_of_another(
    family: AnomalyFamily, known_ns: Collection[int], others: Iterable[BadFlow]
) -> float:
    """Return the log probability that one more fault begins so close to an open one, by chance.

    Replies that the open fault loses, and 5-tuples that it delays as they wait behind others, begin
    to be bad together with it. `others` are the bad 5-tuples that no open fault accounts for:
    without any, nothing tells the times of two faults apart.
    """
    if not known_ns:
        return 0.0
    began_ns = min((flow.onset_ns for flow in others), default=None)
    apart_ns = 0 if began_ns is None else min(abs(began_ns - at_ns) for at_ns in known_ns)
    return min(0.0, log((apart_ns + DATING_NS[family]) / BETWEEN_FAULTS_NS))


def _priors(sources: Sources, components: Iterable[str]) -> dict[str, float]:
    """Return the prior log odds of the components that can be at fault, by their kinds."""
    kind, known = sources.topology.kind, LOG_PRIOR.get
    return {c: prior for c in components if (prior := known(kind(c))) is not None}


def _hints(
    sources: Sources, family: AnomalyFamily, bad: list[BadFlow], components: Collection[str]
) -> dict[str, float]:
    """Return by component the evidence of what went out of order there with the symptoms."""
    findings = sources.findings
    marked = findings.marked(components, family)
    spans: defaultdict[str, set[Span]] = defaultdict(set)
    for flow in bad if marked else ():
        for component in flow.components:
            if component in marked and component not in flow.passed_before:
                spans[component].add((flow.onset_ns, max(flow.onset_ns, flow.seen_ns)))
    return {c: findings.evidence(c, family, at) for c, at in spans.items()}


def _through_switches(
    sources: Sources, bad: list[BadFlow], components: Iterable[str]
) -> dict[str, list[BadFlow]]:
    """Return by switch the bad 5-tuples that cross it, of the components that they cross."""
    kind = sources.topology.kind
    found: dict[str, list[BadFlow]] = {c: [] for c in components if kind(c) is ComponentKind.SWITCH}
    for flow in bad:
        for component in flow.components:
            if component in found:
                found[component].append(flow)
    return found


def _noise_prior(family: AnomalyFamily, cause: Cause, starved: dict[str, StarvedAgent]) -> float:
    prior = NOISE_PRIOR[family, cause.reason]
    if cause.reason is Reason.STARVED:
        prior += max(one.evidence for one in starved.values() if one.host == cause.name)
    return prior


def _excluded(
    sources: Sources,
    index: FlowIndex,
    family: AnomalyFamily,
    bad: list[BadFlow],
    *,
    sample: Sample,
    now_ns: int,
) -> tuple[set[FlowId], set[str]]:
    """Return the 5-tuples that are not good, and the agents whose reports are not reliable.

    Without those that the sample leaves out.
    """
    board = sources.anomalies
    not_good = {flow.key for flow in bad}.union(key for _, key in sample)
    if family is AnomalyFamily.LATENCY:
        # Lost probes have no round trip: the remaining ones say little about latency.
        not_good |= board.flows_of(AnomalyFamily.LOSS)
    return not_good, sources.liveness.uninformative((index.probers, index.responders), now_ns)
