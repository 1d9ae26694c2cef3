"""Decisions from closed windows: raised latency and slow trends.

Everything here is a function of the published windows and of the published
anomalies, so that a restart restores it from the output topics.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import US_NS
from streams.columns.rounds import FlowKey
from streams.columns.statistics import FEATURES
from streams.columns.table import Links, Table
from streams.config import MAX_ROUND_SPAN_NS, REFRESH_STEP_NS, DetectionConfig
from streams.core.board import (
    Alarm,
    Board,
    Evidence,
    onset_evidence,
    shift_evidence,
    window_evidence,
)
from streams.core.long_term import Earlier, LongTerm
from streams.core.published import WindowColumns
from streams.core.rebuilding import Rebuilding
from streams.core.window_records import WindowBatch
from streams.detectors.latency import (
    CLEAR_SHARE,
    MIN_ANSWERS,
    P50,
    LookBack,
    Verdicts,
    least_effects_ns,
    outlasted,
)
from streams.detectors.lognormal import REFERENCES, Trend

# Windows judged at a time: what is computed of them on the way stays small, and near.
AT_ONCE: Final = 8_192


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
        self._long_term = LongTerm(self._trend, flows)
        self._rebuilding = Rebuilding(config, board, self._lookback, self._long_term)
        self._least_ns = least_effects_ns(config)
        # When silence cleared a LATENCY anomaly; its windows until then may still be open.
        self._silenced_ns: dict[FlowKey, int] = {}

    @property
    def history_ns(self) -> int:
        """How far back closed windows still matter."""
        return max((REFERENCES + 2) * self._config.trend_ns, self.lookback_ns)

    @property
    def lookback_ns(self) -> int:
        """How far back they matter but for the long-term test."""
        # What a window said of an open anomaly is in a record after the next refresh, for which
        # a round's span can let the windows wait.
        return max(
            (self._lookback.windows + 1) * self._config.window_ns,
            MAX_ROUND_SPAN_NS + REFRESH_STEP_NS,
        )

    def baseline_p50_ns(self, key: FlowKey, next_window: int) -> int | None:
        """Return the median over the look-back of the windows' medians."""
        return self._lookback.baseline_p50_ns(key, next_window)

    def on_windows(self, index: int, windows: WindowBatch) -> list[Anomaly]:
        """Judge the closed windows of one index; return what they decide, in their order."""
        parts = windows.parts(AT_ONCE)
        anomalies = [found for part in parts for found in self._judged(index, part)]
        self._lookback.forget(index)
        return anomalies

    def _judged(self, index: int, windows: WindowBatch) -> list[Anomaly]:
        anomalies: list[Anomaly] = []
        places = np.flatnonzero(windows.ok >= MIN_ANSWERS)
        if len(places):
            rows, features = windows.rows[places], windows.features[places]
            least_ns = self._least_ns[windows.transports[places]]
            verdicts = self._lookback.judge(
                index, self._to_lookback.find(rows), features, windows.ok[places], least_ns
            )
            special = verdicts.strong | verdicts.weak | np.isin(rows, self._special_rows(index))
            usual = np.flatnonzero(~special)
            self._lookback.insert_all(self._to_lookback.make(rows[usual]), index, features[usual])
            for nth in np.flatnonzero(special).tolist():
                window = windows.record(int(places[nth]))
                anomalies += self._latency(index, window, verdicts, nth)
            if self._trend.windows_per_block:
                self._long_term.add(index, rows, features[:, P50], least_ns)
        return anomalies

    def silenced(self, key: FlowKey, at_ns: int) -> None:
        """Note that silence cleared a LATENCY anomaly: windows that end by then are part of it."""
        self._silenced_ns[key] = at_ns

    def _special_rows(self, index: int) -> list[int]:
        """Return the rows of the 5-tuples with a LATENCY anomaly, open or cleared by silence."""
        end_ns = (index + 1) * self._config.window_ns
        self._silenced_ns = {k: at for k, at in self._silenced_ns.items() if at >= end_ns}
        keys = [*self._board.keys(AnomalyKind.LATENCY), *self._silenced_ns]
        return [row for row in map(self._flows.find, keys) if row is not None]

    def on_closed(self, before: int, after: int) -> list[Anomaly]:
        """Run the long-term test for blocks whose last window closed as `before` became `after`.

        Arguments are indices of the first open window.
        """
        per_block = self._trend.windows_per_block
        if not per_block:
            return []
        anomalies: list[Anomaly] = []
        first = before // per_block
        if first < after // per_block:
            self._long_term.settle()
        # Windows that close together lie close together: later blocks are empty.
        for block in range(first, min(after // per_block, first + 2)):
            anomalies += self._trends(block)
            self._trend.forget(block)
        return anomalies

    def rebuild(
        self,
        parts: Iterable[WindowColumns],
        anomalies: list[Anomaly],
        first_open: int,
        *,
        long_term: bool,
    ) -> None:
        """Rebuild what undisturbed processing would hold now, as `Rebuilding.rebuild` has it."""
        self._silenced_ns = {
            (a.agent_id, a.src, a.dst, a.flow): a.event_at * US_NS
            for a in anomalies
            if a.kind is AnomalyKind.LATENCY and a.state is AnomalyState.CLEARED and a.value is None
        }
        self._rebuilding.rebuild(parts, anomalies, first_open, long_term=long_term)

    def add_earlier(self, part: WindowColumns) -> None:
        """Take published windows for the long-term test; by one thread, while they are expected."""
        self._rebuilding.add_earlier(part)

    def expect(self, earlier: Earlier, first_open: int, watermark_ns: int) -> None:
        """Let the long-term test wait for `add_earlier`, until it is due or they have come."""
        if not self._trend.windows_per_block:
            return
        self._long_term.expect(earlier)
        closing_ns = (
            first_open // self._trend.windows_per_block * self._config.trend_ns
            + self._config.lateness_ns
        )
        # By then an open anomaly has been repeated with what the last block said, and the record
        # is enough: no probe lies more than a round's span before the watermark.
        told_ns = closing_ns + MAX_ROUND_SPAN_NS + REFRESH_STEP_NS
        if watermark_ns < told_ns and self._board.alarms(AnomalyKind.LATENCY_TREND):
            self._long_term.settle()
            self._rebuilding.restore_trends(first_open)

    def _latency(
        self, index: int, window: PathWindow, verdicts: Verdicts, place: int
    ) -> list[Anomaly]:
        """Decide one window; one that is not anomalous enters the look-back."""
        key, features = flow_key(window), np.array(features_of(window), np.int64)
        end_ns = (index + 1) * self._config.window_ns
        alarm = self._board.find(key, AnomalyKind.LATENCY)
        if alarm is not None:
            evidence = window_evidence(alarm.evidence, window)
            if self._still_raised(alarm, evidence, end_ns // US_NS):
                self._board.update(alarm, evidence)
                return []
            if outlasted(self._config, alarm.onset_at, end_ns // US_NS):
                self._lookback.reset(key)
            self._lookback.insert(key, index, features)
            return [self._board.clear(alarm, end_ns, evidence)]
        if key in self._silenced_ns:
            return []
        weak = bool(verdicts.weak[place])
        if verdicts.strong[place] or (weak and self._lookback.was_weak(key, index - 1)):
            first = index - self._lookback.take_back(key, index - 1)
            evidence = window_evidence(onset_evidence(verdicts, place), window)
            return [
                self._board.open(
                    key, AnomalyKind.LATENCY, first * self._config.window_ns, end_ns, evidence
                )
            ]
        self._lookback.insert(key, index, features)
        if weak:
            self._lookback.note_weak(key, index)
        return []

    def _still_raised(self, alarm: Alarm, evidence: Evidence, end_at: int) -> bool:
        """Compare with the reference of the onset, which the record carries."""
        reference, threshold = alarm.evidence.reference, alarm.evidence.threshold
        value = evidence.value
        if reference is None or threshold is None or value is None:
            return False
        left = value - reference >= CLEAR_SHARE * (threshold - reference)
        return left and not outlasted(self._config, alarm.onset_at, end_at)

    def _trends(self, block: int) -> list[Anomaly]:
        kind = AnomalyKind.LATENCY_TREND
        start_ns, end_ns = block * self._config.trend_ns, (block + 1) * self._config.trend_ns
        anomalies = []
        for key in self._trend.keys(block):
            alarm = self._board.find(key, kind)
            shift = self._trend.shift(key, block)
            if shift is not None and alarm is None:
                anomalies.append(
                    self._board.open(key, kind, start_ns, end_ns, shift_evidence(shift))
                )
            elif shift is not None and alarm is not None:
                self._board.update(alarm, shift_evidence(shift))
            elif alarm is not None:
                anomalies.append(self._board.clear(alarm, end_ns))
        return anomalies
