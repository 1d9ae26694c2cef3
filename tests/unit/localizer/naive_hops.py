"""The rows of single probes of traces, derived anew and one by one: twin of `HopRows.block`."""

from statistics import median

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.facts.inputs import Sources
from localizer.facts.liveness import ONSET_SLACK_NS
from localizer.inference.causes import Columns
from localizer.inference.hop_rows import (
    HOP_LATE_SHARE,
    HOPS_NS,
    MAX_OTHERS,
    PORT,
    SILENCED_CHANCE,
    Row,
)
from localizer.inference.observations import LATE_CHANCE, ResolvedFaults
from localizer.inference.tables import Block, PossibleCrossings
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from localizer.network.traces import HopProbe
from schemas.enums import AnomalyFamily
from schemas.ids import FlowId


def hop_rows(
    family: AnomalyFamily,
    sources: Sources,
    bad: list[BadFlow],
    column: Columns,
    *,
    index: FlowIndex,
    replies: ReplyWays,
    explained: frozenset[FlowId],
    known: frozenset[str],
    resolved: ResolvedFaults,
    onset_ns: int,
    now_ns: int,
) -> Block:
    """Return the block, of few 5-tuples: all their traces are read, whatever they cross."""
    del index
    onset_ns -= ONSET_SLACK_NS
    since_ns = max(onset_ns, now_ns - HOPS_NS)
    shifts = [s.shift_ns for flow in bad for s in flow.symptoms if s.shift_ns is not None]
    late_ns = HOP_LATE_SHARE * median(shifts) if shifts else 0.0
    flows = {flow.key: flow for flow in bad}
    weights: dict[Row, float] = {}
    traced = sources.paths.traced_since(since_ns, MAX_OTHERS)
    for key in sorted(
        {*traced, *(k for k in flows if (sources.paths.traced_ns(k) or 0) >= since_ns)}
    ):
        if key in explained:
            continue
        if any(c in known and c not in column.components for c in sources.paths.components(key)):
            continue
        flow = flows.get(key)
        own_ns = since_ns
        if family is AnomalyFamily.LOSS:
            own_ns = max(since_ns, resolved.until_ns(key) + 1)
        probes = [
            (probe, is_bad(family, probe, late_ns))
            for probe in sources.paths.hop_probes(key, own_ns, onset_ns)
            if family is AnomalyFamily.LOSS or probe.rise_ns is not None
        ]
        for probe, outcome in probes:
            alike = sum(bad and p.traced_ns == probe.traced_ns for p, bad in probes)
            silences = family is AnomalyFamily.LOSS and (flow is None or flow.cut)
            if silences and any(
                is_joined(sources, component, onset_ns) for component in probe.beyond
            ):
                silences = False
            add_probe(
                weights, key, flow, probe=probe, bad_weight=1.0 / alike if outcome else None,
                sources=sources, column=column, replies=replies, silences=silences,
            )  # fmt: skip
    entries = list(weights)
    places = [(n, c) for n, (_, crossed, _, _) in enumerate(entries) for c in crossed]
    possible = []
    for n, (_, _, ways, silenced) in enumerate(entries):
        together = sum(weight for row, weight in weights.items() if row[3] == silenced)
        chance = SILENCED_CHANCE ** (1.0 / max(1.0, together))
        possible += [(n, *each) for each in (*ways, *((c, chance) for c in silenced))]
    return Block(
        bad=np.array([bad for bad, _, _, _ in entries], np.bool_),
        weight=np.array(list(weights.values()), np.float64),
        lag=np.ones(len(entries)),
        rows=np.array([n for n, _ in places], np.int64),
        columns=np.array([c for _, c in places], np.int64),
        possible=PossibleCrossings(
            rows=np.array([n for n, _, _ in possible], np.int64),
            columns=np.array([c for _, c, _ in possible], np.int64),
            chance=np.array([chance for _, _, chance in possible], np.float64),
        ),
    )


def is_joined(sources: Sources, component: str, since_ns: int) -> bool:
    """Return whether a component has a port that is known to be up since a time."""
    findings = sources.states.findings(component, AnomalyFamily.LOSS)
    down = any(finding.shown.startswith(PORT) for finding in findings)
    return sources.states.read_since(component, PORT, since_ns) and not down


def is_bad(family: AnomalyFamily, probe: HopProbe, late_ns: float) -> bool:
    """Return whether a probe was lost, or late."""
    if family is AnomalyFamily.LOSS:
        return not probe.answered
    return probe.rise_ns is not None and probe.rise_ns > late_ns


def add_probe(
    weights: dict[Row, float],
    key: FlowId,
    flow: BadFlow | None,
    *,
    probe: HopProbe,
    bad_weight: float | None,
    sources: Sources,
    column: Columns,
    replies: ReplyWays,
    silences: bool,
) -> None:
    """Add a probe to the weight of its row; `bad_weight`: None for a good one."""
    silent = probe.target and bad_weight is not None
    if silent and (flow is None or (flow.replyless and column.reply is not None)):
        return
    agent_of = sources.roster.agent_of
    prober = flow.prober if flow else agent_of(key[0]) or ""
    responder = flow.responder if flow else agent_of(key[1])
    passed = flow.passed_before if flow else frozenset[str]()
    certain = tuple(c for c in probe.components if c not in passed)
    crossed = column.certain_columns(certain, prober, responder if probe.target else None)
    shares: dict[str, float] = {}
    if bad_weight is not None:
        shares |= replies.shares(*key[:2]) if probe.target else {}
        shares |= dict.fromkeys(passed.intersection(probe.components), LATE_CHANCE)
    possible = column.possible_columns(shares, crossed)
    taken = {*crossed, *(c for c, _ in possible)}
    silenced = tuple(
        column.components[c]
        for c in (probe.beyond if silences and bad_weight is not None else ())
        if c in column.components and column.components[c] not in taken
    )
    row = bad_weight is not None, crossed, possible, silenced
    weights[row] = weights.get(row, 0.0) + (1.0 if bad_weight is None else bad_weight)
