"""Turn bad 5-tuples and single probes of traces into rows of observations.

`flow_rows` returns the table of 5-tuples: the bad ones as rows, the good ones unlisted. `hop_rows`
returns a block of single probes of traces. Both know the components that an observation crosses for
certain, and those that its reply crosses with some probability. 5-tuples between the same leaves
share the possible ways of their replies, so these are computed once per group.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.inference.causes import Columns
from localizer.inference.good_flows import GoodRows
from localizer.inference.starvation import StarvedAgent, explains
from localizer.inference.tables import PossibleGroups, Table
from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex, Numbers
from localizer.network.paths import PathBook
from localizer.network.replies import ReplyWays
from schemas.columns.arrays import Floats, Int64s
from schemas.ids import FlowId

# Probability that a 5-tuple which a fault had let pass for long is bad because of it after all: the
# fault grew, or the path changed.
LATE_CHANCE: Final = 0.1


def certain_components(flow: BadFlow) -> tuple[str, ...]:
    """Return what a 5-tuple crosses, without what had let it pass before or is doubted."""
    if not (flow.passed_before or flow.doubted):
        return flow.components
    left_out = flow.passed_before.union(dict(flow.doubted))
    return tuple([c for c in flow.components if c not in left_out])


def possible_components(flow: BadFlow, shares: Mapping[str, float]) -> dict[str, float]:
    """Return what a 5-tuple or its reply crosses with some probability only.

    Parameters
    ----------
    shares
        Of what replies between its ends cross. Its reply may be lost where its probes are not, but
        not so often where its traces break off, too: a switch behind has answered by a way of its
        own.
    """
    ways = 2 if flow.traced else 1
    doubted = {c: max(chance, shares.get(c, 0.0) ** ways) for c, chance in flow.doubted}
    return {**shares, **doubted, **dict.fromkeys(flow.passed_before, LATE_CHANCE)}


def is_apart(flow: BadFlow) -> bool:
    """Return whether a 5-tuple crosses other components for certain than its path says."""
    return bool(flow.passed_before or flow.doubted)


def possible_groups(
    replies: ReplyWays, bad: list[BadFlow], places: Int64s, column: Columns, good: GoodRows
) -> tuple[Int64s, PossibleGroups]:
    """Group bad 5-tuples by what they possibly cross.

    Parameters
    ----------
    places
        Row of the index that has the same path, -1 where there is none, shape (bad,).
    good
        Says which column each number of the index is.

    Returns
    -------
    group : (bad,) int64
    possible : the possible crossings of each group
    """
    index = good.index
    by_key = [index.by_key.get(flow.key, -1) for flow in bad]
    alone = np.array([p < 0 or is_apart(f) for p, f in zip(by_key, bad, strict=True)], np.bool_)
    rows = np.flatnonzero(~alone)
    crossed = _numbers(bad, places, index)[rows]
    first, alike = _alike(replies, index.ends[np.array(by_key, np.int64)[rows]], crossed)
    # The first 5-tuple of each group decides for all.
    ends = [bad[row].key[:2] for row in rows[first].tolist()]
    parts = [_possible(replies, ends, crossed[first], good)]
    group = np.zeros(len(bad), np.int64)
    group[rows] = 1 + alike
    known: dict[tuple[Hashable, ...], int] = {}
    for row in np.flatnonzero(alone).tolist():
        flow = bad[row]
        certain, shares = certain_components(flow), replies.shares(*flow.key[:2])
        # Their ends decide the shares.
        what: tuple[Hashable, ...] = (
            row if is_apart(flow) else frozenset(map(replies.end, flow.key[:2])),
            *filter(shares.__contains__, certain),
        )
        if what in known:
            group[row] = known[what]
            continue
        ways = column.possible_columns(
            possible_components(flow, shares),
            column.certain_columns(certain, flow.prober, flow.responder),
        )
        group[row] = known[what] = len(first) + len(parts)
        parts.append(
            (
                np.array([len(ways)], np.int64),
                np.array([place for place, _ in ways], np.int64),
                np.array([chance for _, chance in ways], np.float64),
            )
        )
    counts, columns, chance = map(np.concatenate, zip(*parts, strict=True))
    # Group 0 is that of rows which cross everything for certain.
    starts = np.concatenate([[0, 0], np.cumsum(counts)])
    return group, PossibleGroups(starts=starts, columns=columns, chance=chance)


def _numbers(bad: list[BadFlow], places: Int64s, index: FlowIndex) -> Int64s:
    """Return the index's numbers of what bad 5-tuples cross, (bad, most), padded."""
    number, other = index.components.get, np.flatnonzero(places < 0).tolist()
    own = {row: [number(c, NOTHING) for c in bad[row].components] for row in other}
    most = max(index.rows.shape[1] - CROSSED, *map(len, own.values()), 0)
    found = np.full((len(bad), most), NOTHING, np.int64)
    known = np.flatnonzero(places >= 0)
    found[known, : index.rows.shape[1] - CROSSED] = index.rows[places[known], CROSSED:]
    for row, numbers in own.items():
        found[row, : len(numbers)] = numbers
    return found


def _possible(
    replies: ReplyWays, ends: Sequence[tuple[str, str]], crossed: Int64s, good: GoodRows
) -> tuple[Int64s, Int64s, Floats]:
    """Return what 5-tuples possibly cross.

    Parameters
    ----------
    ends
        Source and target of each.
    crossed
        Numbers of what each crosses for certain, (n, most), padded.

    Returns
    -------
    counts : (n,) how many columns each possibly crosses
    columns : these columns, in order for each 5-tuple after the other
    chance : and with which probability
    """
    ways = replies.numbered_shares(ends)
    numbers = np.concatenate([np.empty(0, np.int64), *(one for one, _ in ways)])
    chance = np.concatenate([np.empty(0), *(one for _, one in ways)])
    owner = np.repeat(np.arange(len(ways)), [len(one) for one, _ in ways])
    columns = good.columns_of_numbers(numbers)
    possible = columns < len(good.counts)
    # A component after the other: all at once would be a table of millions.
    for step in range(crossed.shape[1]):
        possible &= numbers != crossed[owner, step]
    kept = np.flatnonzero(possible)
    kept = kept[np.lexsort((columns[kept], owner[kept]))]
    return np.bincount(owner[kept], minlength=len(ways)), columns[kept], chance[kept]


def _alike(replies: ReplyWays, ends: Numbers, crossed: Int64s) -> tuple[Int64s, Int64s]:
    """Group 5-tuples between the same leaves and bonds by the same switches and bonded cables.

    Parameters
    ----------
    ends
        Numbers of their endpoints, (n, 2).
    crossed
        Numbers of what they cross, (n, most), padded.

    Returns
    -------
    first : the first of each group
    alike : the group of each
    """
    possible = np.where(replies.are_possible(crossed), crossed, NOTHING)
    leaves, bonds = (np.sort(of(ends), axis=1) for of in (replies.groups_of, replies.bonds_of))
    words = np.ascontiguousarray(np.concatenate([leaves, bonds, possible], axis=1))
    lines = words.view(np.dtype((np.void, words.dtype.itemsize * words.shape[1]))).ravel()
    _, first, alike = np.unique(lines, return_index=True, return_inverse=True)
    # In the order of the 5-tuples, not of numbers, which depend on what the index met first.
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[alike]


# A cut that ended at once counts half: the machine may have been busy for a moment.
BRIEF_WEIGHT: Final = 0.5


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
        # By component when the last fault that blamed it ended.
        self._ended_ns: dict[str, int] = {}
        for ended_ns, blamed in ended:
            for component in blamed:
                self._ended_ns[component] = max(ended_ns, self._ended_ns.get(component, 0))
        self._replied = {c for c in self._ended_ns if replies.may_cross(c)}
        self._paths = paths
        self._replies = replies

    def until_ns(self, key: FlowId, components: Iterable[str] = ()) -> int:
        """Return when the last resolved fault on a 5-tuple's path or reply path ended; 0 if none.

        Parameters
        ----------
        components
            Further components that it crossed at the time.
        """
        ended_ns = self._ended_ns
        if not ended_ns:
            return 0
        met = [c for c in (*components, *self._paths.components(key)) if c in ended_ns]
        if self._replied:
            met += self._replies.shares(*key[:2]).keys() & self._replied
        return max(map(ended_ns.__getitem__, met), default=0)


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
    places = good.index.rows_of([(f.key, f.components) for f in bad])
    places[[row for row, f in enumerate(bad) if is_apart(f)]] = -1
    group, chances = possible_groups(replies, bad, places, column, good)
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


def _weights(bad: list[BadFlow]) -> list[float]:
    """Return the weight of each bad 5-tuple.

    The loss test pools the 5-tuples of a pair of endpoints: when it fires, all that lost a probe
    are flagged together. So the lossy 5-tuples of one pair count as one observation. One of a
    storm's sample counts as those that it stands for.
    """
    lossy = Counter(flow.key[:2] for flow in bad if flow.open and flow.lossy)
    return [
        f.stands_for * (BRIEF_WEIGHT if not f.open else 1.0 / lossy[f.key[:2]] if f.lossy else 1.0)
        for f in bad
    ]
