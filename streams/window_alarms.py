"""Decisions from closed windows: raised latency and slow trends.

Everything here is a function of the published windows and of the published
anomalies, so that a restart restores it from the output topics.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import numpy as np

from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly, PathWindow
from streams.board import US_NS, Alarm, Board, Evidence
from streams.columns import FlowKey
from streams.config import DetectionConfig
from streams.detectors.latency import (
    CLEAR_SHARE,
    MIN_ANSWERS,
    P50,
    LookBack,
    Verdicts,
    least_effect_ns,
)
from streams.detectors.lognormal import REFERENCES, Shift, Trend
from streams.statistics import FEATURES
from streams.table import NO_ROW, Links, Table
from streams.window_records import OF_TRANSPORT, WindowBatch

# Beyond every time, microseconds.
FOREVER: Final = 2**62


def features_of(window: PathWindow) -> list[int] | None:
    """Return the seven features of a window, None where no probe answered."""
    values = [getattr(window, name) for name in FEATURES]
    return None if None in values else values


def flow_key(window: PathWindow) -> FlowKey:
    """Return the 5-tuple of a window."""
    return window.agent_id, window.src, window.dst, window.flow


class WindowAlarms:
    """LOF and the long-term test of one partition."""

    def __init__(self, config: DetectionConfig, board: Board, flows: Table[FlowKey]) -> None:
        self._config = config
        self._board = board
        self._flows = flows
        self._lookback = LookBack(config)
        self._trend = Trend(config.trend_ns // config.window_ns)
        self._to_lookback = Links(flows, self._lookback.table)
        self._to_trend = Links(flows, self._trend.table)
        self._least_ns = np.array([least_effect_ns(config, t) for t in OF_TRANSPORT], np.float64)

    @property
    def history_ns(self) -> int:
        """How far back closed windows still matter."""
        blocks = (REFERENCES + 2) * self._config.trend_ns
        return max(blocks, (self._lookback.windows + 1) * self._config.window_ns)

    def baseline_p50_ns(self, key: FlowKey, next_window: int) -> int | None:
        """Return the median over the look-back of the windows' medians."""
        return self._lookback.baseline_p50_ns(key, next_window)

    def on_windows(self, index: int, windows: WindowBatch) -> list[Anomaly]:
        """Judge the closed windows of one index; return what they decide, in their order."""
        anomalies: list[Anomaly] = []
        places = np.flatnonzero(windows.ok >= MIN_ANSWERS)
        if len(places):
            rows, features = windows.rows[places], windows.features[places]
            least_ns = self._least_ns[windows.transports[places]]
            verdicts = self._lookback.judge(
                index, self._to_lookback.find(rows), features, windows.ok[places], least_ns
            )
            special = verdicts.strong | verdicts.weak | np.isin(rows, self._raised_rows())
            usual = np.flatnonzero(~special)
            self._lookback.insert_all(self._to_lookback.make(rows[usual]), index, features[usual])
            for nth in np.flatnonzero(special).tolist():
                window = windows.record(int(places[nth]))
                anomalies += self._latency(index, window, verdicts, nth)
            if self._trend.windows_per_block:
                self._trend.add_all(self._to_trend.make(rows), index, features[:, P50], least_ns)
        self._lookback.forget(index)
        return anomalies

    def _raised_rows(self) -> list[int]:
        """Return the rows of the 5-tuples with an open LATENCY anomaly."""
        found = map(self._flows.find, self._board.keys(AnomalyKind.LATENCY))
        return [row for row in found if row is not None]

    def on_closed(self, before: int, after: int) -> list[Anomaly]:
        """Run the long-term test for blocks whose last window closed as `before` became `after`.

        Arguments are indices of the first open window.
        """
        per_block = self._trend.windows_per_block
        if not per_block:
            return []
        anomalies: list[Anomaly] = []
        first = before // per_block
        # Windows that close together lie close together: later blocks are empty.
        for block in range(first, min(after // per_block, first + 2)):
            anomalies += self._trends(block)
            self._trend.forget(block)
        return anomalies

    def restore(
        self, windows: Iterable[PathWindow], anomalies: list[Anomaly], first_open: int
    ) -> None:
        """Rebuild what undisturbed processing would hold now.

        Parameters
        ----------
        windows
            The published windows of the look-back, in the topic's order.
        anomalies
            The published anomalies since the look-back's first window, in order.
        first_open
            Index of the first open window.
        """
        raised = self._raised_spans(anomalies)
        latest: dict[FlowKey, PathWindow] = {}
        newest: list[PathWindow] = []
        for window in windows:
            features = features_of(window)
            index, rest = divmod(window.window_start_at * US_NS, self._config.window_ns)
            length = (window.window_end_at - window.window_start_at) * US_NS
            if window.ok < MIN_ANSWERS or features is None:
                continue
            # Windows of another length, from before a change of the settings, do not compare.
            if rest or length != self._config.window_ns:
                continue
            key = flow_key(window)
            latest[key] = window
            spans = raised[key]
            if index >= first_open - self._lookback.windows and not any(
                first <= window.window_start_at and window.window_end_at < end
                for first, end in spans
            ):
                self._lookback.insert(key, index, np.array(features, np.int64))
                if index == first_open - 1:
                    newest.append(window)
            self._trend.add(
                key, index, features[P50], least_effect_ns(self._config, window.transport)
            )
        self._restore_weak(first_open - 1, newest, raised)
        self._restore_evidence(latest, first_open)

    def _raised_spans(self, anomalies: Iterable[Anomaly]) -> dict[FlowKey, list[tuple[int, int]]]:
        """Return spans of windows that are not in the look-back, by 5-tuple, microseconds.

        Such a window starts at or after the span's first time and ends before its second.
        """
        spans: dict[FlowKey, list[tuple[int, int]]] = defaultdict(list)
        for alarm in self._board.alarms(AnomalyKind.LATENCY):
            spans[alarm.key].append((alarm.onset_at, FOREVER))
        for anomaly in anomalies:
            if anomaly.kind is AnomalyKind.LATENCY and anomaly.state is AnomalyState.CLEARED:
                key = (anomaly.agent_id, anomaly.src, anomaly.dst, anomaly.flow)
                if anomaly.value is None:
                    # Silence: cleared after the last window, not by one.
                    span = (anomaly.onset_at, anomaly.event_at + 1)
                elif self._outlasted(anomaly.onset_at, anomaly.event_at):
                    span = (0, anomaly.event_at)
                else:
                    span = (anomaly.onset_at, anomaly.event_at)
                spans[key].append(span)
        return spans

    def _restore_weak(
        self, index: int, windows: list[PathWindow], raised: dict[FlowKey, list[tuple[int, int]]]
    ) -> None:
        """Judge the newest windows again: which of them are weakly suspicious."""
        # One that cleared an anomaly was not judged.
        asked = [
            w for w in windows if all(w.window_end_at != end for _, end in raised[flow_key(w)])
        ]
        if asked:
            verdicts = self._judge(index, asked)
            for window, weak in zip(asked, verdicts.weak.tolist(), strict=True):
                if weak:
                    self._lookback.note_weak(flow_key(window), index)

    def _judge(self, index: int, windows: list[PathWindow]) -> Verdicts:
        table = self._lookback.table
        found = table.find_all([flow_key(w) for w in windows])
        return self._lookback.judge(
            index,
            np.array([NO_ROW if row is None else row for row in found], np.int64),
            np.array([features_of(w) for w in windows], np.int64),
            np.array([w.ok for w in windows]),
            np.array([least_effect_ns(self._config, w.transport) for w in windows], np.float64),
        )

    def _restore_evidence(self, latest: dict[FlowKey, PathWindow], first_open: int) -> None:
        """Say of open anomalies what the last window said, as undisturbed processing does."""
        for alarm in self._board.alarms(AnomalyKind.LATENCY):
            window = latest.get(alarm.key)
            if window is not None:
                self._board.update(alarm, self._window_evidence(alarm.evidence, window))
        if not self._trend.windows_per_block:
            return
        block = first_open // self._trend.windows_per_block - 1
        for alarm in self._board.alarms(AnomalyKind.LATENCY_TREND):
            shift = self._trend.shift(alarm.key, block)
            if shift is not None:
                self._board.update(alarm, _shift_evidence(shift))

    def _latency(
        self, index: int, window: PathWindow, verdicts: Verdicts, place: int
    ) -> list[Anomaly]:
        """Decide one window; one that is not anomalous enters the look-back."""
        key, features = flow_key(window), np.array(features_of(window), np.int64)
        end_ns = (index + 1) * self._config.window_ns
        alarm = self._board.find(key, AnomalyKind.LATENCY)
        if alarm is not None:
            evidence = self._window_evidence(alarm.evidence, window)
            if self._still_raised(alarm, evidence, end_ns // US_NS):
                self._board.update(alarm, evidence)
                return []
            if self._outlasted(alarm.onset_at, end_ns // US_NS):
                self._lookback.reset(key)
            self._lookback.insert(key, index, features)
            return [self._board.clear(alarm, end_ns, evidence)]
        weak = bool(verdicts.weak[place])
        if verdicts.strong[place] or (weak and self._lookback.was_weak(key, index - 1)):
            first = index - self._lookback.take_back(key, index - 1)
            evidence = self._window_evidence(_onset_evidence(verdicts, place), window)
            return [
                self._board.open(
                    key, AnomalyKind.LATENCY, first * self._config.window_ns, end_ns, evidence
                )
            ]
        self._lookback.insert(key, index, features)
        if weak:
            self._lookback.note_weak(key, index)
        return []

    def _outlasted(self, onset_at: int, end_at: int) -> bool:
        """Return whether an anomaly lasted so long that its level is the new normal."""
        return (end_at - onset_at) * US_NS >= self._config.latency_max_ns

    def _still_raised(self, alarm: Alarm, evidence: Evidence, end_at: int) -> bool:
        """Compare with the reference of the onset, which the record carries."""
        reference, threshold = alarm.evidence.reference, alarm.evidence.threshold
        value = evidence.value
        if reference is None or threshold is None or value is None:
            return False
        left = value - reference >= CLEAR_SHARE * (threshold - reference)
        return left and not self._outlasted(alarm.onset_at, end_at)

    @staticmethod
    def _window_evidence(before: Evidence, window: PathWindow) -> Evidence:
        return Evidence(
            value=None if window.p75_ns is None else float(window.p75_ns),
            reference=before.reference,
            threshold=before.threshold,
            sent=window.sent,
            lost=window.lost,
            rtt_p50_ns=window.p50_ns,
            baseline_p50_ns=before.baseline_p50_ns,
            host_delay_ns=window.host_delay_p50_ns,
        )

    def _trends(self, block: int) -> list[Anomaly]:
        kind = AnomalyKind.LATENCY_TREND
        start_ns, end_ns = block * self._config.trend_ns, (block + 1) * self._config.trend_ns
        anomalies = []
        for key in self._trend.keys(block):
            alarm = self._board.find(key, kind)
            shift = self._trend.shift(key, block)
            if shift is not None and alarm is None:
                anomalies.append(
                    self._board.open(key, kind, start_ns, end_ns, _shift_evidence(shift))
                )
            elif shift is not None and alarm is not None:
                self._board.update(alarm, _shift_evidence(shift))
            elif alarm is not None:
                anomalies.append(self._board.clear(alarm, end_ns))
        return anomalies


def _onset_evidence(verdicts: Verdicts, place: int) -> Evidence:
    baseline = float(verdicts.baseline_ns[place])
    return Evidence(
        reference=baseline,
        threshold=baseline + float(verdicts.effect_ns[place]),
        baseline_p50_ns=round(float(verdicts.baseline_p50_ns[place])),
    )


def _shift_evidence(shift: Shift) -> Evidence:
    return Evidence(
        value=float(shift.median_ns),
        reference=float(shift.reference_ns),
        threshold=shift.reference_ns + shift.least_ns,
        rtt_p50_ns=shift.median_ns,
        baseline_p50_ns=shift.reference_ns,
    )
