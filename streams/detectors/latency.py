"""Raised latency of a window: LOF over the look-back, and an effect worth an alarm.

A window is suspicious when its LOF passes the threshold of the stated
false-alarm rate *and* its upper quartile has risen by the least effect. LOF sees a
change of any of the seven features, also of the greatest round trip, which on a
busy machine is wild without any fault; the upper quartile moves only when a quarter
of the probes slow down. Only slower is an anomaly; faster is not. One strongly
suspicious window is an anomaly, or two weakly suspicious ones in a row. A window is
weak if it has few answers, or if its median has not risen as well: half a window may
be a burst of the job; a delay that comes and goes is there in the next one too.

The look-back of window k is the windows from k-1-n to k-2: the one just before
k is left out, since a fault that began in it may be in it already.

The state of a 5-tuple is a function of the published windows and of which of them were
anomalous, nothing else: a restart reads both from the output topics.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from schemas.units import US_NS
from streams.columns.quantities import FEATURES, NONE, OBSERVED
from streams.columns.rounds import FlowKey
from streams.columns.table import NO_ROW, Column, Table
from streams.config import MAX_ROUND_SPAN_NS, REFRESH_STEP_NS, DetectionConfig
from streams.detectors.base import (
    MIN_ANSWERS,
    P50,
    P75,
    Decision,
    Evidence,
    FalseAlarmRate,
    FeatureBatch,
    FirstOpen,
    OpenAnomaly,
    WindowDetector,
    key_of,
    least_effects_ns,
)
from streams.detectors.levels import levels
from streams.detectors.lof import (
    STRONG,
    STRONG_RATE,
    WEAK,
    lof_scores,
    log_features,
    thresholds,
)

# Least answers for one window to decide alone: the median of five is too restless.
MIN_STRONG_ANSWERS: Final = 8
# The rise must be this many standard deviations of the look-back's upper quartiles. With
# five answers a window the quartile itself jumps about; with thirty it hardly does.
EFFECT_DEVIATIONS: Final = 3.0
# An anomaly ends when less than this share of the effect is left: hysteresis.
CLEAR_SHARE: Final = 0.5
# Windows kept beyond the look-back: the one before the newest, and one more, so
# that the newest can be judged again after a restart.
EXTRA_WINDOWS: Final = 2
NEVER: Final = -(2**62)
NO_CYCLE: Final = -(2**31)
# The look-back is the largest part of a 5-tuple's state: 32 bits hold two seconds. Slower
# features are cut to this, so that a path whose normal is slower raises no anomaly.
MOST_NS: Final = 2**31 - 1
# The prober's own delay among the medians of a batch.
HOST_DELAY: Final = "host_delay_p50_ns"
_HOST_DELAY: Final = OBSERVED.index(HOST_DELAY)
# After every time, microseconds.
FOREVER: Final = 2**62
# Spans of windows by 5-tuple, microseconds: a window of a span starts at or after its first time
# and ends before its second.
Spans = dict[FlowKey, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What LOF and effect say about each window.

    Attributes
    ----------
    strong, weak : (n,) bool
        Degrees of suspicion; False where answers or history are too few.
    score : (n,) float64
        LOF; nan where nothing has risen.
    baseline_ns : (n,) float64
        Median of the look-back's upper quartiles; nan without look-back windows.
    effect_ns : (n,) float64
        Rise above it that counts.
    baseline_p50_ns : (n,) float64
        Median of the look-back's medians.
    """

    strong: Bools
    weak: Bools
    score: Floats
    baseline_ns: Floats
    effect_ns: Floats
    baseline_p50_ns: Floats


def outlasted(config: DetectionConfig, onset_at: int, end_at: int) -> bool:
    """Return whether an anomaly lasted so long that its level is the new normal; microseconds."""
    return (end_at - onset_at) * 1000 >= config.latency_max_ns


class LookBack:
    """The look-back windows of all 5-tuples of a partition, each a ring buffer.

    Examples
    --------
    Ten equal windows, and a later one that is 10 ms slower:

    >>> lookback = LookBack(DetectionConfig())
    >>> for index in range(10):
    ...     lookback.insert(("agent", "a", "b", 0), index, np.full(7, 1_000_000))
    >>> row, slower = np.array([0]), np.full((1, 7), 11_000_000)
    >>> lookback.judge(11, row, slower, np.array([30]), np.array([1e6])).strong.tolist()
    [True]

    Parameters
    ----------
    features
        How many of the seven features of a window are kept, the first ones; `judge` needs all.
    """

    def __init__(self, config: DetectionConfig, features: int = len(FEATURES)) -> None:
        self._config = config
        self._features = features
        self._length = config.lookback_windows + EXTRA_WINDOWS
        self.table: Table[FlowKey] = Table(
            {
                "features": Column(np.int32, 0, (self._length, features)),
                # Median of the prober's own delay; negative: not measured.
                "delay": Column(np.int32, NONE, (self._length,)),
                # Which cycle of the ring buffer the window of each place belongs to.
                "cycle": Column(np.int32, NO_CYCLE, (self._length,)),
                # The last weakly suspicious window.
                "weak": Column(np.int64, NEVER),
            }
        )

    def __len__(self) -> int:
        return len(self.table)

    @property
    def windows(self) -> int:
        """Number of windows that are kept."""
        return self._length

    def insert(self, key: FlowKey, window: int, features_ns: Int64s, delay_ns: int = NONE) -> None:
        """Insert a window that is not anomalous, features of shape (7,)."""
        row = self.table.row(key)
        cycle, place = divmod(window, self._length)
        self.table["features"][row, place] = np.minimum(features_ns[: self._features], MOST_NS)
        self.table["delay"][row, place] = min(delay_ns, MOST_NS)
        self.table["cycle"][row, place] = cycle

    def insert_all(
        self, rows: Int64s, window: int, features_ns: Int64s, delays_ns: Int64s | int = NONE
    ) -> None:
        """Insert windows of different 5-tuples, as `insert` does with each.

        Parameters
        ----------
        rows : (n,) int64
            Their rows of `table`.
        window
            Index of the windows.
        features_ns : (n, 7) int64
            Their features.
        delays_ns : (n,) int64
            Medians of their probers' own delays; negative: not measured.
        """
        cycle, place = divmod(window, self._length)
        kept_ns = features_ns[:, : self._features]
        self.table["features"][rows, place] = np.minimum(kept_ns, MOST_NS)
        self.table["delay"][rows, place] = np.minimum(delays_ns, MOST_NS)
        self.table["cycle"][rows, place] = cycle

    def reset(self, key: FlowKey) -> None:
        """Forget all windows of a 5-tuple."""
        if self.table.find(key) is not None:
            self.table.remove(key)

    def note_weak(self, key: FlowKey, window: int) -> None:
        """Remember that the newest window is weakly suspicious."""
        self.table["weak"][self.table.row(key)] = window

    def withdraw_weak(self, key: FlowKey, window: int) -> bool:
        """Remove a window from the look-back if it was weakly suspicious; return whether it was."""
        row = self.table.find(key)
        if row is None or self.table["weak"][row] != window:
            return False
        cycle, place = divmod(window, self._length)
        if self.table["cycle"][row, place] == cycle:
            self.table["cycle"][row, place] = NO_CYCLE
        return True

    def was_weak(self, key: FlowKey, window: int) -> bool:
        """Return whether that window was the last weakly suspicious one."""
        row = self.table.find(key)
        return row is not None and bool(self.table["weak"][row] == window)

    def judge(
        self, window: int, rows: Int64s, features_ns: Int64s, answers: Int64s, least_ns: Floats
    ) -> Verdicts:
        """Judge windows of one index against their look-backs; nothing is inserted.

        Parameters
        ----------
        window
            Index of the windows.
        rows : (n,) int64
            The 5-tuples' rows of `table`; NO_ROW without one.
        features_ns : (n, 7) int64
            Their features.
        answers : (n,) int64
            Probes answered.
        least_ns : (n,) float64
            Least effects of their transports (`streams.detectors.base.least_effect_ns`).
        """
        valid = self.compared(window, rows, answers)
        count = valid.sum(axis=1)
        score = np.full(len(rows), np.nan)
        features = self.table["features"]
        baseline, spread = levels(features, rows, valid, P75)
        medians, scatter = levels(features, rows, valid, P50)
        effect = self._effects(least_ns, baseline, spread)
        median_effect = self._effects(least_ns, medians, scatter)
        with np.errstate(invalid="ignore"):
            raised = features_ns[:, P75] - baseline >= effect
            median_raised = features_ns[:, P50] - medians >= median_effect
            # LOF costs the most by far, and decides nothing where nothing has risen.
            places = np.flatnonzero(raised)
            score[places] = lof_scores(
                log_features(features[rows[places]]),
                valid[places],
                log_features(features_ns[places]),
            )
            strong = raised & median_raised & (answers >= MIN_STRONG_ANSWERS)
            strong &= score > thresholds(STRONG, count)
            weak = raised & (score > thresholds(WEAK, count))
        return Verdicts(strong, weak, score, baseline, effect, medians)

    def compared(self, window: int, rows: Int64s, answers: Int64s) -> Bools:
        """Return which kept windows the windows of one index are compared with, (n, windows)."""
        known = (rows != NO_ROW) & (answers >= MIN_ANSWERS)
        held = self._held(rows)
        oldest, newest = window - 1 - self._config.lookback_windows, window - 2
        out: Bools = (held >= oldest) & (held <= newest) & known[:, None]
        return out

    def usual_delay_ns(self, key: FlowKey, window: int) -> int | None:
        """Return the greatest median of the prober's own delay in the windows before one.

        None if it was not measured. The greatest: what is above it is no usual variation.
        """
        row = self.table.find(key)
        if row is None:
            return None
        rows = np.array([row])
        delays = self.table["delay"][row][self.compared(window, rows, np.array([MIN_ANSWERS]))[0]]
        delays = delays[delays >= 0]
        return int(delays.max()) if len(delays) else None

    def baseline_p50_ns(self, key: FlowKey, next_window: int) -> int | None:
        """Return the median of the last windows' medians, None without one."""
        row = self.table.find(key)
        if row is None:
            return None
        held = self._held(np.array([row]))[0]
        valid = (held < next_window) & (held >= next_window - self._config.lookback_windows)
        if not valid.any():
            return None
        return int(np.median(self.table["features"][row][valid, P50]))

    def forget(self, first_open: FirstOpen) -> None:
        """Drop the 5-tuples without a window that an open one is judged by."""
        rows = self.table.rows()
        newest = self._held(rows).max(axis=1, initial=NEVER)
        # Few lie behind the others; only theirs are looked at one by one.
        behind = newest < newest.max(initial=NEVER) - self._length
        for row, window in zip(rows[behind].tolist(), newest[behind].tolist(), strict=True):
            key = self.table.key(row)
            if window < first_open(key[0]) - 1 - self._length:
                self.table.remove(key)

    def _held(self, rows: Int64s) -> Int64s:
        """Return indices of the windows that are kept of some rows, (n, windows)."""
        index = self.table["cycle"][rows].astype(np.int64)
        index *= self._length
        index += np.arange(self._length)
        return index

    def _effects(self, least_ns: Floats, baseline_ns: Floats, deviation_ns: Floats) -> Floats:
        """Return the rise that counts: absolute by transport, relative, beyond the scatter."""
        relative = self._config.effect_ratio * baseline_ns
        return np.maximum(np.maximum(least_ns, relative), EFFECT_DEVIATIONS * deviation_ns)


@dataclass(slots=True)
class _Restoring:
    """What is known while published windows are observed after a restart."""

    first_open: FirstOpen
    # Windows that belong to anomalies, and so not to the look-back.
    raised: Spans = field(default_factory=dict)
    # Evidence of the last window of these 5-tuples.
    latest: dict[FlowKey, Evidence] = field(default_factory=dict)
    # Windows just before the first open one.
    newest: list[FeatureBatch] = field(default_factory=list)


class LatencyDetector(WindowDetector):
    """Decides on each closed window by LOF and effect.

    Attributes
    ----------
    column
        Which feature is compared: `value` of the records.
    kept
        How many features the look-back keeps, the largest part of a 5-tuple's state.
    """

    column: ClassVar = P75
    kept: ClassVar = len(FEATURES)
    kind: ClassVar = AnomalyKind.LATENCY
    name: ClassVar = "lof"
    unit: ClassVar = "ns"
    reference: ClassVar = "Breunig et al., LOF, SIGMOD 2000"

    def __init__(self, config: DetectionConfig) -> None:
        super().__init__(config)
        self.lookback = LookBack(config, self.kept)
        self._least_ns = least_effects_ns(config)
        # When silence ended an anomaly; windows that end by then belong to it.
        self._silenced_ns: dict[FlowKey, int] = {}
        self._restoring: _Restoring | None = None

    def __len__(self) -> int:
        return len(self.lookback)

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the rate of LOF alone; the effect that is needed as well makes it far lower."""
        del config
        return FalseAlarmRate(STRONG_RATE, "window of a 5-tuple")

    @property
    def history_ns(self) -> int:
        """How far back published windows matter: the look-back, and evidence of open anomalies."""
        # A window's evidence is in a record only after the next refresh. A round's span can delay
        # the refresh while windows close.
        return max(
            (self.lookback.windows + 1) * self.config.window_ns,
            MAX_ROUND_SPAN_NS + REFRESH_STEP_NS,
        )

    def observe_windows(self, windows: FeatureBatch) -> list[Decision]:
        """Judge windows; those that are not anomalous enter the look-back."""
        verdicts = self._judge(windows)
        special = verdicts.strong | verdicts.weak
        special |= windows.of_keys(self._special_keys(windows.index))
        usual = np.flatnonzero(~special)
        rows = windows.flows.rows(self.lookback.table, windows.numbers[usual], create=True)
        self.lookback.insert_all(
            rows, windows.index, windows.features_ns[usual], windows.medians_ns[usual, _HOST_DELAY]
        )
        return [
            decision
            for place in np.flatnonzero(special).tolist()
            for decision in self._decide(windows, place, verdicts)
        ]

    def forget_old(self, first_open: FirstOpen) -> None:
        """Forget 5-tuples whose windows are older than any look-back."""
        self.lookback.forget(first_open)
        window_ns = self.config.window_ns
        self._silenced_ns = {
            key: at_ns
            for key, at_ns in self._silenced_ns.items()
            if at_ns >= first_open(key[0]) * window_ns
        }

    def baseline_p50_ns(self, key: FlowKey, first_open: int) -> int | None:
        """Return the median of the look-back windows' medians."""
        return self.lookback.baseline_p50_ns(key, first_open)

    def end_by_silence(self, key: FlowKey, event_ns: int) -> Decision:
        """End an anomaly; windows that end by then belong to it and are not judged."""
        self._silenced_ns[key] = event_ns
        return super().end_by_silence(key, event_ns)

    def restore(self, published: Sequence[Anomaly], first_open: FirstOpen) -> None:
        """Set open anomalies, and which published windows belong to anomalies."""
        super().restore(published, first_open)
        cleared = [
            record
            for record in published
            if record.kind is self.kind and record.state is AnomalyState.CLEARED
        ]
        self._silenced_ns = {
            key_of(record): record.event_at * US_NS for record in cleared if record.value is None
        }
        self._restoring = _Restoring(first_open, self._raised_spans(cleared))

    def restore_windows(self, windows: FeatureBatch) -> None:
        """Insert published windows into the look-back, but for those of anomalies."""
        restoring = self._restoring
        if restoring is None:
            raise RuntimeError("restore comes before restore_windows")
        places: list[int] = []
        if restoring.raised:
            places = np.flatnonzero(windows.of_keys(restoring.raised)).tolist()
        for place in places:
            restoring.latest[windows.key(place)] = self._with_window(Evidence(), windows, place)
        if places:
            windows = windows.select(~self._raised(windows, places, restoring.raised))
        numbers = windows.numbers.tolist()
        agents = [windows.flows.key(number)[0] for number in numbers]
        opens = {agent: restoring.first_open(agent) for agent in set(agents)}
        ago = np.array([opens[agent] for agent in agents], np.int64) - windows.index
        windows = windows.select(ago <= self.lookback.windows)
        self.lookback.insert_all(
            windows.rows(self.lookback.table, create=True),
            windows.index,
            windows.features_ns,
            windows.medians_ns[:, _HOST_DELAY],
        )
        newest = ago[ago <= self.lookback.windows] == 1
        if newest.any():
            restoring.newest.append(windows.select(newest))

    def end_restore(self, first_open: FirstOpen) -> None:
        """Find the weakly suspicious newest windows; set the evidence of open anomalies."""
        self.lookback.forget(first_open)
        restoring, self._restoring = self._restoring, None
        if restoring is None:
            return
        for windows in restoring.newest:
            self._restore_weak(windows, restoring.raised)
        for anomaly in self.open_in_order():
            latest = restoring.latest.get(anomaly.key)
            if latest is not None:
                onset = anomaly.evidence
                self._update(
                    anomaly,
                    replace(
                        latest,
                        reference=onset.reference,
                        threshold=onset.threshold,
                        baseline_p50_ns=onset.baseline_p50_ns,
                        host_delay_baseline_ns=onset.host_delay_baseline_ns,
                    ),
                )

    def _judge(self, windows: FeatureBatch) -> Verdicts:
        return self.lookback.judge(
            windows.index,
            windows.rows(self.lookback.table),
            windows.features_ns,
            windows.answers,
            self._least_ns[windows.transports],
        )

    def _special_keys(self, index: int) -> list[FlowKey]:
        """Return the 5-tuples whose anomaly is open, or was ended by silence after a window."""
        end_ns = (index + 1) * self.config.window_ns
        return [*self.open, *(k for k, at_ns in self._silenced_ns.items() if at_ns >= end_ns)]

    def _decide(self, windows: FeatureBatch, place: int, verdicts: Verdicts) -> list[Decision]:
        """Decide on one window; if it is not anomalous it enters the look-back."""
        index, key, features_ns = windows.index, windows.key(place), windows.features_ns[place]
        delay_ns = int(windows.medians_ns[place, _HOST_DELAY])
        end_ns = (index + 1) * self.config.window_ns
        anomaly = self.open.get(key)
        if anomaly is not None:
            evidence = self._with_window(anomaly.evidence, windows, place)
            if self._still_raised(anomaly, evidence, end_ns // US_NS):
                self._update(anomaly, evidence)
                return []
            if outlasted(self.config, anomaly.onset_at, end_ns // US_NS):
                self.lookback.reset(key)
            self.lookback.insert(key, index, features_ns, delay_ns)
            return [self._end(anomaly, end_ns, evidence)]
        if self._silenced_ns.get(key, NEVER) >= end_ns:
            return []
        weak = bool(verdicts.weak[place])
        if verdicts.strong[place] or (weak and self.lookback.was_weak(key, index - 1)):
            first = index - self.lookback.withdraw_weak(key, index - 1)
            onset = replace(
                _onset_evidence(verdicts, place),
                host_delay_baseline_ns=self.lookback.usual_delay_ns(key, index),
            )
            evidence = self._with_window(onset, windows, place)
            return [self._begin(key, first * self.config.window_ns, end_ns, evidence)]
        self.lookback.insert(key, index, features_ns, delay_ns)
        if weak:
            self.lookback.note_weak(key, index)
        return []

    def _still_raised(self, anomaly: OpenAnomaly, evidence: Evidence, end_at: int) -> bool:
        """Compare with the reference of the onset, which the record carries."""
        reference, threshold = anomaly.evidence.reference, anomaly.evidence.threshold
        value = evidence.value
        if reference is None or threshold is None or value is None:
            return False
        raised = value - reference >= CLEAR_SHARE * (threshold - reference)
        return raised and not outlasted(self.config, anomaly.onset_at, end_at)

    def _raised_spans(self, cleared: Iterable[Anomaly]) -> Spans:
        spans: Spans = defaultdict(list)
        for anomaly in self.open.values():
            spans[anomaly.key].append((anomaly.onset_at, FOREVER))
        for record in cleared:
            if record.value is None:
                # Ended by silence: after the last window, not by one.
                span = (record.onset_at, record.event_at + 1)
            elif outlasted(self.config, record.onset_at, record.event_at):
                span = (0, record.event_at)
            else:
                span = (record.onset_at, record.event_at)
            spans[key_of(record)].append(span)
        return dict(spans)

    def _raised(self, windows: FeatureBatch, places: list[int], raised: Spans) -> Bools:
        """Mark the windows that belong to anomalies; only those at `places` can."""
        marks = np.zeros(len(windows), np.bool_)
        start_at, end_at = self._times(windows)
        for place in places:
            marks[place] = any(
                first <= start_at and end_at < end for first, end in raised[windows.key(place)]
            )
        return marks

    def _restore_weak(self, windows: FeatureBatch, raised: Spans) -> None:
        """Judge the newest windows again, but for those that ended an anomaly."""
        _, end_at = self._times(windows)
        ended = [key for key, spans in raised.items() if any(end == end_at for _, end in spans)]
        if ended:
            windows = windows.select(~windows.of_keys(ended))
        if len(windows):
            for place in np.flatnonzero(self._judge(windows).weak).tolist():
                self.lookback.note_weak(windows.key(place), windows.index)

    def _with_window(self, before: Evidence, windows: FeatureBatch, place: int) -> Evidence:
        """Return a window's evidence, beside what the onset was compared with."""
        return replace(
            before,
            value=float(windows.features_ns[place, self.column]),
            sent=int(windows.sent[place]),
            lost=int(windows.sent[place] - windows.answers[place]),
            rtt_p50_ns=int(windows.features_ns[place, P50]),
            host_delay_ns=windows.median_ns(HOST_DELAY, place),
        )

    def _times(self, windows: FeatureBatch) -> tuple[int, int]:
        """Return start and end of windows, microseconds."""
        window_ns = self.config.window_ns
        return windows.index * window_ns // US_NS, (windows.index + 1) * window_ns // US_NS


def _onset_evidence(verdicts: Verdicts, place: int) -> Evidence:
    """Return what a window is compared with."""
    baseline_ns = float(verdicts.baseline_ns[place])
    return Evidence(
        reference=baseline_ns,
        threshold=baseline_ns + float(verdicts.effect_ns[place]),
        baseline_p50_ns=round(float(verdicts.baseline_p50_ns[place])),
    )
