"""Turn bad 5-tuples and single probes of traces into rows of observations.

`flow_rows` returns the table of 5-tuples: the bad ones as rows, the good ones unlisted. `hop_rows`
returns a block of single probes of traces. Both know the components that an observation crosses for
certain, and those that its reply crosses with some probability. 5-tuples between the same leaves
share the possible ways of their replies, so these are computed once per group.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from statistics import median
from typing import Final

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.facts.inputs import Sources
from localizer.facts.liveness import ONSET_SLACK_NS
from localizer.inference.causes import Columns, PossibleColumns
from localizer.inference.good_flows import GoodRows
from localizer.inference.starvation import StarvedAgent, explains
from localizer.inference.tables import Block, PossibleCrossings, PossibleGroups, Table
from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex
from localizer.network.paths import PathBook
from localizer.network.replies import ReplyWays
from localizer.network.traces import HopProbe
from schemas.columns.arrays import Int64s
from schemas.enums import AnomalyFamily
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# Probability that a 5-tuple which a fault had let pass for long is bad because of it after all: the
# fault grew, or the path changed.
LATE_CHANCE: Final = 0.1


def certain_components(flow: BadFlow) -> tuple[str, ...]:
    """Return what a 5-tuple crosses, without components that had let it pass before."""
    return (
        tuple([c for c in flow.components if c not in flow.passed_before])
        if flow.passed_before
        else flow.components
    )


def possible_groups(
    replies: ReplyWays, bad: list[BadFlow], places: Int64s, column: Columns, index: FlowIndex
) -> tuple[Int64s, PossibleGroups]:
    """Group bad 5-tuples by what they possibly cross.

    Parameters
    ----------
    places
        Row of the index that has the same path, -1 where there is none, shape (bad,).

    Returns
    -------
    group : (bad,) int64
    possible : the possible crossings of each group
    """
    first, alike = _alike(replies, places, index)
    group = np.zeros(len(bad), np.int64)
    # The first 5-tuple of each group decides for all.
    answers = np.zeros(len(first), np.int64)
    known: dict[tuple[int | str, ...], int] = {}
    ways: list[PossibleColumns] = [()]
    for row, which in sorted(
        [*zip(first.tolist(), range(len(first)), strict=True)]
        + [(row, -1) for row in np.flatnonzero(alike < 0).tolist()]
    ):
        flow = bad[row]
        certain, possible_shares = certain_components(flow), replies.shares(*flow.key[:2])
        if flow.passed_before:
            possible_shares = {**possible_shares, **dict.fromkeys(flow.passed_before, LATE_CHANCE)}
        if not possible_shares:
            continue
        # The shares of a pair of leaves are one object: its id identifies them.
        what = (
            row if flow.passed_before else id(possible_shares),
            *filter(possible_shares.__contains__, certain),
        )
        place = known.get(what)
        if place is None:
            place = known[what] = len(ways)
            found = column.certain_columns(certain, flow.prober, flow.responder)
            ways.append(column.possible_columns(possible_shares, found))
        if which < 0:
            group[row] = place
        else:
            answers[which] = place
    group[alike >= 0] = answers[alike[alike >= 0]]
    return group, PossibleGroups(
        starts=np.cumsum([0, *map(len, ways)]),
        columns=np.array([c for possible in ways for c, _ in possible], np.int64),
        chance=np.array([chance for possible in ways for _, chance in possible], np.float64),
    )


def _alike(replies: ReplyWays, places: Int64s, index: FlowIndex) -> tuple[Int64s, Int64s]:
    """Group the 5-tuples that the index knows between the same leaves by the same switches.

    Returns
    -------
    first : the first of each group
    alike : the group of each, -1 of those that the index does not know
    """
    alike = np.full(len(places), -1)
    known = np.flatnonzero(places >= 0)
    rows = index.rows[places[known], CROSSED:]
    fabric = np.where(replies.in_fabric(rows), rows, NOTHING)
    leaves = np.sort(replies.groups_of(index.ends[places[known]]), axis=1)
    words = np.ascontiguousarray(np.concatenate([leaves.astype(rows.dtype), fabric], axis=1))
    lines = words.view(np.dtype((np.void, words.dtype.itemsize * words.shape[1]))).ravel()
    _, begins, which = np.unique(lines, return_index=True, return_inverse=True)
    alike[known] = which
    return known[begins], alike


# A cut that ended at once counts half: the machine may have been busy for a moment.
BRIEF_WEIGHT: Final = 0.5
# Age up to which traces are evidence: a fault may have changed since.
HOPS_NS: Final = 60 * SECOND_NS
# A hop is late if its round trip rose by this share of the rise of whole round trips: each
# direction takes half of it, and a hop's answer may come back another way.
HOP_LATE_SHARE: Final = 0.3
# Number of 5-tuples whose traces are read, separately for bad ones and others. Agents trace every
# loss at once; in a storm these are enough to locate the fault.
MAX_TRACED: Final = 4_096
# Number of traces read: of many 5-tuples only the latest of each. Six traces of one 5-tuple differ
# less than one trace each of six, and reading them dominates a storm's decision.
MAX_TRACES: Final = 2 * MAX_TRACED
NONE: Final[frozenset[str]] = frozenset()


class ResolvedFaults:
    """Until when resolved faults account for losses of 5-tuples.

    Parameters
    ----------
    ended
        (time of resolution in nanoseconds, blamed components) of recently resolved faults.
    paths, replies
        Paths of probes, and possible ways of replies.
    """

    def __init__(
        self,
        ended: Iterable[tuple[int, Collection[str]]],
        paths: PathBook,
        replies: ReplyWays,
    ) -> None:
        self._ended = list(ended)
        self._paths = paths
        self._replies = replies

    def until_ns(self, key: FlowId, components: Iterable[str] = ()) -> int:
        """Return when the last resolved fault on a 5-tuple's path or reply path ended; 0 if none.

        Parameters
        ----------
        components
            Further components that it crossed at the time.
        """
        if not self._ended:
            return 0
        ways = (*components, *self._paths.path(key).components, *self._replies.shares(*key[:2]))
        met = frozenset(ways)
        return max((at for at, blamed in self._ended if not met.isdisjoint(blamed)), default=0)


def flow_rows(
    replies: ReplyWays,
    bad: list[BadFlow],
    column: Columns,
    unlisted: Sequence[GoodRows],
    starved: dict[str, StarvedAgent],
) -> Table:
    """Return the table of 5-tuples: the bad ones as rows, the good ones unlisted.

    A bad one that a starved agent probes or answers crosses that cause only if it loses no more
    than late answers explain.
    """
    good = unlisted[0]
    width = len(good.counts)
    places = np.array(
        [-1 if f.passed_before else good.index.row_of(f.key, f.components) for f in bad]
    )
    group, chances = possible_groups(replies, bad, places, column, good.index)
    return Table(
        width,
        bad=np.ones(len(bad), np.bool_),
        weight=np.array(_weights(bad)),
        lag=np.ones(len(bad)),
        crossed=_crossed(bad, places, column, good, starved),
        group=group,
        chances=chances,
        unlisted=unlisted,
    )


def _crossed(
    bad: list[BadFlow],
    places: Int64s,
    column: Columns,
    good: GoodRows,
    starved: dict[str, StarvedAgent],
) -> Int64s:
    """Return the columns of bad 5-tuples, (bad, w), padded; `places` as in `possible_groups`."""
    width = len(good.counts)
    found = np.full((len(bad), 6 if starved else 4), width)
    found[:, 0] = [column.probers.get(f.prober, width) for f in bad]
    found[:, 1] = [column.responders.get(f.responder or "", width) for f in bad]
    if column.reply is not None:
        found[[row for row, f in enumerate(bad) if f.replyless], 2] = column.reply
    if column.global_cause is not None:
        found[:, 3] = column.global_cause
    if starved:
        found[:, 4:] = [
            [width if agent is None else column.starved[agent] for agent in explains(starved, flow)]
            for flow in bad
        ]
    others = np.flatnonzero(places < 0).tolist()
    parts = {row: column.certain_columns(certain_components(bad[row]), "", None) for row in others}
    same = good.columns_of(places[places >= 0])
    most = max(same.shape[1], *map(len, parts.values()), 0)
    through = np.full((len(bad), most), width)
    through[places >= 0, : same.shape[1]] = same
    for row, part in parts.items():
        through[row, : len(part)] = part
    return np.concatenate([found, through], axis=1)


class _Rows:
    """Collects observations; those with the same outcome and columns become one weighted row."""

    def __init__(self) -> None:
        self._places: dict[tuple[bool, tuple[int, ...], PossibleColumns], int] = {}
        # Total weight of each row.
        self.weights: list[float] = []

    def place(self, crossed: tuple[int, ...], *, bad: bool, possible: PossibleColumns = ()) -> int:
        """Return the row for an outcome and columns; `possible` holds possible columns."""
        place = self._places.setdefault((bad, crossed, possible), len(self.weights))
        if place == len(self.weights):
            self.weights.append(0.0)
        return place

    def block(self, lag: float) -> Block:
        """Return the block."""
        rows = [row for row, (_, crossed, _) in enumerate(self._places) for _ in crossed]
        columns = [place for _, crossed, _ in self._places for place in crossed]
        possible_entries = [
            (row, *m) for row, (_, _, possible) in enumerate(self._places) for m in possible
        ]
        return Block(
            bad=np.array([bad for bad, _, _ in self._places], dtype=np.bool_),
            weight=np.array(self.weights, dtype=np.float64),
            lag=np.full(len(self.weights), lag),
            rows=np.array(rows, dtype=np.int64),
            columns=np.array(columns, dtype=np.int64),
            possible=PossibleCrossings(
                rows=np.array([m[0] for m in possible_entries], dtype=np.int64),
                columns=np.array([m[1] for m in possible_entries], dtype=np.int64),
                chance=np.array([m[2] for m in possible_entries], dtype=np.float64),
            ),
        )


def _weights(bad: list[BadFlow]) -> list[float]:
    """Return the weight of each bad 5-tuple.

    The loss test pools the 5-tuples of a pair of endpoints: when it fires, all that lost a probe
    are flagged together. So the lossy 5-tuples of one pair count as one observation.
    """
    lossy = Counter(flow.key[:2] for flow in bad if flow.open and flow.lossy)
    return [BRIEF_WEIGHT if not f.open else 1.0 / lossy[f.key[:2]] if f.lossy else 1.0 for f in bad]


def hop_rows(
    sources: Sources,
    family: AnomalyFamily,
    bad: list[BadFlow],
    column: Columns,
    *,
    replies: ReplyWays,
    explained: frozenset[FlowId],
    resolved: ResolvedFaults,
    onset_ns: int,
    now_ns: int,
) -> Block:
    """Return single probes of traces as observations.

    Parameters
    ----------
    explained
        5-tuples whose traces do not count.
    resolved
        What resolved faults account for.
    onset_ns
        Since when there is something to explain: what got through before says nothing about it.

    Returns
    -------
    Block
        Probes since the onset; their lag is 1.
    """
    onset_ns -= ONSET_SLACK_NS
    since_ns = max(onset_ns, now_ns - HOPS_NS)
    shifts = [s.shift_ns for flow in bad for s in flow.symptoms if s.shift_ns is not None]
    late_ns = HOP_LATE_SHARE * median(shifts) if shifts else 0.0
    agents = {flow.key: (flow.prober, flow.responder) for flow in bad}
    replyless = {flow.key for flow in bad if flow.replyless and column.reply is not None}
    rows = _Rows()
    # Paths share their prefix tuples, so the id of a tuple identifies it and hashes faster.
    known: dict[tuple[int, str, str | None, frozenset[str]], tuple[int, ...]] = {}
    # Row of the good probes for each key: most probes of a trace are good.
    well: dict[tuple[int, str, str | None, frozenset[str]], int] = {}
    late = {flow.key: flow.passed_before for flow in bad if flow.passed_before}
    # Agents trace every loss at once, also on 5-tuples that no test has flagged yet.
    mine = [k for k in agents if (sources.paths.traced_ns(k) or 0) >= since_ns]
    others = sources.paths.traced_since(since_ns, MAX_TRACED)
    keys = sorted({*_sample(mine), *(k for k in others if k not in agents)})
    latest = max(1, MAX_TRACES // max(1, len(keys)))
    for key in keys:
        if key in explained:
            continue
        prober, responder = agents.get(
            key, (sources.roster.agent_of(key[0]) or "", sources.roster.agent_of(key[1]))
        )
        # An anomaly may be older than a resolved fault; traces from before the resolution belong to
        # it.
        own_ns = (
            since_ns
            if family is AnomalyFamily.LATENCY
            else max(since_ns, resolved.until_ns(key) + 1)
        )
        probes = sources.paths.hop_probes(key, own_ns, onset_ns, latest)
        found = _outcomes(family, probes, late_ns)
        passed_before = late.get(key, NONE)
        bad_count: dict[int, int] = {}
        for probe, outcome in found:
            if outcome:
                bad_count[probe.traced_ns] = bad_count.get(probe.traced_ns, 0) + 1
        for probe, outcome in found:
            # The target of another 5-tuple that does not answer is its agent's problem; where only
            # the target is silent, the reply may be lost on its own way.
            if probe.target and outcome and (key not in agents or key in replyless):
                continue
            target = responder if probe.target else None
            ends = id(probe.components), prober, target, passed_before
            if not outcome and ends in well:
                rows.weights[well[ends]] += 1.0
                continue
            if ends not in known:
                certain = probe.components
                if passed_before:
                    certain = tuple([c for c in certain if c not in passed_before])
                known[ends] = column.certain_columns(certain, prober, target)
            if not outcome:
                well[ends] = rows.place(known[ends], bad=False)
                rows.weights[well[ends]] += 1.0
                continue
            # The target's answer may be lost on its own way back.
            possible_shares = dict(replies.shares(*key[:2])) if probe.target else {}
            if passed_before:
                possible_shares |= dict.fromkeys(
                    passed_before.intersection(probe.components), LATE_CHANCE
                )
            possible = (
                column.possible_columns(possible_shares, known[ends]) if possible_shares else ()
            )
            # All hops behind a delay are late: together they count as one observation per trace.
            weight = 1.0 / bad_count[probe.traced_ns]
            rows.weights[rows.place(known[ends], bad=True, possible=possible)] += weight
    return rows.block(1.0)


def _sample(keys: list[FlowId]) -> list[FlowId]:
    """Return at most `MAX_TRACED` of the keys, evenly spread."""
    return keys[:: -(-len(keys) // MAX_TRACED)] if keys else keys


def _outcomes(
    family: AnomalyFamily, probes: list[HopProbe], late_ns: float
) -> list[tuple[HopProbe, bool]]:
    """Return for each probe that says something about the family whether it was bad."""
    if family is AnomalyFamily.LOSS:
        return [(probe, not probe.answered) for probe in probes]
    return [(probe, probe.rise_ns > late_ns) for probe in probes if probe.rise_ns is not None]
