"""Event-time tumbling windows per 5-tuple: exact statistics, closed all at once.

A result belongs to the window that holds its sending time. Windows are kept as
lists of column chunks, nothing is computed per result; when a window closes,
one sort gives the statistics of every 5-tuple in it.

Percentiles are nearest-rank (Hyndman and Fan's type 1, numpy's `inverted_cdf`):
the smallest observed value with at least that share of the sample at or below
it. They are observed values and integers, so that the same results give the
same window, in whatever order they came.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streams.columns import Bools, Int64s, RoundColumns

PERCENTS: Final = (25, 50, 75, 90, 99)
# Features that the detectors take, in the paper's order.
FEATURES: Final = ("p25_ns", "p50_ns", "p75_ns", "min_ns", "mean_ns", "std_ns", "max_ns")
# Columns that a window record shows, null where no probe answered.
STATISTICS: Final = (
    "p25_ns",
    "p50_ns",
    "p75_ns",
    "p90_ns",
    "p99_ns",
    "min_ns",
    "mean_ns",
    "std_ns",
    "max_ns",
)
NONE: Final = -1
# A value below 18 minutes and its group fit into one whole number together.
VALUE_BITS: Final = 40
GROUP_BITS: Final = 22


@dataclass(slots=True)
class _Open:
    """Chunks of one open window; `repeats` are rows of duplicate results.

    A chunk is row, round-trip time (-1: lost), delays in the prober's and the responder's host
    (-1: not measured) of some results.
    """

    chunks: list[tuple[Int64s, Int64s, Int64s, Int64s]] = field(default_factory=list)
    repeats: list[Int64s] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Statistics of one window, one entry per row (5-tuple) with results.

    All arrays have one length; -1 stands for "no probe answered" or "not
    measured". `index` times the window's length is its start.
    """

    index: int
    rows: Int64s
    sent: Int64s
    ok: Int64s
    repeats: Int64s
    columns: dict[str, Int64s]

    def features(self) -> NDArray[np.int64]:
        """Return the seven features, shape (rows, 7)."""
        return np.stack([self.columns[name] for name in FEATURES], axis=-1)


class Windows:
    """The open windows of one partition.

    Parameters
    ----------
    window_ns
        Length of a window.
    floor_ns
        Windows that end by this time are closed already (a restart knows).
    """

    def __init__(self, window_ns: int, floor_ns: int = 0) -> None:
        self.window_ns = window_ns
        self._open: dict[int, _Open] = {}
        # Windows with a smaller index are closed.
        self._next = 0
        # Results before this time were published by windows of another length.
        self._floor_ns = floor_ns

    @property
    def closed_ns(self) -> int:
        """Time up to which all windows are closed."""
        return max(self._next * self.window_ns, self._floor_ns)

    @property
    def first_open(self) -> int:
        """Index of the first window that is not closed."""
        return self._next

    def add(self, rows: Int64s, columns: RoundColumns) -> Bools:
        """Add the results of a round; return which of them came in time."""
        sent_ns = columns.sent_ns
        timely = sent_ns >= self._next * self.window_ns
        counted = timely & (sent_ns >= self._floor_ns)
        index = sent_ns // self.window_ns
        rtt_ns = np.where(columns.ok, columns.rtt_ns, NONE)
        if counted.all() and len(index) and index.min() == index.max():
            # Usually a round lies in one window as a whole.
            self.add_chunk(int(index[0]), rows, rtt_ns, columns.host_ns, columns.responder_ns)
            return timely
        for window in np.unique(index[counted]).tolist():
            here = counted & (index == window)
            self.add_chunk(
                window, rows[here], rtt_ns[here], columns.host_ns[here], columns.responder_ns[here]
            )
        return timely

    def add_chunk(
        self, window: int, rows: Int64s, rtt_ns: Int64s, host_ns: Int64s, responder_ns: Int64s
    ) -> None:
        """Add results of one window that is open; -1 as in the chunks."""
        self._window(window).chunks.append((rows, rtt_ns, host_ns, responder_ns))

    def add_repeats(self, rows: Int64s, sent_ns: Int64s) -> None:
        """Note duplicate results in the windows that are still open."""
        index = sent_ns // self.window_ns
        for window in np.unique(index[sent_ns >= self.closed_ns]).tolist():
            self._window(window).repeats.append(rows[index == window])

    def close(self, until_ns: int) -> list[ClosedWindow]:
        """Close all windows that end by `until_ns`, oldest first."""
        upto = until_ns // self.window_ns
        if upto <= self._next:
            return []
        self._next = upto
        due = sorted(index for index in self._open if index < upto)
        popped = [(index, self._open.pop(index)) for index in due]
        return [_closed(index, window) for index, window in popped if window.chunks]

    def _window(self, index: int) -> _Open:
        window = self._open.get(index)
        if window is None:
            window = self._open[index] = _Open()
        return window


def _closed(index: int, window: _Open) -> ClosedWindow:
    rows_in, rtt, host, responder = (
        np.concatenate(column) for column in zip(*window.chunks, strict=True)
    )
    ok_in = rtt >= 0
    rows, group = np.unique(rows_in, return_inverse=True)
    size = len(rows)
    return ClosedWindow(
        index=index,
        rows=rows,
        sent=np.bincount(group, minlength=size).astype(np.int64),
        ok=np.bincount(group[ok_in], minlength=size).astype(np.int64),
        repeats=_repeats(rows, window.repeats),
        columns={
            **statistics(group[ok_in], rtt[ok_in], size),
            "host_delay_p50_ns": medians(group[host >= 0], host[host >= 0], size),
            "responder_delay_p50_ns": medians(
                group[responder >= 0], responder[responder >= 0], size
            ),
        },
    )


def _repeats(rows: Int64s, chunks: list[Int64s]) -> Int64s:
    if not chunks:
        return np.zeros(len(rows), np.int64)
    repeated = np.concatenate(chunks)
    place = np.searchsorted(rows, repeated)
    known = (place < len(rows)) & (rows[np.minimum(place, len(rows) - 1)] == repeated)
    return np.bincount(place[known], minlength=len(rows)).astype(np.int64)


def statistics(group: Int64s, value: Int64s, size: int) -> dict[str, Int64s]:
    """Return percentiles, least, greatest, mean and deviation of each group.

    Parameters
    ----------
    group, value
        Group number and value of each observation.
    size
        Number of groups; one without observations gets -1 everywhere.

    Returns
    -------
    dict
        Arrays of length `size` by the names in `STATISTICS`; mean rounded half
        up, population standard deviation rounded to the nearest integer.
    """
    out = {name: np.full(size, NONE, np.int64) for name in STATISTICS}
    if not len(value):
        return out
    ordered, present, starts, counts = _grouped(group, value)
    for percent in PERCENTS:
        out[f"p{percent}_ns"][present] = ordered[starts + _rank(counts, percent)]
    out["min_ns"][present] = ordered[starts]
    out["max_ns"][present] = ordered[starts + counts - 1]
    total = np.add.reduceat(ordered, starts)
    mean = (2 * total + counts) // (2 * counts)
    out["mean_ns"][present] = mean
    # Around the rounded mean the squares stay small; the shift is taken out again.
    centred = (ordered - np.repeat(mean, counts)).astype(np.float64)
    shift = (total - mean * counts) / counts
    variance = np.add.reduceat(centred * centred, starts) / counts - shift * shift
    out["std_ns"][present] = np.rint(np.sqrt(np.maximum(variance, 0.0))).astype(np.int64)
    return out


def medians(group: Int64s, value: Int64s, size: int) -> Int64s:
    """Return the nearest-rank median of each group, -1 for an empty one."""
    out = np.full(size, NONE, np.int64)
    if len(value):
        ordered, present, starts, counts = _grouped(group, value)
        out[present] = ordered[starts + _rank(counts, 50)]
    return out


def _grouped(group: Int64s, value: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Sort by group and value; return values, groups present, their starts and counts."""
    if value.min() >= 0 and value.max() < 1 << VALUE_BITS and group.max() < 1 << GROUP_BITS:
        # One sort of whole numbers is several times faster than two of places.
        packed = np.sort(group << VALUE_BITS | value)
        by_group, ordered = packed >> VALUE_BITS, packed & ((1 << VALUE_BITS) - 1)
    else:
        order: NDArray[Any] = np.lexsort((value, group))
        by_group, ordered = group[order], value[order]
    starts = np.flatnonzero(np.r_[True, by_group[1:] != by_group[:-1]]).astype(np.int64)
    counts = np.diff(np.r_[starts, len(by_group)])
    return ordered, by_group[starts], starts, counts


def _rank(counts: Int64s, percent: int) -> Int64s:
    """Return the 0-based nearest rank, in integers."""
    return (percent * counts + 99) // 100 - 1
