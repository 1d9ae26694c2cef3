"""Small rises of the round trip: too little for an alarm of a 5-tuple, for whoever can pool them.

A cable that became 3 µs slower slows each 5-tuple that crosses it, by less than the effect that
alarms on one (`streams.detectors.latency`). The localizer knows which of them cross the same
component, and tests them together (`localizer.inference.pooled_latency`). To be worth that, a
report need only be rare by chance.

A window is reported when its lower quartile *and* its median have risen, and the upper quartile by
about the same. What delays every packet moves all equally. A queue does not: waits are
exponentially distributed and some probes find it empty, so that the lower quartile moves by 0.21 of
the upper one (ln(4/3) / ln 4) at most; by 0.36, 0.50 and 0.57 where a probe waits in two, four and
six queues that are never empty (quartiles of Erlang's distribution). So the burst of a job is not
reported. The rise is measured by the look-back of the 5-tuple: its median, and the scatter of its
windows.

Rises that are large enough for an alarm of the 5-tuple are reported as well, as soon as that alarm
is possible: the report then says that it is no queue that made the alarm.

Look-back, end of an anomaly and restart are as in `streams.detectors.rises`.
"""

from typing import ClassVar, Final

import numpy as np

from schemas.enums import AnomalyKind
from streams.config import DetectionConfig
from streams.detectors.base import P25, P50, P75, FalseAlarmRate, FeatureBatch
from streams.detectors.levels import levels
from streams.detectors.rises import NOTHING_SUSPICIOUS, RiseDetector, Suspicion

# Rise in robust standard deviations of the look-back's windows, and the least number of these. Of
# windows with normally distributed medians, 1 % rise so far above seven others, 0.2 % above ten.
RISE_DEVIATIONS: Final = 6.0
MIN_COMPARED: Final = 7
STATED_RATE: Final = 0.01
# Least rise of the lower quartile as a share of the upper one's: between that of queues and 1.
LEVEL_SHARE: Final = 0.6
# The rise is at least this share of the effect that alarms on one 5-tuple: the mean over 25 of
# them is as sure as one at a fifth of the rise.
EFFECT_SHARE: Final = 0.2


class WeakLatencyDetector(RiseDetector):
    """Suspects windows whose lower half has risen by more than chance."""

    column: ClassVar = P50
    kind: ClassVar = AnomalyKind.WEAK_LATENCY
    name: ClassVar = "weak_latency"
    reference: ClassVar = "Rousseeuw and Croux, Alternatives to the median absolute deviation, 1993"

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the rate of the median alone, of the shortest look-back."""
        del config
        return FalseAlarmRate(STATED_RATE, "window of a 5-tuple")

    def judge(self, windows: FeatureBatch) -> Suspicion:
        """Compare all three quartiles."""
        least_ns = self.least_ns[windows.transports]
        places = self.lookback.may_have_risen(
            windows, P25, EFFECT_SHARE * least_ns, EFFECT_SHARE * self.config.effect_ratio,
            self.mark,
        )  # fmt: skip
        if not len(places):
            return NOTHING_SUSPICIOUS
        windows, least_ns = windows.select(places), least_ns[places]
        rows = windows.rows(self.lookback.table)
        compared = self.lookback.compared(windows, self.mark)
        features = self.lookback.table["features"]
        usual, rise, effect = {}, {}, {}
        # Few windows say little about scatter: beside them only a rise counts that is large.
        many = compared.sum(axis=1) >= MIN_COMPARED
        share = np.where(many, EFFECT_SHARE, 1.0)
        for column in (P25, P50, P75):
            usual[column], scatter = levels(features, rows, compared, column)
            rise[column] = windows.features_ns[:, column] - usual[column]
            relative = self.config.effect_ratio * usual[column]
            least = share * np.maximum(least_ns, relative)
            effect[column] = np.maximum(least, RISE_DEVIATIONS * scatter)
        raised = (rise[P25] >= effect[P25]) & (rise[P50] >= effect[P50])
        raised &= rise[P25] >= LEVEL_SHARE * rise[P75]
        return Suspicion(
            places[raised], raised[raised], usual[P50][raised], effect[P50][raised],
            usual[P50][raised],
        )  # fmt: skip
