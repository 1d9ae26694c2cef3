"""Decisions from single probes: lost connectivity and loss, in the round that shows them."""

from collections.abc import Callable
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Int64s
from schemas.enums import AnomalyKind
from schemas.records import Anomaly
from streams.columns.rounds import NEVER_NS, FlowKey
from streams.config import DetectionConfig
from streams.core.board import Alarm, Board, Evidence
from streams.core.recent import RecentProbes
from streams.detectors.connectivity import HEALTHY, Run, Runs
from streams.detectors.loss import RING_S, SPANS, LossFinding, loss_finding

# A CONNECTIVITY record says how many probes of these last seconds were lost.
COUNT_SPAN_S: Final = 10
SHORT_SPAN_S: Final = SPANS[0][0]

Baseline = Callable[[FlowKey], int | None]
# (sent, lost) of a row's own probes or its path's, over a span in seconds.
Counts = Callable[[int, int], tuple[int, int]]


class ProbeAlarms:
    """The fast path and the loss test of one partition.

    The state of `recent` and `runs` advances whether or not `live` is set;
    decisions are made only when it is.
    """

    def __init__(
        self, config: DetectionConfig, recent: RecentProbes, board: Board, baseline: Baseline
    ) -> None:
        self._config = config
        self._recent = recent
        self._board = board
        self._baseline = baseline
        self._runs = Runs(config.connectivity_losses)

    def on_results(
        self, rows: Int64s, sent_ns: Int64s, ok: Bools, before_ns: Int64s, *, live: bool
    ) -> list[Anomaly]:
        """Take results in the order of the round; return what they decide.

        Parameters
        ----------
        before_ns
            Sending time of the latest result of each row before this round.
        """
        anomalies: list[Anomaly] = []
        for index in self._suspicious(rows, ok):
            row = int(rows[index])
            known = int(before_ns[index])
            run = self._runs.add(
                row, int(sent_ns[index]), not ok[index], None if known == NEVER_NS else known
            )
            self._recent.flows["watched"][row] = self._runs.standing(row)
            if live:
                anomalies += self._connectivity(self._recent.flows.key(row), row, run)
        if live and not ok.all():
            anomalies += self._losses(
                list(zip(rows[~ok].tolist(), sent_ns[~ok].tolist(), strict=True))
            )
        return anomalies

    def on_grid(self, grid_ns: int) -> list[Anomaly]:
        """Clear LOSS where enough probes in a row came back."""
        cleared = []
        for alarm in self._board.alarms(AnomalyKind.LOSS):
            row = self._recent.flows.find(alarm.key)
            if (
                row is None
                or self._recent.clean_probes(row) >= self._config.loss_clear_probes
                or not self._recent.loss_times(row, RING_S)
            ):
                cleared.append(self._board.clear(alarm, grid_ns, self._evidence(alarm)))
        return cleared

    def refreshed(self, alarm: Alarm) -> Alarm:
        """Return the alarm with what the last seconds say."""
        return self._board.update(alarm, self._evidence(alarm))

    def drop(self, row: int) -> None:
        """Forget a retired 5-tuple."""
        self._runs.drop(row)

    def _suspicious(self, rows: Int64s, ok: Bools) -> list[int]:
        """Return the indices of results of 5-tuples that lose or lost a probe.

        One that is cut off is among them: `Runs` keeps it until it answers.
        """
        looked_at = self._recent.flows["watched"][rows] != HEALTHY
        if not ok.all():
            looked_at |= np.isin(rows, rows[~ok])
        places: list[int] = np.flatnonzero(looked_at).tolist()
        return places

    def _connectivity(self, key: FlowKey, row: int, run: Run) -> list[Anomaly]:
        alarm = self._board.find(key, AnomalyKind.CONNECTIVITY)
        enough = run.count >= self._config.connectivity_losses
        if alarm is None and run.lost and enough:
            evidence = self._cut_evidence(key, row, run.count)
            return [
                self._board.open(key, AnomalyKind.CONNECTIVITY, run.first_ns, run.last_ns, evidence)
            ]
        if alarm is not None and not run.lost and (enough or run.alone):
            return [self._board.clear(alarm, run.last_ns, self._cut_evidence(key, row, 0))]
        return []

    def _losses(self, lost: list[tuple[int, int]]) -> list[Anomaly]:
        """Test the 5-tuples that just lost a probe, and their paths.

        Parameters
        ----------
        lost
            Row and sending time of each lost probe of the round.
        """
        anomalies: list[Anomaly] = []
        for row, sent_ns in lost:
            if not self._recent.is_counted_loss(row, sent_ns):
                continue
            found = self._test(self._recent.sampled, row)
            if found is not None:
                anomalies += self._open_loss([row], found, sent_ns)
            # On a path with a loss beyond chance every 5-tuple that lost is suspect.
            found = self._test(self._recent.path_sampled, row)
            if found is not None:
                anomalies += self._open_loss(self._recent.path_rows(row), found, sent_ns)
        return anomalies

    def _test(self, counts: Counts, row: int) -> LossFinding | None:
        return loss_finding(
            {span_s: counts(row, span_s) for span_s, _ in SPANS},
            self._config.loss_base_rate,
            self._config.loss_false_alarms_per_hour,
        )

    def _open_loss(self, rows: list[int], found: LossFinding, event_ns: int) -> list[Anomaly]:
        """Open those of the rows that lost a probe and are not open."""
        anomalies = []
        for row in rows:
            key = self._recent.flows.key(row)
            times = self._recent.loss_times(row, found.span_s)
            if times and self._board.find(key, AnomalyKind.LOSS) is None:
                evidence = self._loss_evidence(key, row, found.span_s, found.threshold / found.sent)
                anomalies.append(
                    self._board.open(key, AnomalyKind.LOSS, times[0], event_ns, evidence)
                )
        return anomalies

    def _evidence(self, alarm: Alarm) -> Evidence:
        row = self._recent.flows.find(alarm.key)
        if row is None:
            return alarm.evidence
        if alarm.kind is AnomalyKind.CONNECTIVITY:
            run = self._runs.latest(row)
            return self._cut_evidence(
                alarm.key, row, run.count if run is not None and run.lost else 0
            )
        return self._loss_evidence(alarm.key, row, SHORT_SPAN_S, alarm.evidence.threshold)

    def _cut_evidence(self, key: FlowKey, row: int, run: int) -> Evidence:
        sent, lost = self._recent.totals(row, COUNT_SPAN_S)
        return Evidence(
            value=float(run),
            threshold=float(self._config.connectivity_losses),
            sent=sent,
            lost=lost,
            baseline_p50_ns=self._baseline(key),
        )

    def _loss_evidence(
        self, key: FlowKey, row: int, span_s: int, threshold: float | None
    ) -> Evidence:
        """Return the 5-tuple's own counts beside the threshold of the test that fired."""
        sent, lost = self._recent.sampled(row, span_s)
        return Evidence(
            value=lost / sent if sent else 0.0,
            reference=self._config.loss_base_rate,
            threshold=threshold,
            sent=sent,
            lost=lost,
            baseline_p50_ns=self._baseline(key),
        )
