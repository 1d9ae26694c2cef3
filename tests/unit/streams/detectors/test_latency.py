"""Raised latency: LOF and an effect, over many 5-tuples."""

from dataclasses import dataclass

import numpy as np
import pytest

from schemas.columns.arrays import Bools
from schemas.enums import Transport
from streams.config import DetectionConfig
from streams.detectors.base import FeatureBatch
from streams.detectors.latency import LatencyDetector
from streams.detectors.lookback import LookBack
from tests.unit.streams.detectors.batches import Features, batch

FLOWS = 100
CONFIG = DetectionConfig()


@dataclass(frozen=True)
class Health:
    """How the round trips of the paths are distributed."""

    median_ns: float = 1.5e6
    sigma: float = 0.3
    tail: float = 0.0
    probes: int = 30


HEALTHY = Health()
BUSY = Health(tail=0.1)


def windows(rng: np.random.Generator, health: Health = HEALTHY, shift_ns: float = 0.0) -> Features:
    """Return features of a window of each of 100 paths, `shift_ns` slower."""
    n = health.probes
    rtt = health.median_ns * np.exp(health.sigma * rng.standard_normal((FLOWS, n)))
    rtt += (rng.random(rtt.shape) < health.tail) * rng.pareto(1.5, rtt.shape) * 5e5
    rtt = np.sort(np.minimum(rtt, 5e8) + shift_ns, axis=1)
    q = [rtt[:, (p * n + 99) // 100 - 1] for p in (25, 50, 75)]
    made = [*q, rtt[:, 0], rtt.mean(axis=1), rtt.std(axis=1), rtt[:, -1]]
    return np.asarray(np.rint(np.stack(made, axis=-1)), np.int64)


def detector_of(config: DetectionConfig = CONFIG) -> LatencyDetector:
    """Return a detector with a look-back of its own."""
    return LatencyDetector(config, LookBack(config))


def judge(detector: LatencyDetector, windows: FeatureBatch) -> tuple[Bools, Bools]:
    """Return which windows are strongly suspicious, and which are at all."""
    detector.lookback.insert(windows)
    strong, suspicious = np.zeros((2, len(windows)), np.bool_)
    suspicion = detector.judge(windows)
    suspicious[suspicion.places] = True
    strong[suspicion.places] = suspicion.strong
    return strong, suspicious


def fill(
    detector: LatencyDetector, count: int, rng: np.random.Generator, health: Health = HEALTHY
) -> None:
    """Insert healthy windows 0..count-1 of all 5-tuples."""
    for index in range(count):
        detector.lookback.insert(batch(index, windows(rng, health)))


def test_shift_is_found_and_health_is_not() -> None:
    """5 ms on 1.5 ms is anomalous for all 100 paths, a healthy window for none."""
    rng = np.random.default_rng(1)
    detector = detector_of()
    fill(detector, 10, rng, BUSY)
    assert judge(detector, batch(11, windows(rng, BUSY, 5e6)))[0].sum() >= 99
    assert not judge(detector, batch(11, windows(rng, BUSY)))[0].any()


def test_microseconds_on_a_calm_path_are_no_anomaly() -> None:
    """30 us more on 1.5 ms with next to no noise: LOF is large, the effect is not."""
    rng = np.random.default_rng(2)
    detector, eager = detector_of(), detector_of(DetectionConfig(effect_ns=0, effect_ratio=0.0))
    for each in (detector, eager):
        fill(each, 10, np.random.default_rng(3), Health(sigma=0.001))
    raised = batch(11, windows(rng, Health(sigma=0.001), 3e4))
    assert not judge(detector, raised)[1].any()
    assert judge(eager, raised)[1].sum() > FLOWS / 2


def test_effect_depends_on_the_transport() -> None:
    """100 us on 16 us is an anomaly for RDMA, and nothing for UDP through a kernel."""
    rng = np.random.default_rng(3)
    detector = detector_of()
    calm = Health(16_000, 0.02)
    fill(detector, 10, rng, calm)
    raised = windows(rng, calm, 1e5)
    assert judge(detector, batch(11, raised, transport=Transport.RDMA_UD))[0].all()
    assert not judge(detector, batch(11, raised))[1].any()


def test_faster_is_no_anomaly() -> None:
    """A path that got faster raises nothing."""
    rng = np.random.default_rng(4)
    detector = detector_of()
    fill(detector, 10, rng, Health(9e6, 0.05))
    assert not judge(detector, batch(11, windows(rng, Health(2e6, 0.05))))[1].any()


def test_few_answers_are_only_weakly_suspicious() -> None:
    """The median of five probes is too restless for one window to decide alone."""
    rng = np.random.default_rng(5)
    detector = detector_of()
    fill(detector, 10, rng)
    strong, suspicious = judge(detector, batch(11, windows(rng, shift_ns=5e7), answers=5))
    assert not strong.any()
    assert suspicious.all()


@pytest.mark.parametrize(("gap", "judged"), [(0, True), (5, True), (6, False), (10, False)])
def test_old_windows_do_not_count(gap: int, judged: bool) -> None:
    """The look-back is ten windows of event time; after a pause what is left decides."""
    rng = np.random.default_rng(6)
    detector = detector_of()
    fill(detector, 10, rng)
    strong, suspicious = judge(detector, batch(11 + gap, windows(rng, shift_ns=5e7)))
    assert bool(strong.all()) == judged
    assert bool(suspicious.any()) == judged


def test_window_just_before_is_no_reference() -> None:
    """A fault that began in the last window does not hide itself in the next."""
    rng = np.random.default_rng(7)
    first, second = detector_of(), detector_of()
    fill(first, 10, rng, BUSY)
    fill(second, 10, np.random.default_rng(7), BUSY)
    second.lookback.insert(batch(10, np.full((FLOWS, 7), 6_500_000)))
    new = batch(11, windows(rng, BUSY, 5e6))
    for each in (first, second):
        each.lookback.insert(new)
    one, other = first.judge(new), second.judge(new)
    assert (one.places == other.places).all()
    assert (one.baseline_ns == other.baseline_ns).all()
    assert len(one.places) >= 99


def test_two_weakly_suspicious_windows_in_a_row_are_an_anomaly() -> None:
    """It began with the first of them; neither is look-back."""
    rng = np.random.default_rng(9)
    detector = detector_of()
    fill(detector, 11, rng)
    for index, decided in ((11, 0), (12, FLOWS)):
        slower = batch(index, windows(rng, shift_ns=5e7), answers=5)
        detector.lookback.insert(slower)
        decisions = detector.observe_windows(slower)
        assert len(decisions) == decided
    assert {d.anomaly.onset_at for d in decisions} == {11 * CONFIG.window_ns // 1_000}
    after = batch(14, windows(rng))
    assert detector.lookback.compared(after, detector.mark).sum(axis=1).tolist() == [8] * FLOWS
    fresh = detector.lookback.new_mark()
    assert detector.lookback.compared(after, fresh).sum(axis=1).tolist() == [10] * FLOWS


@pytest.mark.parametrize("health", [Health(sigma=0.4, tail=0.1, probes=5), BUSY])
def test_long_health_on_a_busy_machine_raises_no_alarm(health: Health) -> None:
    """100 paths, 48,000 windows, heavy tails: next to no alarm, five probes a window or thirty."""
    rng = np.random.default_rng(8)
    detector = detector_of()
    fill(detector, 12, rng, health)
    alarms = 0
    weak_before = np.zeros(FLOWS, np.bool_)
    for index in range(12, 492):
        strong, weak = judge(detector, batch(index, windows(rng, health), answers=health.probes))
        alarms += int((strong | (weak & weak_before)).sum())
        weak_before = weak
    # One in 50,000 windows, where LOF alone would allow five.
    assert alarms <= 1
