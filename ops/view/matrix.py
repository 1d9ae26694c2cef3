"""The matrix of source and target: loss, and round trips against their own history, cell by cell.

A cell holds all 5-tuples from one group of endpoints to another; groups are pods, leaves or single
endpoints. What a cell shows is a code of a few levels, so that little changes as time goes by.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from ops.view.cluster import ClusterView
from ops.view.flow_windows import MISSING, LatestWindows
from ops.view.places import Places
from schemas.columns.arrays import Bools, Floats, Int32s, Int64s
from schemas.units import US_PER_MS

# Rows and columns that are shown at most: 40,000² cells would be 1.6 billion.
MAX_SIDE: Final = 2_048
# A level with fewer groups is looked at first, the finest of them.
FIRST_SIDE: Final = 128
# A 5-tuple without a window for three of its windows' lengths, and the worker's lateness, is not
# probed lately; after an hour it is as if it had never been.
LATELY_WINDOWS: Final = 3
LATENESS_US: Final = 5_000_000
FORGOTTEN_US: Final = 3_600_000_000

# Codes of cells: three states, and then levels from well to worst.
NOT_PROBED, NOT_LATELY, NOT_KNOWN, WELL = range(4)
# Shares of lost probes at which the next level begins. One loss of a window's 30 probes is 3 %; a
# group of 1,000 5-tuples of which one loses a probe 0.003 %.
LOSS_EDGES: Final = (0.001, 0.01, 0.1, 0.5, 1.0)
# Round trips in multiples of what is usual; below the first one it is as always. A tenth is little
# for one 5-tuple, and much for the mean of a group of which few are slow.
RATIO_EDGES: Final = (1.1, 1.25, 1.5, 2.0, 4.0, 10.0)
WORST_CELLS: Final = 20
WORST_LINES: Final = 10
# Of the probed cells of a row or column so many are bad before it is named: a cross, not a cell.
LINE_SHARE: Final = 0.5


class Level(StrEnum):
    """What a row or column is."""

    POD = "pod"
    LEAF = "leaf"
    ENDPOINT = "endpoint"


class Quantity(StrEnum):
    """What cells show."""

    LOSS = "loss"
    P50 = "p50"
    P99 = "p99"


class Fold(StrEnum):
    """How the 5-tuples of a cell become one number."""

    MEAN = "mean"
    WORST = "worst"


@dataclass(frozen=True, slots=True)
class Group:
    """A pod or a leaf, to whose endpoints a side is confined."""

    level: Level
    name: str


class UnknownGroupError(LookupError):
    """There is no such pod or leaf."""


@dataclass(frozen=True, slots=True)
class Side:
    """The rows, or the columns.

    Attributes
    ----------
    names
        In the order of the topology.
    parts
        Where a part begins (a pod, at the level of endpoints a leaf), and its name.
    left_out
        Groups beyond the bound.
    """

    names: tuple[str, ...]
    parts: tuple[tuple[int, str], ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells in which something is or was probed, by row, then column.

    Attributes
    ----------
    row, col, code
        Where they are, and what they show.
    value
        Share of lost probes, or multiple of the usual round trip; nan: not known.
    flows, sent, lost
        5-tuples probed lately, and their probes.
    """

    row: Int32s
    col: Int32s
    code: Int32s
    value: Floats
    flows: Int64s
    sent: Int64s
    lost: Int64s


@dataclass(frozen=True, slots=True)
class Line:
    """A row or a column that is bad over its length."""

    source: bool
    name: str
    bad: int
    probed: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Two sides and the cells between them.

    Attributes
    ----------
    level
        What rows and columns are.
    sizes
        Groups there are of each level.
    coarser
        Whether a finer level was asked for that has too many groups.
    worst
        Places in `cells`, the worst first.
    lines
        Rows and columns that are bad over their length, the worst first.
    """

    level: Level
    sizes: dict[Level, int]
    coarser: bool
    rows: Side
    cols: Side
    cells: Cells
    worst: tuple[int, ...]
    lines: tuple[Line, ...]


def matrix(
    view: ClusterView,
    now_ms: int,
    *,
    level: Level | None = None,
    rows: Group | None = None,
    cols: Group | None = None,
    of: Quantity = Quantity.LOSS,
    fold: Fold = Fold.MEAN,
) -> Matrix:
    """Return the matrix at a time.

    Parameters
    ----------
    view, now_ms
        What is known, and the time in milliseconds since the epoch.
    level
        What rows and columns are; None: the finest level with few groups.
    rows, cols
        What to confine the sides to; None: nothing.
    of, fold
        What cells show, and how their 5-tuples are put together.

    Raises
    ------
    UnknownGroupError
        If there is no such group.
    """
    places = view.places.of(view)
    inside = [_inside(places, group) for group in (rows, cols)]
    sizes = {each: max(_count(places, each, chosen) for chosen in inside) for each in Level}
    asked = level or next(
        (each for each in reversed(Level) if sizes[each] <= FIRST_SIDE), Level.POD
    )
    shown = asked
    while sizes[shown] > MAX_SIDE and shown is not Level.POD:
        shown = list(Level)[list(Level).index(shown) - 1]
    (row_of, row_side), (col_of, col_side) = (_side(places, shown, chosen) for chosen in inside)
    latest = view.flow_windows.latest()
    age_us = now_ms * US_PER_MS - latest.end_at
    ends = row_of[places.of_end[latest.src]], col_of[places.of_end[latest.dst]]
    cells = _cells(latest, age_us, ends, of, fold)
    return Matrix(
        level=shown,
        sizes=sizes,
        coarser=shown is not asked,
        rows=row_side,
        cols=col_side,
        cells=cells,
        worst=_worst(cells),
        lines=_lines(cells, row_side, col_side),
    )


def _inside(places: Places, group: Group | None) -> Bools:
    """Return which endpoints are in a group."""
    if group is None:
        return np.ones(len(places.endpoints), np.bool_)
    names, of = {
        Level.POD: (places.pods, places.pod_of),
        Level.LEAF: (places.leaves, places.leaf_of),
        Level.ENDPOINT: (places.endpoints, np.arange(len(places.endpoints), dtype=np.int32)),
    }[group.level]
    if group.name not in names:
        raise UnknownGroupError(f"no {group.level} {group.name!r}")
    return np.asarray(of == names.index(group.name))


def _group_of(places: Places, level: Level) -> tuple[tuple[str, ...], Int32s]:
    if level is Level.POD:
        return places.pods, places.pod_of
    if level is Level.LEAF:
        return places.leaves, places.leaf_of
    return places.endpoints, np.arange(len(places.endpoints), dtype=np.int32)


def _count(places: Places, level: Level, inside: Bools) -> int:
    return len(np.unique(_group_of(places, level)[1][inside]))


def _side(places: Places, level: Level, inside: Bools) -> tuple[Int32s, Side]:
    """Return the place of each endpoint on a side, -1 for none, and the side."""
    names, of = _group_of(places, level)
    present = np.unique(of[inside])
    shown = present[:MAX_SIDE]
    place = np.full(len(names), -1, np.int32)
    place[shown] = np.arange(len(shown))
    above_names, above_of = (
        (places.leaves, places.leaf_of) if level is Level.ENDPOINT else (places.pods, places.pod_of)
    )
    parts: list[tuple[int, str]] = []
    if level is not Level.POD:
        # Groups of one part stand together: a part begins where the one above changes.
        above, at = np.unique(above_of[inside], return_index=True)
        starts = place[of[inside][at]]
        parts = [(int(s), above_names[a]) for s, a in zip(starts, above, strict=True) if s >= 0]
    return (
        np.where(inside, place[of], -1).astype(np.int32),
        Side(
            names=tuple(names[group] for group in shown),
            parts=tuple(parts),
            left_out=len(present) - len(shown),
        ),
    )


def _cells(
    latest: LatestWindows, age_us: Int64s, ends: tuple[Int32s, Int32s], of: Quantity, fold: Fold
) -> Cells:
    """Return the cells; `ends` are the row and the column of each 5-tuple, -1 for none."""
    row, col = ends
    chosen = np.flatnonzero((row >= 0) & (col >= 0) & (age_us < FORGOTTEN_US))
    cell, place = np.unique(
        row[chosen].astype(np.int64) * MAX_SIDE + col[chosen], return_inverse=True
    )
    count = len(cell)
    lately = (age_us <= LATELY_WINDOWS * latest.length_us + LATENESS_US)[chosen]
    flows = np.bincount(place[lately], minlength=count)
    there, at = chosen[lately], place[lately]
    sent = np.bincount(at, latest.sent[there], count).astype(np.int64)
    lost = np.bincount(at, latest.lost[there], count).astype(np.int64)
    if of is Quantity.LOSS:
        weight, value = latest.sent[there].astype(float), latest.lost[there].astype(float)
    else:
        which = 0 if of is Quantity.P50 else 1
        now_ns, usual_ns = latest.time_ns[there, which], latest.usual_ns[there, which]
        known = (now_ns != MISSING) & (usual_ns != MISSING) & (usual_ns > 0)
        weight = known.astype(float)
        value = np.where(known, now_ns / np.maximum(usual_ns, 1), 0.0)
    folded = _folded(at, count, weight, value, fold)
    edges = LOSS_EDGES if of is Quantity.LOSS else RATIO_EDGES
    # The first level above "well" is any loss at all.
    level = np.searchsorted(edges, folded, side="right")
    if of is Quantity.LOSS:
        level = np.where(folded > 0, level + 1, 0)
    code = np.where(np.isnan(folded), NOT_KNOWN, WELL + level)
    code = np.where(flows == 0, NOT_LATELY, code)
    return Cells(
        row=(cell // MAX_SIDE).astype(np.int32),
        col=(cell % MAX_SIDE).astype(np.int32),
        code=code.astype(np.int32),
        value=folded,
        flows=flows,
        sent=sent,
        lost=lost,
    )


def _folded(at: Int64s, count: int, weight: Floats, value: Floats, fold: Fold) -> Floats:
    """Return one number a cell from those of its 5-tuples; nan where none has weight."""
    total = np.bincount(at, weight, count)
    if fold is Fold.MEAN:
        with np.errstate(invalid="ignore", divide="ignore"):
            whole = np.bincount(at, value, count)
            return np.where(total > 0, whole / total, np.nan)
    worst = np.full(count, -1.0)
    known = weight > 0
    # Of losses the share of each 5-tuple; of round trips the weight is one.
    np.maximum.at(worst, at[known], value[known] / weight[known])
    return np.where(total > 0, worst, np.nan)


def _worst(cells: Cells) -> tuple[int, ...]:
    bad = np.flatnonzero(cells.code > WELL)
    order = np.lexsort((cells.col[bad], cells.row[bad], -cells.lost[bad], -cells.value[bad]))
    return tuple(int(place) for place in bad[order[:WORST_CELLS]])


def _lines(cells: Cells, rows: Side, cols: Side) -> tuple[Line, ...]:
    """Return rows and columns of which at least half is bad: a sick leaf makes a cross."""
    found = []
    measured = cells.code >= WELL
    for source, side, of in ((True, rows, cells.row), (False, cols, cells.col)):
        probed = np.bincount(of[measured], minlength=len(side.names))
        bad = np.bincount(of[cells.code > WELL], minlength=len(side.names))
        for place in np.flatnonzero((bad >= 2) & (bad >= LINE_SHARE * probed)):
            found.append(Line(source, side.names[place], int(bad[place]), int(probed[place])))
    found.sort(key=lambda line: (-line.bad / line.probed, -line.bad, not line.source, line.name))
    return tuple(found[:WORST_LINES])
