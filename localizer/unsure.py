"""What bad 5-tuples cross with some chance only: mostly what their replies may cross.

Probes of a pair of leaves share the ways of their replies: what is not certain is said
once for all of them that cross the same part of it anyway.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from localizer.blocks import Ints
from localizer.causes import Columns, Maybe
from localizer.flow_index import CROSSED, NOTHING, FlowIndex
from localizer.replies import ReplyWays
from localizer.suspicion import BadFlow
from localizer.tables import Chances

# A fault that let a 5-tuple pass for long seldom hits it later: it grew, or the way changed.
LATE_CHANCE: Final = 0.1


def sure_of(flow: BadFlow) -> Sequence[str]:
    """Return what a 5-tuple crosses, less what had let it pass."""
    return [c for c in flow.components if c not in flow.late] if flow.late else flow.components


def unsure_of(
    replies: ReplyWays, bad: list[BadFlow], places: Ints, column: Columns, index: FlowIndex
) -> tuple[Ints, Chances]:
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
    ways: list[Maybe] = [()]
    for row, which in sorted(
        [*zip(first.tolist(), range(len(first)), strict=True)]
        + [(row, -1) for row in np.flatnonzero(alike < 0).tolist()]
    ):
        flow = bad[row]
        sure, unsure = sure_of(flow), replies.of(*flow.key[:2])
        if flow.late:
            unsure = {**unsure, **dict.fromkeys(flow.late, LATE_CHANCE)}
        if not unsure:
            continue
        # Of one pair of leaves it is one object.
        what = (row if flow.late else id(unsure), *filter(unsure.__contains__, sure))
        place = known.get(what)
        if place is None:
            place = known[what] = len(ways)
            found = column.crossed(sure, flow.prober, flow.responder)
            ways.append(column.maybe(unsure, found))
        if which < 0:
            group[row] = place
        else:
            answers[which] = place
    group[alike >= 0] = answers[alike[alike >= 0]]
    return group, Chances(
        starts=np.cumsum([0, *map(len, ways)]),
        columns=np.array([c for maybe in ways for c, _ in maybe], np.int64),
        chance=np.array([chance for maybe in ways for _, chance in maybe], np.float64),
    )


def _alike(replies: ReplyWays, places: Ints, index: FlowIndex) -> tuple[Ints, Ints]:
    """Group the 5-tuples that the index knows between the same leaves by the same switches.

    Returns
    -------
    first : the first of each group
    alike : the group of each, -1 of those that the index does not know
    """
    alike = np.full(len(places), -1)
    known = np.flatnonzero(places >= 0)
    rows = index.rows[places[known], CROSSED:]
    fabric = np.where(replies.of_fabric(rows), rows, NOTHING)
    leaves = np.sort(replies.groups_of(index.ends[places[known]]), axis=1)
    words = np.ascontiguousarray(np.concatenate([leaves.astype(rows.dtype), fabric], axis=1))
    lines = words.view(np.dtype((np.void, words.dtype.itemsize * words.shape[1]))).ravel()
    _, begins, which = np.unique(lines, return_index=True, return_inverse=True)
    alike[known] = which
    return known[begins], alike
