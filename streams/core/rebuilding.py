"""What closed windows leave behind, rebuilt from the output topics after a restart."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from schemas.columns.arrays import Bools, Int64s
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from streams.columns.rounds import FlowKey
from streams.config import DetectionConfig
from streams.core.board import Board, shift_evidence, window_evidence
from streams.core.long_term import LongTerm
from streams.core.published import Rows, WindowColumns, by_window
from streams.detectors.latency import P50, LookBack, least_effects_ns, outlasted

# Beyond every time, microseconds.
FOREVER: Final = 2**62
Spans = dict[FlowKey, list[tuple[int, int]]]


class _Last(NamedTuple):
    """The last window of a 5-tuple, as evidence shows it."""

    p75_ns: int | None
    p50_ns: int | None
    sent: int
    lost: int
    host_delay_p50_ns: int | None


class _Chosen:
    """Which windows are of some few 5-tuples."""

    def __init__(self, keys: Iterable[FlowKey]) -> None:
        self._keys = set(keys)
        self._numbers: list[int] = []
        self._seen = 0

    def places(self, windows: WindowColumns) -> list[int]:
        """Return the places of their windows; all windows asked about are of one reader."""
        if not self._keys:
            return []
        known = windows.keys
        self._numbers += [n for n in range(self._seen, len(known)) if known[n] in self._keys]
        self._seen = len(known)
        found: list[int] = np.flatnonzero(np.isin(windows.numbers, self._numbers)).tolist()
        return found


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """Rebuilds what undisturbed processing would hold."""

    config: DetectionConfig
    board: Board
    lookback: LookBack
    long_term: LongTerm

    def rebuild(
        self,
        parts: Iterable[WindowColumns],
        anomalies: Iterable[Anomaly],
        first_open: int,
        *,
        long_term: bool,
    ) -> None:
        """Rebuild the look-back and the evidence of raised latency.

        Parameters
        ----------
        parts
            The published windows in the topic's order, all of one reader.
        anomalies
            The published anomalies since the look-back's first window, in order.
        first_open
            Index of the first open window.
        long_term
            Whether the windows are those of the long-term test as well.
        """
        raised = self._raised_spans(anomalies)
        chosen = _Chosen(raised)
        latest: dict[FlowKey, _Last] = {}
        newest: list[WindowColumns] = []
        rows = Rows(self.lookback.table)
        for part in parts:
            for index, windows in by_window(part, self.config.window_ns):
                places = chosen.places(windows)
                latest.update((windows.key(place), _last(windows, place)) for place in places)
                if index >= first_open - self.lookback.windows:
                    kept = windows.take(~_raised(windows, places, raised))
                    self.lookback.insert_all(rows.of(kept), index, kept.features)
                    if index == first_open - 1:
                        newest.append(kept)
                if long_term:
                    self.add_long_term(index, windows)
        for windows in newest:
            self._restore_weak(first_open - 1, windows, chosen, rows, raised)
        for alarm in self.board.alarms(AnomalyKind.LATENCY):
            last = latest.get(alarm.key)
            if last is not None:
                self.board.update(alarm, window_evidence(alarm.evidence, last))
        if long_term:
            self.restore_trends(first_open)

    def add_earlier(self, part: WindowColumns) -> None:
        """Take windows into the blocks of the long-term test only."""
        for index, windows in by_window(part, self.config.window_ns):
            self.add_long_term(index, windows)

    def add_long_term(self, index: int, windows: WindowColumns) -> None:
        """Take windows of one index into their block."""
        least_ns = least_effects_ns(self.config)[windows["transport"]]
        self.long_term.add_earlier(index, windows, windows.features[:, P50], least_ns)

    def restore_trends(self, first_open: int) -> None:
        """Say of open slow trends what the last block said."""
        trend = self.long_term.trend
        if not trend.windows_per_block:
            return
        block = first_open // trend.windows_per_block - 1
        for alarm in self.board.alarms(AnomalyKind.LATENCY_TREND):
            shift = trend.shift(alarm.key, block)
            if shift is not None:
                self.board.update(alarm, shift_evidence(shift))

    def _raised_spans(self, anomalies: Iterable[Anomaly]) -> Spans:
        """Return spans of windows that are not in the look-back, by 5-tuple, microseconds.

        Such a window starts at or after the span's first time and ends before its second.
        """
        spans: Spans = defaultdict(list)
        for alarm in self.board.alarms(AnomalyKind.LATENCY):
            spans[alarm.key].append((alarm.onset_at, FOREVER))
        for anomaly in anomalies:
            if anomaly.kind is AnomalyKind.LATENCY and anomaly.state is AnomalyState.CLEARED:
                key = (anomaly.agent_id, anomaly.src, anomaly.dst, anomaly.flow)
                if anomaly.value is None:
                    # Silence: cleared after the last window, not by one.
                    span = (anomaly.onset_at, anomaly.event_at + 1)
                elif outlasted(self.config, anomaly.onset_at, anomaly.event_at):
                    span = (0, anomaly.event_at)
                else:
                    span = (anomaly.onset_at, anomaly.event_at)
                spans[key].append(span)
        return dict(spans)

    def _restore_weak(
        self, index: int, windows: WindowColumns, chosen: _Chosen, rows: Rows, raised: Spans
    ) -> None:
        """Judge the newest windows again: which of them are weakly suspicious."""
        # One that cleared an anomaly was not judged.
        asked = np.ones(len(windows), np.bool_)
        for place in chosen.places(windows):
            end_at = int(windows["window_end_at"][place])
            asked[place] = all(end_at != end for _, end in raised[windows.key(place)])
        windows = windows.take(asked)
        if not len(windows):
            return
        verdicts = self.lookback.judge(
            index,
            rows.of(windows),
            windows.features,
            windows["ok"],
            least_effects_ns(self.config)[windows["transport"]],
        )
        for place in np.flatnonzero(verdicts.weak).tolist():
            self.lookback.note_weak(windows.key(place), index)


def _raised(windows: WindowColumns, places: list[int], raised: Spans) -> Bools:
    """Mark the windows that anomalies cover; only those at `places` can be."""
    marks = np.zeros(len(windows), np.bool_)
    starts: Int64s = windows["window_start_at"]
    ends: Int64s = windows["window_end_at"]
    for place in places:
        marks[place] = any(
            first <= starts[place] and ends[place] < end
            for first, end in raised[windows.key(place)]
        )
    return marks


def _last(windows: WindowColumns, place: int) -> _Last:
    return _Last(
        p75_ns=windows.number("p75_ns", place),
        p50_ns=windows.number("p50_ns", place),
        sent=int(windows["sent"][place]),
        lost=int(windows["lost"][place]),
        host_delay_p50_ns=windows.number("host_delay_p50_ns", place),
    )
