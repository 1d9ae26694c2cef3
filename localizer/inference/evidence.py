"""From open anomalies, good paths and traces to the observations that inference explains."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from localizer.facts.anomalies import Family
from localizer.facts.bad_flows import BadFlow
from localizer.facts.inputs import Sources
from localizer.inference.causes import Cause, Columns, Reason
from localizer.inference.detection_lag import shown_by_now
from localizer.inference.good_flows import GoodFlows
from localizer.inference.observations import ResolvedFaults, flow_rows, hop_rows
from localizer.inference.search import Problem
from localizer.network.flow_index import FlowIndex
from localizer.network.paths import FlowKey
from localizer.network.replies import ReplyWays
from schemas.columns.arrays import Int64s
from schemas.enums import ComponentKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Observations of one family at one time.

    `good` counts the good 5-tuples of each column, shape (columns,); `well` counts those at
    an agent's endpoints. `known`: components of faults that are open; `echoing`: bad 5-tuples
    that cross none of them, but whose replies may.
    """

    family: Family
    bad: tuple[BadFlow, ...]
    causes: tuple[Cause, ...]
    problem: Problem
    good: Int64s
    well: Callable[[str], int]
    known: frozenset[str]
    echoing: frozenset[FlowKey]


# Log odds beforehand that a thing is at fault. One in a thousand for a cable, half
# as many for what fails less often; for noise more, since it is what mostly happens.
# Only differences matter, and only where the evidence is thin.
LOG_PRIOR: Final = {
    ComponentKind.LINK: -6.9,
    ComponentKind.RNIC: -7.2,
    ComponentKind.SWITCH: -7.6,
    ComponentKind.VSWITCH: -7.6,
    ComponentKind.VTEP: -7.6,
}
NOISE_PRIOR: Final = {
    (Family.LOSS, Reason.PROBER): -7.0,
    (Family.LOSS, Reason.RESPONDER): -7.0,
    (Family.LOSS, Reason.REPLY): -6.0,
    (Family.LOSS, Reason.GLOBAL): -9.0,
    (Family.LATENCY, Reason.PROBER): -4.5,
    (Family.LATENCY, Reason.RESPONDER): -4.5,
    (Family.LATENCY, Reason.GLOBAL): -6.0,
}
# What is already known to be at fault explains more of the same at once.
KNOWN_BONUS: Final = 6.0
# What shows a state that is out of order since about then is at fault far more likely.
STATE_BONUS: Final = 4.0
# Grid of chance rates of a bad 5-tuple, with log weights: a detector keeps a rate
# far below the first; a machine in trouble makes the others.
CHANCE: Final = {
    Family.LOSS: ((0.002, 0.0), (0.02, -2.5), (0.15, -5.0), (0.5, -7.0)),
    Family.LATENCY: ((0.005, 0.0), (0.05, -2.0), (0.3, -4.0), (0.7, -6.0)),
}
# Single probes of a trace that are lost, or late, for no reason of the network.
HOP_CHANCE: Final = {Family.LOSS: 0.02, Family.LATENCY: 0.1}
# Replies lost elsewhere are thinkable beside a fault that probes are lost at: when at most
# this share of the bad 5-tuples got as far as the target, or a fault is open.
REPLY_SHARE: Final = 0.8
# "Everything" is thinkable when this share of all 5-tuples is bad.
GLOBAL_SHARE: Final = 0.3


def gather(
    sources: Sources,
    index: FlowIndex,
    replies: ReplyWays,
    family: Family,
    bad: list[BadFlow],
    *,
    now_ns: int,
    explained: frozenset[FlowKey],
    resolved: ResolvedFaults,
    known: frozenset[str],
    allow_global: bool,
) -> Evidence | None:
    """Return the observations to explain; None when nothing known crosses a bad 5-tuple.

    Parameters
    ----------
    bad
        As `bad_flows` returns them.
    explained
        5-tuples that something else accounts for; their traces do not count either.
    resolved
        What resolved faults account for: no trace from before their resolve counts.
    known
        Components of faults that are open.
    allow_global
        Whether "everything at once" is still an explanation.
    """
    good = GoodFlows.of(index, *_not_good(sources, index, family, bad, now_ns))
    crossed = set[str]().union(*(f.components for f in bad))
    priors = _priors(sources, crossed)
    total = len(bad) + good.total
    causes = [Cause.of(Reason.COMPONENT, c) for c in sorted(priors)]
    causes += [Cause.of(Reason.PROBER, a) for a in sorted({f.prober for f in bad})]
    causes += [
        Cause.of(Reason.RESPONDER, a) for a in sorted({f.responder for f in bad if f.responder})
    ]
    open_count = sum(flow.open for flow in bad)
    replyless = sum(flow.replyless for flow in bad)
    if replyless and (known or replyless < REPLY_SHARE * len(bad)):
        causes.append(Cause.of(Reason.REPLY))
    if allow_global and open_count >= max(4, GLOBAL_SHARE * total):
        causes.append(Cause.of(Reason.GLOBAL))
    if not causes:
        return None
    column = Columns.of(causes)
    onset_ns = min(flow.onset_ns for flow in bad)
    lag = shown_by_now(family, bad, now_ns=now_ns, known=known)
    unlisted = good.columns(column, len(causes), lag)
    counts = unlisted.counts.astype(np.int64)
    problem = Problem(
        names=tuple(f"{cause.order}{cause.name}" for cause in causes),
        log_prior=np.array(
            [
                priors[cause.name] + _bonus(sources, family, cause.name, known, onset_ns)
                if cause.reason is Reason.COMPONENT
                else NOISE_PRIOR[family, cause.reason]
                for cause in causes
            ]
        ),
        blamable=np.ones(len(causes), dtype=np.bool_),
        flows=flow_rows(replies, bad, column, unlisted),
        hops=hop_rows(
            sources,
            family,
            bad,
            column,
            replies=replies,
            explained=explained,
            resolved=resolved,
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
        known=known,
        echoing=frozenset(
            flow.key
            for flow in (bad if known else ())
            if known.isdisjoint(flow.components)
            and not known.isdisjoint(replies.shares(*flow.key[:2]))
        ),
    )


def _priors(sources: Sources, components: Iterable[str]) -> dict[str, float]:
    """Return the log odds by their kinds of those that can be blamed."""
    kind, known = sources.topology.kind, LOG_PRIOR.get
    return {c: prior for c in components if (prior := known(kind(c))) is not None}


def _bonus(
    sources: Sources, family: Family, name: str, known: frozenset[str], onset_ns: int
) -> float:
    if name in known:
        return KNOWN_BONUS
    return STATE_BONUS if sources.states.fresh(name, family, onset_ns) else 0.0


def _not_good(
    sources: Sources, index: FlowIndex, family: Family, bad: list[BadFlow], now_ns: int
) -> tuple[set[FlowKey], set[str]]:
    """Return the 5-tuples that are not good, and the agents that do not say that theirs are."""
    board = sources.anomalies
    spoilt = {flow.key for flow in bad} | board.flows_of(family)
    if family is Family.LATENCY:
        # Where probes are lost, those that arrive say little about the round trip.
        spoilt |= board.flows_of(Family.LOSS)
    return spoilt, sources.liveness.uninformative((index.probers, index.responders), now_ns)
