"""Raised latency of a window: LOF over the look-back, and an effect worth an alarm.

A window is suspicious when its LOF passes the threshold of the stated
false-alarm rate *and* its upper quartile has risen by the least effect. LOF sees a
change of any of the seven features, also of the greatest round trip, which on a
busy machine is wild without any fault; the upper quartile moves only when a quarter
of the probes slow down. Only slower is an anomaly; faster is not. A window is
only weakly suspicious if it has few answers, or if its median has not risen as well:
half a window may be a burst of the job; a delay that comes and goes is there in the next one too.
"""

from typing import ClassVar, Final

import numpy as np

from schemas.columns.arrays import Floats
from schemas.enums import AnomalyKind
from streams.config import DetectionConfig
from streams.detectors.base import P50, P75, FalseAlarmRate, FeatureBatch
from streams.detectors.levels import levels
from streams.detectors.lof import (
    STRONG,
    STRONG_RATE,
    WEAK,
    lof_scores,
    log_features,
    thresholds,
)
from streams.detectors.rises import NOTHING_SUSPICIOUS, RiseDetector, Suspicion

# Least answers for one window to decide alone: the median of five is too restless.
MIN_STRONG_ANSWERS: Final = 8
# The rise must be this many standard deviations of the look-back's upper quartiles. With
# five answers a window the quartile itself jumps about; with thirty it hardly does.
EFFECT_DEVIATIONS: Final = 3.0


class LatencyDetector(RiseDetector):
    """Suspects windows by LOF and effect."""

    column: ClassVar = P75
    kind: ClassVar = AnomalyKind.LATENCY
    name: ClassVar = "lof"
    reference: ClassVar = "Breunig et al., LOF, SIGMOD 2000"

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the rate of LOF alone; the effect that is needed as well makes it far lower."""
        del config
        return FalseAlarmRate(STRONG_RATE, "window of a 5-tuple")

    def judge(self, windows: FeatureBatch) -> Suspicion:
        """Compare upper quartiles, and the windows whose one has risen by LOF."""
        least_ns, ratio = self.least_ns[windows.transports], self.config.effect_ratio
        places = self.lookback.may_have_risen(windows, P75, least_ns, ratio, self.mark)
        if not len(places):
            return NOTHING_SUSPICIOUS
        windows, least_ns = windows.select(places), least_ns[places]
        rows = windows.rows(self.lookback.table)
        compared = self.lookback.compared(windows, self.mark)
        features = self.lookback.table["features"]
        baseline, spread = levels(features, rows, compared, P75)
        medians, scatter = levels(features, rows, compared, P50)
        effect = self._effects(least_ns, baseline, spread)
        # LOF costs the most by far, and decides nothing where nothing has risen.
        raised = np.flatnonzero(windows.features_ns[:, P75] - baseline >= effect)
        score = lof_scores(
            log_features(features[rows[raised]]),
            compared[raised],
            log_features(windows.features_ns[raised]),
        )
        count = compared[raised].sum(axis=1)
        with np.errstate(invalid="ignore"):
            weak = score > thresholds(WEAK, count)
            strong = score > thresholds(STRONG, count)
        median_effect = self._effects(least_ns, medians, scatter)
        strong &= (windows.features_ns[:, P50] - medians >= median_effect)[raised]
        strong &= windows.answers[raised] >= MIN_STRONG_ANSWERS
        chosen = raised[weak]
        return Suspicion(
            places[chosen], strong[weak], baseline[chosen], effect[chosen], medians[chosen]
        )

    def _effects(self, least_ns: Floats, baseline_ns: Floats, deviation_ns: Floats) -> Floats:
        """Return the rise that counts: absolute by transport, relative, beyond the scatter."""
        relative = self.config.effect_ratio * baseline_ns
        return np.maximum(np.maximum(least_ns, relative), EFFECT_DEVIATIONS * deviation_ns)
