"""The detectors of every partition, in the order in which they decide on a batch."""

from typing import Final

from streams.detectors.base import Detector
from streams.detectors.connectivity import ConnectivityDetector
from streams.detectors.latency import LatencyDetector
from streams.detectors.lognormal import TrendDetector
from streams.detectors.loss import LossDetector

DETECTORS: Final[tuple[type[Detector], ...]] = (
    ConnectivityDetector,
    LossDetector,
    LatencyDetector,
    TrendDetector,
)
