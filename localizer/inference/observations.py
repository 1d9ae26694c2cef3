"""What bad 5-tuples cross with some chance only: mostly what their replies may cross.

Probes of a pair of leaves share the ways of their replies: what is not certain is said
once for all of them that cross the same part of it anyway.

Observations as sparse rows: 5-tuples, and the single probes of traces.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from statistics import median
from typing import Final

import numpy as np

from localizer.facts.anomalies import Family
from localizer.facts.bad_flows import BadFlow
from localizer.facts.inputs import Sources
from localizer.facts.liveness import ONSET_SLACK_NS
from localizer.inference.causes import Columns, PossibleColumns
from localizer.inference.good_flows import GoodRows
from localizer.inference.tables import Block, PossibleCrossings, PossibleGroups, Table
from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex
from localizer.network.paths import FlowKey, PathBook
from localizer.network.replies import ReplyWays
from localizer.network.traces import HopProbe
from schemas.columns.arrays import Int64s
from schemas.units import SECOND_NS

# A fault that let a 5-tuple pass for long seldom hits it later: it grew, or the way changed.
LATE_CHANCE: Final = 0.1


def certain_components(flow: BadFlow) -> Sequence[str]:
    """Return what a 5-tuple crosses, less what had let it pass."""
    return (
        [c for c in flow.components if c not in flow.passed_before]
        if flow.passed_before
        else flow.components
    )


def possible_groups(
    replies: ReplyWays, bad: list[BadFlow], places: Int64s, column: Columns, index: FlowIndex
) -> tuple[Int64s, PossibleGroups]:
    """Return the groups of 5-tuples that are unsure of the same, and of what.

    Parameters
    ----------
    places
        Rows of the index that cross just the same, -1 where none does.
    """
    first, alike = _alike(replies, places, index)
    group = np.zeros(len(bad), np.int64)
    # Of those that are alike the first speaks for all.
    answers = np.zeros(len(first), np.int64)
    known: dict[tuple[int | str, ...], int] = {}
    ways: list[PossibleColumns] = [()]
    for row, which in sorted(
        [*zip(first.tolist(), range(len(first)), strict=True)]
        + [(row, -1) for row in np.flatnonzero(alike < 0).tolist()]
    ):
        flow = bad[row]
        sure, unsure = certain_components(flow), replies.shares(*flow.key[:2])
        if flow.passed_before:
            unsure = {**unsure, **dict.fromkeys(flow.passed_before, LATE_CHANCE)}
        if not unsure:
            continue
        # Of one pair of leaves it is one object.
        what = (row if flow.passed_before else id(unsure), *filter(unsure.__contains__, sure))
        place = known.get(what)
        if place is None:
            place = known[what] = len(ways)
            found = column.certain_columns(sure, flow.prober, flow.responder)
            ways.append(column.possible_columns(unsure, found))
        if which < 0:
            group[row] = place
        else:
            answers[which] = place
    group[alike >= 0] = answers[alike[alike >= 0]]
    return group, PossibleGroups(
        starts=np.cumsum([0, *map(len, ways)]),
        columns=np.array([c for maybe in ways for c, _ in maybe], np.int64),
        chance=np.array([chance for maybe in ways for _, chance in maybe], np.float64),
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


# A brief cut counts half: it may have been a moment of a busy machine.
BRIEF_WEIGHT: Final = 0.5
# Traces count as evidence for so long: what a fault was an hour ago it need not be now.
HOPS_NS: Final = 60 * SECOND_NS
# A hop is late when its round trip rose by this share of what whole round trips
# did: half of it belongs to each direction, and a hop's answer may come another way.
HOP_LATE_SHARE: Final = 0.3
# 5-tuples whose traces are looked at, of the bad ones and of the others. All losses are traced
# at once: a hundred thousand of a storm say no more of where it is than these do.
MAX_TRACED: Final = 4_096
# Traces looked at: of many 5-tuples only the latest of each, since what six of one say differs
# less than what one of six says, and going through them was most of what a storm's decision took.
MAX_TRACES: Final = 2 * MAX_TRACED
NONE: Final[frozenset[str]] = frozenset()


class ResolvedFaults:
    """Until when resolved faults account for what 5-tuples lost.

    Parameters
    ----------
    ended
        Faults that were resolved until recently: the time of the resolve, and what they blamed.
    paths, replies
        Which ways probes take, and replies may take.
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

    def until_ns(self, key: FlowKey, components: Iterable[str] = ()) -> int:
        """Return the last resolve of a fault that its packets met; 0: there was none.

        Parameters
        ----------
        components
            What it crossed then, beside what it crosses now.
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
    unlisted: GoodRows,
) -> Table:
    """Return the table of 5-tuples: the bad ones as rows, the good ones unlisted."""
    width = len(unlisted.counts)
    places = np.array(
        [-1 if f.passed_before else unlisted.index.row_of(f.key, f.components) for f in bad]
    )
    group, chances = possible_groups(replies, bad, places, column, unlisted.index)
    return Table(
        width,
        bad=np.ones(len(bad), np.bool_),
        weight=np.array(_weights(bad)),
        lag=np.full(len(bad), unlisted.lag),
        crossed=_crossed(bad, places, column, unlisted),
        group=group,
        chances=chances,
        unlisted=unlisted,
    )


def _crossed(bad: list[BadFlow], places: Int64s, column: Columns, unlisted: GoodRows) -> Int64s:
    """Return the columns of bad 5-tuples, padded; `places`: where the index has just the same."""
    width = len(unlisted.counts)
    found = np.full((len(bad), 4), width)
    found[:, 0] = [column.probers.get(f.prober, width) for f in bad]
    found[:, 1] = [column.responders.get(f.responder or "", width) for f in bad]
    if column.reply is not None:
        found[[row for row, f in enumerate(bad) if f.replyless], 2] = column.reply
    if column.global_cause is not None:
        found[:, 3] = column.global_cause
    others = np.flatnonzero(places < 0).tolist()
    parts = {row: column.certain_columns(certain_components(bad[row]), "", None) for row in others}
    same = unlisted.columns_of(places[places >= 0])
    most = max(same.shape[1], *map(len, parts.values()), 0)
    through = np.full((len(bad), most), width)
    through[places >= 0, : same.shape[1]] = same
    for row, part in parts.items():
        through[row, : len(part)] = part
    return np.concatenate([found, through], axis=1)


class _Rows:
    """Observations; those that cross the same and came out alike are one with their weight."""

    def __init__(self) -> None:
        self._places: dict[tuple[bool, tuple[int, ...], PossibleColumns], int] = {}
        # By place: what all that are alike weigh together.
        self.weights: list[float] = []

    def place(self, crossed: tuple[int, ...], *, bad: bool, maybe: PossibleColumns = ()) -> int:
        """Return the place of those alike; `maybe`: columns that are crossed with a chance only."""
        place = self._places.setdefault((bad, crossed, maybe), len(self.weights))
        if place == len(self.weights):
            self.weights.append(0.0)
        return place

    def block(self, lag: float) -> Block:
        """Return the block."""
        rows = [row for row, (_, crossed, _) in enumerate(self._places) for _ in crossed]
        columns = [place for _, crossed, _ in self._places for place in crossed]
        maybes = [(row, *m) for row, (_, _, maybe) in enumerate(self._places) for m in maybe]
        return Block(
            bad=np.array([bad for bad, _, _ in self._places], dtype=np.bool_),
            weight=np.array(self.weights, dtype=np.float64),
            lag=np.full(len(self.weights), lag),
            rows=np.array(rows, dtype=np.int64),
            columns=np.array(columns, dtype=np.int64),
            possible=PossibleCrossings(
                rows=np.array([m[0] for m in maybes], dtype=np.int64),
                columns=np.array([m[1] for m in maybes], dtype=np.int64),
                chance=np.array([m[2] for m in maybes], dtype=np.float64),
            ),
        )


def _weights(bad: list[BadFlow]) -> list[float]:
    """Return what bad 5-tuples count.

    The loss test pools the 5-tuples of a path: when it fires, all that lost a probe
    are flagged together, so the lossy ones of a path count as one observation.
    """
    lossy = Counter(flow.key[:2] for flow in bad if flow.open and flow.lossy)
    return [BRIEF_WEIGHT if not f.open else 1.0 / lossy[f.key[:2]] if f.lossy else 1.0 for f in bad]


def hop_rows(
    sources: Sources,
    family: Family,
    bad: list[BadFlow],
    column: Columns,
    *,
    replies: ReplyWays,
    explained: frozenset[FlowKey],
    resolved: ResolvedFaults,
    now_ns: int,
) -> Block:
    """Return the block of single probes of traces since the first bad 5-tuple's onset.

    Parameters
    ----------
    explained
        5-tuples whose traces do not count.
    resolved
        What resolved faults account for.
    """
    onset_ns = min(flow.onset_ns for flow in bad) - ONSET_SLACK_NS
    since_ns = max(onset_ns, now_ns - HOPS_NS)
    shifts = [s.shift_ns for flow in bad for s in flow.symptoms if s.shift_ns is not None]
    late_ns = HOP_LATE_SHARE * median(shifts) if shifts else 0.0
    agents = {flow.key: (flow.prober, flow.responder) for flow in bad}
    replyless = {flow.key for flow in bad if flow.replyless and column.reply is not None}
    rows = _Rows()
    # Paths share their prefixes: by identity, which hashes faster than a dozen names.
    known: dict[tuple[int, str, str | None, frozenset[str]], tuple[int, ...]] = {}
    # Where the good ones of these are: most of a trace is.
    well: dict[tuple[int, str, str | None, frozenset[str]], int] = {}
    late = {flow.key: flow.passed_before for flow in bad if flow.passed_before}
    # Every loss is traced at once, also that of a 5-tuple no test has flagged yet.
    mine = [k for k in agents if (sources.paths.traced_ns(k) or 0) >= since_ns]
    others = sources.paths.traced_since(since_ns, MAX_TRACED)
    keys = sorted({*_spread(mine), *(k for k in others if k not in agents)})
    latest = max(1, MAX_TRACES // max(1, len(keys)))
    for key in keys:
        if key in explained:
            continue
        prober, responder = agents.get(
            key, (sources.roster.agent_of(key[0]) or "", sources.roster.agent_of(key[1]))
        )
        # An anomaly may be older than a fault that is over, and the traces of that one among its.
        own_ns = since_ns if family is Family.LATENCY else max(since_ns, resolved.until_ns(key) + 1)
        probes = sources.paths.hop_probes(key, own_ns, onset_ns, latest)
        found = _outcomes(family, probes, late_ns)
        passed = late.get(key, NONE)
        spoilt: dict[int, int] = {}
        for probe, outcome in found:
            spoilt[probe.traced_ns] = spoilt.get(probe.traced_ns, 0) + outcome
        for probe, outcome in found:
            # That the target of another 5-tuple is silent is its agent's matter, and that
            # only the target is silent may be that of the reply's way.
            if probe.target and outcome and (key not in agents or key in replyless):
                continue
            target = responder if probe.target else None
            ends = id(probe.components), prober, target, passed
            if not outcome and ends in well:
                rows.weights[well[ends]] += 1.0
                continue
            if ends not in known:
                sure = [c for c in probe.components if c not in passed]
                known[ends] = column.certain_columns(sure, prober, target)
            if not outcome:
                well[ends] = rows.place(known[ends], bad=False)
                rows.weights[well[ends]] += 1.0
                continue
            # What is lost of the target's answer may be lost on its own way.
            unsure = dict(replies.shares(*key[:2])) if probe.target else {}
            if passed:
                unsure |= dict.fromkeys(passed.intersection(probe.components), LATE_CHANCE)
            maybe = column.possible_columns(unsure, known[ends]) if unsure else ()
            # Every hop behind a delay is late: one piece of news for each trace.
            weight = 1.0 / spoilt[probe.traced_ns]
            rows.weights[rows.place(known[ends], bad=True, maybe=maybe)] += weight
    return rows.block(1.0)


def _spread(keys: list[FlowKey]) -> list[FlowKey]:
    """Return the keys, of too many every second, third and so on."""
    return keys[:: -(-len(keys) // MAX_TRACED)] if keys else keys


def _outcomes(
    family: Family, probes: list[HopProbe], late_ns: float
) -> list[tuple[HopProbe, bool]]:
    """Return which hops' probes were bad, less those that say nothing of this family."""
    if family is Family.LOSS:
        return [(probe, not probe.answered) for probe in probes]
    return [(probe, probe.rise_ns > late_ns) for probe in probes if probe.rise_ns is not None]
