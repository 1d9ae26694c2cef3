"""Loss above the base rate: an exact binomial tail, sliding over recent probes.

Only the first probe of a 5-tuple in a round is a sample: re-probes are sent
because it was lost, so their number depends on the outcome. A first probe whose
re-probes were all lost as well is evidence of an outage, which is the fast
path's matter, and is left out here (at 10 % loss that is 1 % of the losses), and
so is the first probe after an outage.

False alarms. An onset needs a lost probe with at least k-1 further losses among
the n-1 probes before it in the window. With independent losses at the base rate
p the expected number of such probes per hour is

    (probes per hour) * p * P(Binomial(n-1, p) >= k-1)

which bounds the rate of false onsets from above. k is the least count that
keeps it under the budget; exact, no normal approximation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from schemas.enums import AnomalyKind
from streams.columns.rounds import FlowKey
from streams.config import DetectionConfig
from streams.detectors.base import (
    Decision,
    Evidence,
    FalseAlarmRate,
    OpenAnomaly,
    ProbeDetector,
    ResultBatch,
)
from streams.detectors.recent import RING_S

HOUR_S: Final = 3600
# Window lengths in seconds and their share of the false-alarm budget: the short
# one finds 10 % within some 15 s, the long one finds a few per cent.
SPANS: Final[tuple[tuple[int, float], ...]] = ((20, 0.8), (60, 0.2))
SHORT_SPAN_S: Final = SPANS[0][0]
# Beyond this many probes in a window the threshold is computed for the next power
# of two, so that the cache stays small: still a bound, since k grows with n.
EXACT_PROBES: Final = 4096

# (sent, lost) of a row's own probes or its path's, over a span in seconds.
Counts = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LossFinding:
    """A test that fired."""

    lost: int
    sent: int
    threshold: int
    span_s: int


def false_onsets_per_hour(probes: int, span_s: int, base_rate: float, losses: int) -> float:
    """Return the bound on false onsets per hour.

    Parameters
    ----------
    probes
        Probes in the window.
    span_s
        Length of the window, seconds.
    base_rate
        Loss probability of a healthy network.
    losses
        Losses that make an onset.
    """
    return float(_onsets(probes, span_s, base_rate, np.array([losses]))[0])


@lru_cache(maxsize=65_536)
def least_losses(probes: int, span_s: int, base_rate: float, budget_per_hour: float) -> int:
    """Return the least count of losses that keeps false onsets within the budget.

    Never below 2: one lost probe is no rate.

    Parameters
    ----------
    probes, span_s, base_rate
        As for `false_onsets_per_hour`.
    budget_per_hour
        False onsets accepted per hour.

    Examples
    --------
    >>> least_losses(20, 20, base_rate=1e-4, budget_per_hour=0.8e-3)
    2
    """
    if probes > EXACT_PROBES:
        probes = 1 << (probes - 1).bit_length()
    losses = np.arange(2, max(probes, 2) + 2)
    onsets = _onsets(probes, span_s, base_rate, losses)
    return int(losses[np.argmax(onsets <= budget_per_hour)])


def _onsets(
    probes: int, span_s: int, base_rate: float, losses: NDArray[np.int64]
) -> NDArray[np.float64]:
    others = max(probes - 1, 1)
    # bdtrc(k, n, p) is the tail P(X > k); none of n trials is more than n.
    tail = np.where(
        losses - 2 < others, bdtrc(np.minimum(losses - 2, others), others, base_rate), 0.0
    )
    return HOUR_S / span_s * probes * base_rate * tail


def loss_finding(
    counts: dict[int, tuple[int, int]], base_rate: float, budget_per_hour: float
) -> LossFinding | None:
    """Return the first span whose count of losses passes, None if none does.

    Parameters
    ----------
    counts
        (sent, lost) of counted first probes by span in seconds.
    base_rate, budget_per_hour
        Null hypothesis, and false onsets accepted per hour over all spans.

    Examples
    --------
    >>> loss_finding({20: (20, 1), 60: (60, 3)}, base_rate=1e-4, budget_per_hour=1e-3)
    LossFinding(lost=3, sent=60, threshold=3, span_s=60)
    """
    for span_s, share in SPANS:
        sent, lost = counts[span_s]
        if lost < 2:
            continue
        bound = least_losses(sent, span_s, base_rate, budget_per_hour * share)
        if lost >= bound:
            return LossFinding(lost, sent, bound, span_s)
    return None


class LossDetector(ProbeDetector):
    """Tests 5-tuples that lose a probe, and their paths; all state is in `recent`."""

    kind: ClassVar = AnomalyKind.LOSS
    name: ClassVar = "loss_test"
    unit: ClassVar = "ratio"
    reference: ClassVar = "Exact tail of the binomial distribution"

    def __len__(self) -> int:
        return 0

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the budget of the settings; the own test and the path's have one each."""
        return FalseAlarmRate(config.loss_false_alarms_per_hour, "hour of a 5-tuple and of a path")

    def observe_results(self, results: ResultBatch, *, decide: bool) -> list[Decision]:
        """Test the 5-tuples that just lost a probe, and their paths."""
        decisions: list[Decision] = []
        lost = ~results.ok
        if not decide or not lost.any():
            return decisions
        for row, sent_ns in zip(
            results.rows[lost].tolist(), results.sent_ns[lost].tolist(), strict=True
        ):
            if not self.recent.is_counted_loss(row, sent_ns):
                continue
            finding = self._test(self.recent.sampled, row)
            if finding is not None:
                decisions += self._begin_all([row], finding, sent_ns)
            # On a path with a loss beyond chance every 5-tuple that lost is suspect.
            finding = self._test(self.recent.path_sampled, row)
            if finding is not None:
                decisions += self._begin_all(self.recent.path_rows(row), finding, sent_ns)
        return decisions

    def observe_time(self, grid_ns: int) -> list[Decision]:
        """End anomalies where enough probes in a row came back."""
        decisions = []
        for anomaly in self.open_in_order():
            row = self.recent.flows.find(anomaly.key)
            if (
                row is None
                or self.recent.clean_probes(row) >= self.config.loss_clear_probes
                or not self.recent.loss_times(row, RING_S)
            ):
                decisions.append(self._end(anomaly, grid_ns, self.current_evidence(anomaly)))
        return decisions

    def current_evidence(self, anomaly: OpenAnomaly) -> Evidence:
        """Return the counts of the short span beside the threshold of the onset."""
        row = self.recent.flows.find(anomaly.key)
        if row is None:
            return anomaly.evidence
        return self._evidence(anomaly.key, row, SHORT_SPAN_S, anomaly.evidence.threshold)

    def _test(self, counts: Counts, row: int) -> LossFinding | None:
        return loss_finding(
            {span_s: counts(row, span_s) for span_s, _ in SPANS},
            self.config.loss_base_rate,
            self.config.loss_false_alarms_per_hour,
        )

    def _begin_all(self, rows: list[int], finding: LossFinding, event_ns: int) -> list[Decision]:
        """Open those of the rows that lost a probe and are not open."""
        decisions = []
        for row in rows:
            key = self.recent.flows.key(row)
            times_ns = self.recent.loss_times(row, finding.span_s)
            if times_ns and key not in self.open:
                threshold = finding.threshold / finding.sent
                evidence = self._evidence(key, row, finding.span_s, threshold)
                decisions.append(self._begin(key, times_ns[0], event_ns, evidence))
        return decisions

    def _evidence(self, key: FlowKey, row: int, span_s: int, threshold: float | None) -> Evidence:
        """Return the 5-tuple's own counts beside the threshold of the test that fired."""
        sent, lost = self.recent.sampled(row, span_s)
        return Evidence(
            value=lost / sent if sent else 0.0,
            reference=self.config.loss_base_rate,
            threshold=threshold,
            sent=sent,
            lost=lost,
            baseline_p50_ns=self.baseline_p50_ns(key),
        )
