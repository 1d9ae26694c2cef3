"""Single lost probes: too few for a test of their 5-tuple, for whoever can pool them.

A cable that loses one packet in two hundred is crossed by dozens of 5-tuples, each of which loses
a probe every few minutes. No test of one 5-tuple tells that from chance. The localizer knows which
of them cross the same component, and tests them together (`localizer.inference.pooled_loss`).
"""

from typing import ClassVar, Final

from schemas.enums import AnomalyKind
from streams.columns.rounds import FlowKey
from streams.config import DetectionConfig
from streams.detectors.base import (
    FOREVER_S,
    Decision,
    Evidence,
    FalseAlarmRate,
    OpenAnomaly,
    ProbeDetector,
    ResultBatch,
)
from streams.detectors.recent import RING_S

# Losses of a 5-tuple that follow each other within this time are one anomaly: losses are pooled by
# when they happened, and more of them within seconds say nothing new.
HOLD_S: Final = 10
# Of more open anomalies it is not worth to look for the one that ends first.
FEW_OPEN: Final = 32


class StrayLossDetector(ProbeDetector):
    """Reports each counted loss; all state but the open anomalies is in `recent`."""

    kind: ClassVar = AnomalyKind.STRAY_LOSS
    name: ClassVar = "stray_loss"
    unit: ClassVar = "ratio"
    reference: ClassVar = "No test: a lost first probe of a 5-tuple"

    def __len__(self) -> int:
        """Nothing is kept beside what is open."""
        return 0

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the base rate of losses: each is reported."""
        return FalseAlarmRate(min(config.loss_base_rate, 1e-2), "probe")

    def observe_results(self, results: ResultBatch, *, decide: bool) -> list[Decision]:
        """Begin an anomaly of each 5-tuple that just lost a probe and has none open."""
        decisions: list[Decision] = []
        lost = ~results.ok
        if not decide or not lost.any():
            return decisions
        for row, sent_ns in zip(
            results.rows[lost].tolist(), results.sent_ns[lost].tolist(), strict=True
        ):
            key = self.recent.flows.key(row)
            if key not in self.open and self.recent.is_counted_loss(row, sent_ns):
                decisions.append(self._begin(key, sent_ns, sent_ns, self._evidence(row)))
        return decisions

    def observe_time(self, grid_ns: int) -> list[Decision]:
        """End anomalies of 5-tuples that lost nothing for a while."""
        decisions = []
        for anomaly in self.open_in_order():
            row = self.recent.flows.find(anomaly.key)
            if row is None or not self.recent.loss_times(row, HOLD_S):
                decisions.append(self._end(anomaly, grid_ns, self.current_evidence(anomaly)))
        return decisions

    @property
    def next_decision_s(self) -> int:
        """Second in which the first of the open anomalies may end, of few."""
        if len(self.open) > FEW_OPEN:
            return 0
        return min(map(self._ends_s, self.open), default=FOREVER_S)

    def _ends_s(self, key: FlowKey) -> int:
        row = self.recent.flows.find(key)
        last_s = None if row is None else self.recent.last_loss_s(row)
        return 0 if last_s is None else last_s + HOLD_S

    def current_evidence(self, anomaly: OpenAnomaly) -> Evidence:
        """Return the counts of the last minute."""
        row = self.recent.flows.find(anomaly.key)
        return anomaly.evidence if row is None else self._evidence(row)

    def _evidence(self, row: int) -> Evidence:
        sent, lost = self.recent.sampled(row, RING_S)
        return Evidence(
            value=lost / sent if sent else 0.0,
            reference=self.config.loss_base_rate,
            sent=sent,
            lost=lost,
        )
