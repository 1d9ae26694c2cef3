"""Event-time tumbling windows per 5-tuple: exact statistics, closed all at once.

A result belongs to the window that holds its sending time. Windows are kept as
lists of column chunks, nothing is computed per result; when a window closes,
one pass gives the statistics of every 5-tuple in it
(`streams.columns.statistics`, `streams.columns.closing`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from schemas.columns.arrays import Bools, Int64s
from streams.columns.closing import window_values
from streams.columns.rounds import MISSING, RoundColumns
from streams.columns.statistics import COLUMNS

# Row, round-trip time (-1: lost), delays in the prober's and the responder's host (-1: not
# measured) of some results.
Chunk = tuple[Int64s, Int64s, Int64s, Int64s]
# Rows, results sent, answered, and statistics by row, as `window_values` returns them.
Values = tuple[Int64s, Int64s, Int64s, Int64s]


@dataclass(slots=True)
class _Open:
    """Chunks of one open window; `repeats` are rows of duplicate results."""

    chunks: list[Chunk] = field(default_factory=list)
    repeats: list[Int64s] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Statistics of one window, one entry per row (5-tuple) with results.

    All arrays have one length, `values` has len(COLUMNS) columns; -1 stands for "no
    probe answered" or "not measured". `index` times the window's length is its start.
    """

    index: int
    rows: Int64s
    sent: Int64s
    ok: Int64s
    repeats: Int64s
    values: Int64s


class Windows:
    """The open windows of one partition.

    Parameters
    ----------
    window_ns
        Length of a window.
    floor_ns
        Windows that end by this time were closed before a restart.

    Attributes
    ----------
    before_closing, values_of
        Set by `streams.core.window_slots`, which gathers results outside the chunks. The first
        is called before windows close, and opens those that slots have results of
        (`ensure_open`). The second gives a window's values from slots and chunks.
    """

    def __init__(self, window_ns: int, floor_ns: int = 0) -> None:
        self.window_ns = window_ns
        self._open: dict[int, _Open] = {}
        # Windows with a smaller index are closed.
        self._next = 0
        # Results before this time were published by windows of another length.
        self._floor_ns = floor_ns
        self.before_closing: Callable[[], None] = lambda: None
        self.values_of: Callable[[int, Sequence[Chunk]], Values] = _values

    @property
    def closed_ns(self) -> int:
        """Time up to which all windows are closed."""
        return max(self._next * self.window_ns, self._floor_ns)

    @property
    def entry_ns(self) -> int:
        """Time from which on results may be added by `add_chunk`: at a restart before `closed_ns`.

        Of windows that are closed for good nothing is kept then. Where the floor lies inside a
        window, only `add_round` can tell its results apart.
        """
        if self._floor_ns % self.window_ns:
            return self.closed_ns
        return self._next * self.window_ns

    @property
    def first_open(self) -> int:
        """Index of the first window that is not closed."""
        return self._next

    def add_round(self, rows: Int64s, columns: RoundColumns) -> Bools:
        """Add the results of a round; return which of them came in time."""
        sent_ns = columns.sent_ns
        timely = sent_ns >= self._next * self.window_ns
        counted = timely & (sent_ns >= self._floor_ns)
        index = sent_ns // self.window_ns
        rtt_ns = np.where(columns.ok, columns.rtt_ns, MISSING)
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
        if self._is_wanted(window):
            self._window(window).chunks.append((rows, rtt_ns, host_ns, responder_ns))

    def ensure_open(self, window: int) -> bool:
        """Open a window whose results are gathered elsewhere; return whether they are wanted.

        They are not wanted of a window that was closed before a restart.
        """
        wanted = self._is_wanted(window)
        if wanted:
            self._window(window)
        return wanted

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
        self.before_closing()
        self._next = upto
        due = sorted(index for index in self._open if index < upto)
        popped = [(index, self._open.pop(index)) for index in due]
        closed = [self._closed(index, window) for index, window in popped]
        return [window for window in closed if len(window.rows)]

    def _closed(self, index: int, window: _Open) -> ClosedWindow:
        rows, sent, ok, values = self.values_of(index, window.chunks)
        return ClosedWindow(
            index=index,
            rows=rows,
            sent=sent,
            ok=ok,
            repeats=_repeats(rows, window.repeats),
            values=values,
        )

    def _is_wanted(self, window: int) -> bool:
        return (window + 1) * self.window_ns > self._floor_ns

    def _window(self, index: int) -> _Open:
        window = self._open.get(index)
        if window is None:
            window = self._open[index] = _Open()
        return window


def _values(_index: int, chunks: Sequence[Chunk]) -> Values:
    if not chunks:
        none = np.zeros(0, np.int64)
        return none, none, none, np.zeros((0, len(COLUMNS)), np.int64)
    rows, rtt, host, responder = (np.concatenate(column) for column in zip(*chunks, strict=True))
    return window_values(rows, rtt, host, responder)


def _repeats(rows: Int64s, chunks: list[Int64s]) -> Int64s:
    if not chunks:
        return np.zeros(len(rows), np.int64)
    repeated = np.concatenate(chunks)
    place = np.searchsorted(rows, repeated)
    known = (place < len(rows)) & (rows[np.minimum(place, len(rows) - 1)] == repeated)
    return np.bincount(place[known], minlength=len(rows)).astype(np.int64)
