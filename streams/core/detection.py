"""The detectors of one partition, and the records of what they decide.

An anomaly begins (ONSET), is repeated every few seconds of arrival while it
lasts (ONGOING) and ends (CLEARED). What a later record needs from an earlier one
stands in the record itself, so that the tail of the topic restores the open anomalies.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from schemas.enums import AnomalyKind, AnomalyState
from schemas.ids import path_id
from schemas.records import Anomaly
from schemas.units import US_NS
from schemas.version import VERSION
from streams.columns.rounds import NEVER_NS, FlowKey
from streams.config import MAX_ROUND_SPAN_NS, REFRESH_STEP_NS, DetectionConfig
from streams.core.clock import max_open_ns
from streams.core.history import (
    BackgroundHistory,
    Earlier,
    ProbedFlows,
    PublishedFlows,
    closed_features,
    published_features,
)
from streams.core.outputs import anomaly_identity
from streams.core.published import WindowColumns
from streams.core.window_records import WindowBatch
from streams.detectors.base import (
    FOREVER_S,
    Decision,
    Detector,
    FeatureBatch,
    FirstOpen,
    Moved,
    ProbeDetector,
    ResultBatch,
    WindowDetector,
)
from streams.detectors.late_answers import Side
from streams.detectors.lookback import LookBack
from streams.detectors.moments import Moment, MomentDetector
from streams.detectors.recent import RecentProbes
from streams.detectors.rises import RiseDetector

# Windows that detectors observe at a time: their intermediate arrays stay in the caches.
AT_ONCE: Final = 8_192


class Detection:
    """Lets the detectors observe a partition.

    Parameters
    ----------
    config, cluster
        Settings; name for the records.
    recent
        Results of the last minute.
    first_open
        Gives the index of an agent's first open window.
    detectors
        Classes of the detectors, in the order of their decisions.
    """

    def __init__(
        self,
        config: DetectionConfig,
        cluster: str,
        recent: RecentProbes,
        first_open: FirstOpen,
        detectors: Sequence[type[Detector]],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._recent = recent
        self._first_open = first_open
        self._flows = ProbedFlows(recent.flows)
        self._of_probes = [
            detector(config, recent, self._baseline_p50_ns)
            for detector in detectors
            if issubclass(detector, ProbeDetector)
        ]
        self._lookback = LookBack(config)
        self._of_windows = [
            detector(config, self._lookback)
            if issubclass(detector, RiseDetector)
            else detector(config)
            for detector in detectors
            if issubclass(detector, WindowDetector)
        ]
        self._of_moments = [
            detector(config, recent, self._lookback)
            for detector in detectors
            if issubclass(detector, MomentDetector)
        ]
        self._histories = {
            detector: BackgroundHistory(detector, config.window_ns)
            for detector in self._of_windows
            if detector.background_history
        }
        self.detectors: tuple[Detector, ...] = (
            *self._of_probes,
            *self._of_moments,
            *self._of_windows,
        )
        # Onsets of the present round: not to be repeated at once.
        self._onsets: set[tuple[FlowKey, AnomalyKind]] = set()

    def __len__(self) -> int:
        """Return the number of open anomalies."""
        return sum(len(detector.open) for detector in self.detectors)

    @property
    def quiet(self) -> bool:
        """Whether no anomaly is open that results of probes may end."""
        return not any(detector.open for detector in self._of_probes)

    @property
    def next_decision_s(self) -> int:
        """Active second before which `observe_time` decides nothing, if nobody loses a probe."""
        return min((d.next_decision_s for d in self._of_probes), default=FOREVER_S)

    @property
    def lookback_ns(self) -> int:
        """How far back published windows matter to detectors without a background history."""
        return max(
            (d.history_ns for d in self._of_windows if not d.background_history),
            default=MAX_ROUND_SPAN_NS + REFRESH_STEP_NS,
        )

    @property
    def history_ns(self) -> int:
        """How far back published windows matter to any detector."""
        return max(self.lookback_ns, *(d.history_ns for d in self._of_windows), 0)

    def begin_round(self) -> None:
        """Forget which anomalies began in the round before."""
        self._onsets.clear()

    def observe_results(self, results: ResultBatch, *, decide: bool) -> list[Anomaly]:
        """Return what results decide (`ProbeDetector.observe_results`)."""
        if not len(results.rows):
            return []
        return [
            self._record(detector, decision)
            for detector in self._of_probes
            for decision in detector.observe_results(results, decide=decide)
        ]

    def observe_windows(self, index: int, windows: WindowBatch) -> list[Anomaly]:
        """Return what the closed windows of one index decide, in their order."""
        records = []
        for batch in closed_features(index, windows, self._flows, AT_ONCE):
            self._lookback.insert(batch)
            for detector in self._of_windows:
                observer = self._histories.get(detector) or detector
                records += [self._record(detector, d) for d in observer.observe_windows(batch)]
        return records

    def observe_closed(self, moved: Moved) -> list[Anomaly]:
        """Return what is decided as windows of some agents have closed."""
        if not moved:
            return []
        for detector, history in self._histories.items():
            block = detector.windows_per_decision
            if block and any(first // block < last // block for first, last in moved.values()):
                history.settle()
        for of_moments in self._of_moments:
            of_moments.observe_closed(moved)
        return [
            self._record(detector, decision)
            for detector in self._of_windows
            for decision in detector.observe_closed(moved)
        ]

    def forget_old(self) -> None:
        """Forget what detectors of windows need no more."""
        self._lookback.forget(self._first_open)
        for detector in self._of_windows:
            history = self._histories.get(detector)
            if history is None or history.settled:
                detector.forget_old(self._first_open)

    def observe_time(self, grid_ns: int) -> list[Anomaly]:
        """Return what is decided as arrival passes a point of the progress grid."""
        return [
            self._record(detector, decision)
            for detector in self._of_probes
            for decision in detector.observe_time(grid_ns)
        ]

    def refresh(self, grid_ns: int, active_ns: int, now_ns: Callable[[str], int]) -> list[Anomaly]:
        """Look at the last answers, repeat the open anomalies, end those that nobody probes.

        Anomalies that began in this round are not repeated.

        Parameters
        ----------
        grid_ns
            Time of the records.
        active_ns
            The partition's active time.
        now_ns
            Gives the present time by an agent's clock.
        """
        moment = Moment(grid_ns, active_ns, self._first_open, now_ns, self._flows)
        records = [
            self._record(detector, decision)
            for detector in self._of_moments
            for decision in detector.observe_moment(moment)
        ]
        due = sorted(
            (key[1:], key[0], detector.kind.value, number)
            for number, detector in enumerate(self.detectors)
            for key in detector.open
            if (key, detector.kind) not in self._onsets
        )
        for (src, dst, flow), agent, _, number in due:
            detector, key = self.detectors[number], (agent, src, dst, flow)
            if self._last_ns(key) < active_ns - self._config.idle_ns:
                decision = detector.end_by_silence(key, now_ns(agent))
            else:
                decision = detector.repeat(key, grid_ns)
            records.append(self._record(detector, decision))
        return records

    def forget_row(self, row: int) -> None:
        """Forget the probes of a 5-tuple that was not probed for long."""
        for of_probes in self._of_probes:
            of_probes.forget_row(row)
        for of_moments in self._of_moments:
            of_moments.forget_row(row)

    def restore(
        self,
        parts: Iterable[WindowColumns],
        published: Sequence[Anomaly],
        *,
        whole_history: bool,
    ) -> None:
        """After a restart, rebuild what undisturbed processing would hold now.

        Parameters
        ----------
        parts
            Published windows in the topic's order, all of one reader.
        published
            Published anomalies since the look-back's first window, in order.
        whole_history
            Whether the windows include those of background histories.
        """
        for detector in self.detectors:
            detector.restore(published, self._first_open)
        restored = [d for d in self._of_windows if whole_history or not d.background_history]
        flows: PublishedFlows | None = None
        newest: list[FeatureBatch] = []
        for part in parts:
            flows = flows or PublishedFlows(part.keys)
            for windows in published_features(part, flows, self._config.window_ns):
                ago = flows.first_open(windows.numbers, self._first_open) - windows.index
                # But for those that undisturbed work would hold no more.
                self._lookback.insert(windows.select(ago <= self._lookback.windows))
                for window_detector in restored:
                    window_detector.restore_windows(windows)
                if (latest := ago == 1).any():
                    newest.append(windows.select(latest))
        self._lookback.forget(self._first_open)
        for window_detector in restored:
            window_detector.end_restore(self._first_open, newest)

    def expect(self, earlier: Earlier, now_ns: Callable[[str], int]) -> None:
        """Let background histories wait for `add_earlier`, until a decision is due."""
        for detector, history in self._histories.items():
            block = detector.windows_per_decision
            if not block:
                continue
            history.expect(earlier)
            # Some time after a decision the repeated record of an open anomaly holds its evidence,
            # so the history is not needed to rebuild it.
            repeated_ns = max_open_ns(self._config) + MAX_ROUND_SPAN_NS + 2 * REFRESH_STEP_NS
            block_ns = block * self._config.window_ns
            for agent in {key[0] for key in detector.open}:
                decided_ns = self._first_open(agent) // block * block_ns
                if now_ns(agent) < decided_ns + repeated_ns:
                    history.settle()
                    detector.end_restore(self._first_open)
                    break

    def add_earlier(self, part: WindowColumns) -> None:
        """Add published windows to background histories; by one thread, while expected."""
        for history in self._histories.values():
            history.add_earlier(part)

    def _baseline_p50_ns(self, key: FlowKey) -> int | None:
        """Return the median of a 5-tuple's look-back windows, by the first detector that has it."""
        first_open = self._first_open(key[0])
        known = (detector.baseline_p50_ns(key, first_open) for detector in self._of_windows)
        return next((median_ns for median_ns in known if median_ns is not None), None)

    def _last_ns(self, key: FlowKey) -> int:
        row = self._recent.flows.find(key)
        return NEVER_NS if row is None else int(self._recent.flows["last_ns"][row])

    def _late_answers(self, key: FlowKey) -> dict[str, int]:
        """Return the fields of a record on answers that prober or responder held up."""
        found: dict[str, int] = {}
        row = self._recent.flows.find(key)
        if row is None:
            return found
        for side in Side:
            late, answers = self._recent.late_counts(row, side)
            if late:
                found[f"{side.value}_late"] = late
                found[f"{side.value}_answers"] = answers
        return found

    def _record(self, detector: Detector, decision: Decision) -> Anomaly:
        anomaly, state, event_at = decision.anomaly, decision.state, decision.event_ns // US_NS
        if state is AnomalyState.ONSET:
            self._onsets.add((anomaly.key, detector.kind))
        agent, src, dst, flow = anomaly.key
        evidence = anomaly.evidence
        held_up = {}
        if isinstance(detector, ProbeDetector) and state is not AnomalyState.CLEARED:
            held_up = self._late_answers(anomaly.key)
        return Anomaly(
            cluster=self._cluster,
            anomaly_id=anomaly_identity(
                anomaly.key, detector.kind, state, anomaly.onset_at, event_at
            ),
            kind=detector.kind,
            state=state,
            path_id=path_id(src, dst),
            src=src,
            dst=dst,
            flow=flow,
            agent_id=agent,
            event_at=event_at,
            onset_at=anomaly.onset_at,
            detector=detector.name,
            value=evidence.value,
            reference=evidence.reference,
            threshold=evidence.threshold,
            unit=None if evidence.value is None else detector.unit,
            sent=evidence.sent,
            lost=evidence.lost,
            rtt_p50_ns=evidence.rtt_p50_ns,
            baseline_p50_ns=evidence.baseline_p50_ns,
            host_delay_ns=evidence.host_delay_ns,
            host_delay_baseline_ns=evidence.host_delay_baseline_ns,
            producer_version=VERSION,
            **held_up,
        )
