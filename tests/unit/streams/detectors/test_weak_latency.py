"""Small rises: rare by chance, sure once a 5-tuple is slower than its own scatter."""

import numpy as np
import pytest

from schemas.enums import AnomalyKind, AnomalyState, Transport
from streams.columns.quantities import NONE
from streams.config import DetectionConfig
from streams.detectors.base import Decision, FeatureBatch
from streams.detectors.lof import MIN_HISTORY
from streams.detectors.lookback import LookBack
from streams.detectors.weak_latency import STATED_RATE, WeakLatencyDetector
from tests.unit.streams.detectors.batches import batch

FLOWS = 400
CONFIG = DetectionConfig()
PROBES = 30
USUAL_NS, SCATTER_NS = 8_000.0, 400.0


def of(
    index: int, rtt_ns: np.ndarray[tuple[int, int], np.dtype[np.float64]], delay_ns: int = NONE
) -> FeatureBatch:
    """Return one window of each 5-tuple, from round trips of shape (5-tuples, probes)."""
    rtt = np.sort(rtt_ns, axis=1)
    quartiles = [rtt[:, p * PROBES // 100] for p in (25, 50, 75)]
    rest = [rtt[:, 0], rtt.mean(axis=1), rtt.std(axis=1), rtt[:, -1]]
    features_ns = np.rint(np.stack([*quartiles, *rest], axis=1)).astype(np.int64)
    return batch(index, features_ns, delay_ns=delay_ns, answers=PROBES, transport=Transport.RDMA_UD)


def observe(detector: WeakLatencyDetector, windows: FeatureBatch) -> list[Decision]:
    """Let it observe windows as the worker does."""
    detector.lookback.insert(windows)
    return detector.observe_windows(windows)


def usual(rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return round trips of a healthy network."""
    return USUAL_NS + SCATTER_NS * rng.standard_exponential((FLOWS, PROBES))


def onsets(decisions: list[Decision]) -> int:
    """Return how many anomalies began."""
    return sum(decision.state is AnomalyState.ONSET for decision in decisions)


def learned(rng: np.random.Generator, windows: int = 12) -> WeakLatencyDetector:
    """Return a detector that knows what is usual."""
    detector = WeakLatencyDetector(CONFIG, LookBack(CONFIG))
    for index in range(windows):
        observe(detector, of(index, usual(rng), 50_000))
    return detector


def test_chance_is_rarely_reported() -> None:
    """Not more often than stated."""
    rng = np.random.default_rng(1)
    detector = learned(rng)
    found = sum(onsets(observe(detector, of(n, usual(rng)))) for n in range(12, 40))
    assert found <= STATED_RATE * FLOWS * 28


def test_a_small_rise_is_reported_at_once_and_ends() -> None:
    """2 µs are less than the effect that alarms on one 5-tuple."""
    rng = np.random.default_rng(2)
    detector = learned(rng)
    assert onsets(observe(detector, of(12, usual(rng) + 2_000, 60_000))) > 0.99 * FLOWS
    (first, *_) = detector.open_in_order()
    assert first.evidence.value == pytest.approx(USUAL_NS + 2_300, rel=0.05)
    assert first.evidence.reference == pytest.approx(USUAL_NS + 300, rel=0.05)
    assert first.evidence.host_delay_ns == 60_000
    assert first.evidence.host_delay_baseline_ns == 50_000
    observe(detector, of(13, usual(rng)))
    assert len(detector.open) < 0.01 * FLOWS


@pytest.mark.parametrize(("rise_ns", "shown"), [(2_000, False), (60_000, True)])
def test_few_windows_suffice_for_a_large_rise(rise_ns: int, *, shown: bool) -> None:
    """Five windows say little about scatter, but enough for an alarm: not of a queue."""
    rng = np.random.default_rng(5)
    detector = learned(rng, MIN_HISTORY)
    # The window just before the newest is left out of the look-back.
    assert onsets(observe(detector, of(MIN_HISTORY, usual(rng)))) == 0
    found = onsets(observe(detector, of(MIN_HISTORY + 1, usual(rng) + rise_ns)))
    assert found == FLOWS * shown


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_what_leaves_half_of_the_probes_alone_is_not_reported(share: float) -> None:
    """A queue that is empty now and then moves the upper half, and the lower one less."""
    rng = np.random.default_rng(3)
    detector = learned(rng)
    queued = rng.random((FLOWS, PROBES)) < share
    waits = queued * rng.standard_exponential((FLOWS, PROBES)) * 20_000
    assert onsets(observe(detector, of(12, usual(rng) + waits))) < 0.2 * FLOWS


@pytest.mark.parametrize(("queues", "most"), [(1, 0.01), (2, 0.05), (4, 0.2)])
def test_full_queues_are_not_reported(queues: int, most: float) -> None:
    """Every probe waits in so many queues that are never empty: their waits differ too much."""
    rng = np.random.default_rng(4)
    detector = learned(rng)
    waits = 20_000 * rng.standard_gamma(queues, (FLOWS, PROBES))
    assert onsets(observe(detector, of(12, usual(rng) + waits))) <= most * FLOWS


def test_it_is_one_of_its_kind() -> None:
    """The localizer pools by the kind."""
    assert WeakLatencyDetector.kind is AnomalyKind.WEAK_LATENCY
