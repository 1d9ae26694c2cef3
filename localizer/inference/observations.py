"""Turn bad 5-tuples and single probes of traces into rows of observations.

`flow_rows` returns the table of 5-tuples: the bad ones as rows, the good ones unlisted. `hop_rows`
returns a block of single probes of traces. Both know the components that an observation crosses for
certain, and those that its reply crosses with some probability. 5-tuples between the same leaves
share the possible ways of their replies, so these are computed once per group.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.inference.causes import Columns, PossibleColumns
from localizer.inference.good_flows import GoodRows
from localizer.inference.starvation import StarvedAgent, explains
from localizer.inference.tables import PossibleGroups, Table
from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex
from localizer.network.paths import PathBook
from localizer.network.replies import ReplyWays
from schemas.columns.arrays import Int64s
from schemas.ids import FlowId

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
        ways = (*components, *self._paths.components(key), *self._replies.shares(*key[:2]))
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
    places = good.index.rows_of([(f.key, f.components) for f in bad])
    places[[row for row, f in enumerate(bad) if f.passed_before]] = -1
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


def _weights(bad: list[BadFlow]) -> list[float]:
    """Return the weight of each bad 5-tuple.

    The loss test pools the 5-tuples of a pair of endpoints: when it fires, all that lost a probe
    are flagged together. So the lossy 5-tuples of one pair count as one observation.
    """
    lossy = Counter(flow.key[:2] for flow in bad if flow.open and flow.lossy)
    return [BRIEF_WEIGHT if not f.open else 1.0 / lossy[f.key[:2]] if f.lossy else 1.0 for f in bad]
