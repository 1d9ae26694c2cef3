"""Windows that are slower than those before them: when such an anomaly begins, lasts and ends.

What a detector takes for slower is its own (`RiseDetector.judge`). One strongly suspicious window
is an anomaly, or two weakly suspicious ones in a row. It lasts until a window has lost most of the
rise that began it. Its windows are no look-back of its detector.

The state of a 5-tuple is a function of the published windows and of which of them were
anomalous, nothing else: a restart reads both from the output topics.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.enums import AnomalyState
from schemas.records import Anomaly
from schemas.units import US_NS
from streams.columns.rounds import FlowKey
from streams.config import MAX_ROUND_SPAN_NS, REFRESH_STEP_NS, DetectionConfig
from streams.detectors.base import (
    P50,
    Decision,
    Evidence,
    FeatureBatch,
    FirstOpen,
    OpenAnomaly,
    WindowDetector,
    key_of,
    least_effects_ns,
)
from streams.detectors.lookback import HOST_DELAY, NEVER, LookBack

# An anomaly ends when less than this share of the effect is left: hysteresis.
CLEAR_SHARE: Final = 0.5
# After every time, microseconds.
FOREVER: Final = 2**62
# Spans of windows by 5-tuple, microseconds: a window of a span starts at or after its first time
# and ends before its second.
Spans = dict[FlowKey, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Windows of a batch that are suspicious, and what they were compared with.

    Attributes
    ----------
    places : (n,) int64
        Their places in the batch, ascending.
    strong : (n,) bool
        Whether one alone is an anomaly; else two in a row are.
    baseline_ns : (n,) float64
        What is usual of the feature that is compared.
    effect_ns : (n,) float64
        Rise above it that counts.
    baseline_p50_ns : (n,) float64
        Median of the look-back's medians.
    """

    places: Int64s
    strong: Bools
    baseline_ns: Floats
    effect_ns: Floats
    baseline_p50_ns: Floats


# What nearly every batch of a healthy network shows.
NOTHING_SUSPICIOUS: Final = Suspicion(
    np.zeros(0, np.int64), np.zeros(0, np.bool_), *(np.zeros(0) for _ in range(3))
)


def outlasted(config: DetectionConfig, onset_at: int, end_at: int) -> bool:
    """Return whether an anomaly lasted so long that its level is the new normal; microseconds."""
    return (end_at - onset_at) * 1000 >= config.latency_max_ns


@dataclass(slots=True)
class _Restoring:
    """What is known while published windows are observed after a restart."""

    # Windows that belong to anomalies, and so not to the look-back.
    raised: Spans
    # Evidence of the last window of these 5-tuples.
    latest: dict[FlowKey, Evidence] = field(default_factory=dict)


class RiseDetector(WindowDetector):
    """Decides on each closed window by what its look-back shows.

    Attributes
    ----------
    column
        Which feature is compared: `value` of the records.

    Parameters
    ----------
    config
        Settings.
    lookback
        The look-back of all detectors; a batch's windows have entered it already.
    """

    column: ClassVar[int]
    unit: ClassVar = "ns"

    def __init__(self, config: DetectionConfig, lookback: LookBack) -> None:
        super().__init__(config)
        self.lookback = lookback
        # Of the windows that are no look-back of this detector.
        self.mark = lookback.new_mark()
        self.least_ns = least_effects_ns(config)
        # The last weakly suspicious window.
        self._weak: dict[FlowKey, int] = {}
        # When silence ended an anomaly; windows that end by then belong to it.
        self._silenced_ns: dict[FlowKey, int] = {}
        self._restoring: _Restoring | None = None

    def __len__(self) -> int:
        return len(self.lookback)

    @abstractmethod
    def judge(self, windows: FeatureBatch) -> Suspicion:
        """Compare windows with the look-back; nothing is changed."""

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
        """Judge windows; those of anomalies are no look-back."""
        suspicion = self.judge(windows)
        keys = self._special_keys(windows.index)
        if not keys and not len(suspicion.places):
            return []
        special = windows.of_keys(keys)
        special[suspicion.places] = True
        suspicious = {place: number for number, place in enumerate(suspicion.places.tolist())}
        decisions, anomalous = [], []
        for place in np.flatnonzero(special).tolist():
            decisions += self._decide(windows, place, suspicion, suspicious.get(place))
            key = windows.key(place)
            if key in self.open or self._was_silenced(key, windows.index):
                anomalous.append(place)
        if anomalous:
            self.lookback.leave_out(windows.select(np.array(anomalous)), self.mark)
        return decisions

    def forget_old(self, first_open: FirstOpen) -> None:
        """Forget what no open window is judged by."""
        window_ns = self.config.window_ns
        self._silenced_ns = {
            key: at_ns
            for key, at_ns in self._silenced_ns.items()
            if at_ns >= first_open(key[0]) * window_ns
        }
        self._weak = {
            key: window for key, window in self._weak.items() if window >= first_open(key[0]) - 1
        }

    def baseline_p50_ns(self, key: FlowKey, first_open: int) -> int | None:
        """Return the median of the look-back windows' medians."""
        return self.lookback.baseline_p50_ns(key, first_open, self.mark)

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
        self._restoring = _Restoring(self._raised_spans(cleared))

    def restore_windows(self, windows: FeatureBatch) -> None:
        """Mark the published windows of anomalies; they are in the look-back."""
        restoring = self._restoring
        if restoring is None:
            raise RuntimeError("restore comes before restore_windows")
        if restoring.raised:
            places = np.flatnonzero(windows.of_keys(restoring.raised)).tolist()
            for place in places:
                restoring.latest[windows.key(place)] = self._with_window(Evidence(), windows, place)
            raised = self._raised(windows, places, restoring.raised)
            self.lookback.leave_out(windows.select(raised), self.mark)

    def end_restore(self, first_open: FirstOpen, newest: Sequence[FeatureBatch] = ()) -> None:
        """Find the weakly suspicious newest windows; set the evidence of open anomalies."""
        del first_open
        restoring, self._restoring = self._restoring, None
        if restoring is None:
            return
        for windows in newest:
            places = np.flatnonzero(windows.of_keys(restoring.raised)).tolist()
            raised = self._raised(windows, places, restoring.raised)
            self._restore_weak(windows.select(~raised), restoring.raised)
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

    def _special_keys(self, index: int) -> list[FlowKey]:
        """Return the 5-tuples whose anomaly is open, or was ended by silence after a window."""
        return [*self.open, *(key for key in self._silenced_ns if self._was_silenced(key, index))]

    def _was_silenced(self, key: FlowKey, index: int) -> bool:
        """Return whether silence ended an anomaly after a window."""
        return self._silenced_ns.get(key, NEVER) >= (index + 1) * self.config.window_ns

    def _decide(
        self, windows: FeatureBatch, place: int, suspicion: Suspicion, number: int | None
    ) -> list[Decision]:
        """Decide on one window; `number` is its place in `suspicion`."""
        index, key = windows.index, windows.key(place)
        end_ns = (index + 1) * self.config.window_ns
        anomaly = self.open.get(key)
        if anomaly is not None:
            evidence = self._with_window(anomaly.evidence, windows, place)
            if self._still_raised(anomaly, evidence, end_ns // US_NS):
                self._update(anomaly, evidence)
                return []
            if outlasted(self.config, anomaly.onset_at, end_ns // US_NS):
                self.lookback.leave_out_before(key, index, self.mark)
            return [self._end(anomaly, end_ns, evidence)]
        if number is None or self._was_silenced(key, index):
            return []
        was_weak = self._weak.get(key) == index - 1
        if not suspicion.strong[number] and not was_weak:
            self._weak[key] = index
            return []
        first = index
        if was_weak:
            first -= 1
            self.lookback.leave_out_one(key, first, self.mark)
        onset = replace(
            _onset_evidence(suspicion, number),
            host_delay_baseline_ns=self.lookback.usual_delay_ns(key, index, self.mark),
        )
        evidence = self._with_window(onset, windows, place)
        return [self._begin(key, first * self.config.window_ns, end_ns, evidence)]

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
            for place in self.judge(windows).places.tolist():
                self._weak[windows.key(place)] = windows.index

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


def _onset_evidence(suspicion: Suspicion, number: int) -> Evidence:
    """Return what a window is compared with."""
    baseline_ns = float(suspicion.baseline_ns[number])
    return Evidence(
        reference=baseline_ns,
        threshold=baseline_ns + float(suspicion.effect_ns[number]),
        baseline_p50_ns=round(float(suspicion.baseline_p50_ns[number])),
    )
