"""From open anomalies, good paths and traces to the observations that inference explains."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from localizer.anomalies import Family
from localizer.causes import Cause, Columns, Reason
from localizer.flow_index import FlowIndex
from localizer.lag import shown_by_now
from localizer.observations import flow_rows, hop_rows
from localizer.paths import FlowKey
from localizer.replies import ReplyWays
from localizer.suspicion import BadFlow, Sources
from localizer.told import Told
from localizer.underlay import Problem
from schemas.enums import ComponentKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Observations of one family at one time.

    `good` counts the good 5-tuples of each column, shape (columns,); `probed` and
    `well` count, by agent, the 5-tuples at its endpoints and the good ones of these.
    `known`: components of faults that are open; `echoing`: bad 5-tuples that cross none of
    them, but whose replies may.
    """

    family: Family
    bad: tuple[BadFlow, ...]
    causes: tuple[Cause, ...]
    problem: Problem
    good: tuple[int, ...]
    well: dict[str, int]
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
    (Family.LOSS, Reason.EVERYTHING): -9.0,
    (Family.LATENCY, Reason.PROBER): -4.5,
    (Family.LATENCY, Reason.RESPONDER): -4.5,
    (Family.LATENCY, Reason.EVERYTHING): -6.0,
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
EVERYTHING_SHARE: Final = 0.3


def gather(
    sources: Sources,
    index: FlowIndex,
    replies: ReplyWays,
    family: Family,
    bad: list[BadFlow],
    *,
    now_ns: int,
    explained: frozenset[FlowKey],
    told: Told,
    known: frozenset[str],
    allow_everything: bool,
) -> Evidence | None:
    """Return the observations to explain; None when nothing known crosses a bad 5-tuple.

    Parameters
    ----------
    bad
        As `bad_flows` returns them.
    explained
        5-tuples that something else accounts for; their traces do not count either.
    told
        What resolved faults account for: no trace from before their resolve counts.
    known
        Components of faults that are open.
    allow_everything
        Whether "everything at once" is still an explanation.
    """
    places, bad_keys = _nearby(sources, index, family, bad, now_ns)
    suspects = sorted({c for flow in bad for c in flow.components if _blamable(sources, c)})
    total = len(bad) + _good_count(sources, index, bad_keys, now_ns)
    causes = [Cause.make(Reason.COMPONENT, c) for c in suspects]
    causes += [Cause.make(Reason.PROBER, a) for a in sorted({f.prober for f in bad})]
    causes += [
        Cause.make(Reason.RESPONDER, a) for a in sorted({f.responder for f in bad if f.responder})
    ]
    open_count = sum(flow.open for flow in bad)
    replyless = sum(flow.replyless for flow in bad)
    if replyless and (known or replyless < REPLY_SHARE * len(bad)):
        causes.append(Cause.make(Reason.REPLY))
    if allow_everything and open_count >= max(4, EVERYTHING_SHARE * total):
        causes.append(Cause.make(Reason.EVERYTHING))
    if not causes:
        return None
    column = Columns.of(causes)
    rest = max(0, total - len(bad) - len(places))
    onset_ns = min(flow.onset_ns for flow in bad)
    lag = shown_by_now(family, bad, now_ns=now_ns, known=known)
    flows, good = flow_rows(
        index, replies, bad, places, column, width=len(causes), rest=rest, lag=lag
    )
    problem = Problem(
        names=tuple(f"{cause.order}{cause.name}" for cause in causes),
        log_prior=np.array(
            [_log_prior(sources, family, cause, known, onset_ns) for cause in causes]
        ),
        blamable=np.ones(len(causes), dtype=np.bool_),
        flows=flows,
        hops=hop_rows(
            sources,
            family,
            bad,
            column,
            replies=replies,
            explained=explained,
            told=told,
            now_ns=now_ns,
        ),
        chance=CHANCE[family],
        hop_chance=HOP_CHANCE[family],
    )
    well: defaultdict[str, int] = defaultdict(int)
    for place in places:
        row = index.flows[place]
        for agent in {row.prober, row.responder} - {None}:
            well[str(agent)] += 1
    return Evidence(
        family=family,
        bad=tuple(bad),
        causes=tuple(causes),
        problem=problem,
        good=tuple(good),
        well=dict(well),
        known=known,
        echoing=frozenset(
            flow.key
            for flow in bad
            if known.isdisjoint(flow.components) and not known.isdisjoint(replies.of(*flow.key[:2]))
        ),
    )


def _blamable(sources: Sources, component: str) -> bool:
    return sources.topology.kind(component) in LOG_PRIOR


def _log_prior(
    sources: Sources, family: Family, cause: Cause, known: frozenset[str], onset_ns: int
) -> float:
    if cause.reason is not Reason.COMPONENT:
        return NOISE_PRIOR[family, cause.reason]
    prior = LOG_PRIOR[sources.topology.kind(cause.name)]
    if cause.name in known:
        return prior + KNOWN_BONUS
    if sources.states.fresh(cause.name, family, onset_ns):
        return prior + STATE_BONUS
    return prior


def _good_count(sources: Sources, index: FlowIndex, bad_keys: set[FlowKey], now_ns: int) -> int:
    mute = {a for a in index.of if not sources.liveness.speaks(a, now_ns)}
    if not mute:
        return len(index.flows) - len(bad_keys & index.by_key.keys())
    silent = {place for agent in mute for place in index.of[agent]}
    silent |= {index.by_key[key] for key in bad_keys & index.by_key.keys()}
    return len(index.flows) - len(silent)


def _nearby(
    sources: Sources, index: FlowIndex, family: Family, bad: list[BadFlow], now_ns: int
) -> tuple[list[int], set[FlowKey]]:
    """Return good 5-tuples that share anything with a bad one, and all keys that are not good."""
    spoilt = {key for key, _ in sources.board.family(family)} | {flow.key for flow in bad}
    if family is Family.LATENCY:
        # Where probes are lost, those that arrive say little about the round trip.
        spoilt |= {key for key, _ in sources.board.family(Family.LOSS)}
    suspects = {c for flow in bad for c in flow.components if _blamable(sources, c)}
    agents = {a for flow in bad for a in (flow.prober, flow.responder) if a is not None}
    near = {place for c in suspects for place in index.at.get(c, ())}
    near |= {place for a in agents for place in index.of.get(a, ())}
    speaks = {a: sources.liveness.speaks(a, now_ns) for a in index.of}
    good = [
        place
        for place in sorted(near)
        if (row := index.flows[place]).key not in spoilt
        and speaks[row.prober]
        and (row.responder is None or speaks[row.responder])
    ]
    return good, spoilt
