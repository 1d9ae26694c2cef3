"""Raised latency: LOF and an effect, over many 5-tuples."""

from dataclasses import dataclass

import numpy as np
import pytest

from schemas.enums import Transport
from streams.columns.table import NO_ROW
from streams.config import DetectionConfig
from streams.detectors.base import least_effect_ns
from streams.detectors.latency import LookBack, Verdicts

KEYS = [("agent", "a", f"b{i}", 0) for i in range(100)]
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


def windows(
    rng: np.random.Generator, health: Health = HEALTHY, shift_ns: float = 0.0
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return features of a window of each of 100 paths, `shift_ns` slower."""
    n = health.probes
    rtt = health.median_ns * np.exp(health.sigma * rng.standard_normal((100, n)))
    rtt += (rng.random(rtt.shape) < health.tail) * rng.pareto(1.5, rtt.shape) * 5e5
    rtt = np.sort(np.minimum(rtt, 5e8) + shift_ns, axis=1)
    q = [rtt[:, (p * n + 99) // 100 - 1] for p in (25, 50, 75)]
    made = [*q, rtt[:, 0], rtt.mean(axis=1), rtt.std(axis=1), rtt[:, -1]]
    return np.asarray(np.rint(np.stack(made, axis=-1)), np.int64)


def judge(
    lookback: LookBack, index: int, features: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    transport: Transport = Transport.UDP, *, answers: int = 30, least_ns: float | None = None,
) -> Verdicts:  # fmt: skip
    """Judge one window of each key."""
    found = lookback.table.find_all(KEYS[: len(features)])
    rows = np.array([NO_ROW if row is None else row for row in found])
    least = least_effect_ns(CONFIG, transport) if least_ns is None else least_ns
    return lookback.judge(
        index, rows, features, np.full(len(rows), answers), np.full(len(rows), float(least))
    )


def fill(
    lookback: LookBack, count: int, rng: np.random.Generator, health: Health = HEALTHY
) -> None:
    """Insert healthy windows 0..count-1 of all keys."""
    for index in range(count):
        for key, row in zip(KEYS, windows(rng, health), strict=True):
            lookback.insert(key, index, row)


def test_shift_is_found_and_health_is_not() -> None:
    """5 ms on 1.5 ms is anomalous for all 100 paths, a healthy window for none."""
    rng = np.random.default_rng(1)
    lookback = LookBack(CONFIG)
    fill(lookback, 10, rng, BUSY)
    assert judge(lookback, 11, windows(rng, BUSY, 5e6)).strong.sum() >= 99
    assert not judge(lookback, 11, windows(rng, BUSY)).strong.any()


def test_microseconds_on_a_calm_path_are_no_anomaly() -> None:
    """30 us more on 1.5 ms with next to no noise: LOF is large, the effect is not."""
    rng = np.random.default_rng(2)
    lookback, eager = LookBack(CONFIG), LookBack(DetectionConfig(effect_ns=0, effect_ratio=0.0))
    fill(lookback, 10, rng, Health(sigma=0.001))
    fill(eager, 10, rng, Health(sigma=0.001))
    raised = windows(rng, Health(sigma=0.001), 3e4)
    verdicts = judge(lookback, 11, raised)
    assert not (verdicts.strong | verdicts.weak).any()
    assert (judge(eager, 11, raised, least_ns=0.0).score > 1).all()


def test_effect_depends_on_the_transport() -> None:
    """100 us on 16 us is an anomaly for RDMA, and nothing for UDP through a kernel."""
    rng = np.random.default_rng(3)
    lookback = LookBack(CONFIG)
    calm = Health(16_000, 0.02)
    fill(lookback, 10, rng, calm)
    raised = windows(rng, calm, 1e5)
    assert judge(lookback, 11, raised, Transport.RDMA_UD).strong.all()
    assert not judge(lookback, 11, raised).strong.any()


def test_faster_is_no_anomaly() -> None:
    """A path that got faster raises nothing."""
    rng = np.random.default_rng(4)
    lookback = LookBack(CONFIG)
    fill(lookback, 10, rng, Health(9e6, 0.05))
    verdicts = judge(lookback, 11, windows(rng, Health(2e6, 0.05)))
    assert not (verdicts.strong | verdicts.weak).any()


def test_too_few_answers_are_not_judged() -> None:
    """A window of few answers has no verdict, however slow."""
    rng = np.random.default_rng(5)
    lookback = LookBack(CONFIG)
    fill(lookback, 10, rng)
    verdicts = judge(lookback, 11, windows(rng, shift_ns=5e7), answers=3)
    assert not verdicts.weak.any()


@pytest.mark.parametrize(("gap", "judged"), [(0, True), (5, True), (6, False), (10, False)])
def test_old_windows_do_not_count(gap: int, judged: bool) -> None:
    """The look-back is ten windows of event time; after a pause what is left decides."""
    rng = np.random.default_rng(6)
    lookback = LookBack(CONFIG)
    fill(lookback, 10, rng)
    verdicts = judge(lookback, 11 + gap, windows(rng, shift_ns=5e7))
    assert bool(verdicts.strong.all()) == judged
    assert bool(verdicts.weak.any()) == judged


def test_window_just_before_is_no_reference() -> None:
    """A fault that began in the last window does not hide itself in the next."""
    rng = np.random.default_rng(7)
    first, second = LookBack(CONFIG), LookBack(CONFIG)
    fill(first, 10, rng, BUSY)
    fill(second, 10, np.random.default_rng(7), BUSY)
    for key in KEYS:
        second.insert(key, 10, np.full(7, 6_500_000))
    new = windows(rng, BUSY, 5e6)
    assert (judge(first, 11, new).score == judge(second, 11, new).score).all()


def test_weak_suspicion_is_remembered_for_one_window_and_taken_back() -> None:
    """Only the window just before confirms; confirmed, it leaves the look-back."""
    lookback = LookBack(CONFIG)
    lookback.insert(KEYS[0], 5, np.full(7, 10))
    lookback.note_weak(KEYS[0], 5)
    assert lookback.was_weak(KEYS[0], 5)
    assert not lookback.was_weak(KEYS[0], 4)
    assert not lookback.was_weak(KEYS[1], 5)
    assert not lookback.withdraw_weak(KEYS[0], 4)
    assert lookback.baseline_p50_ns(KEYS[0], 6) == 10
    assert lookback.withdraw_weak(KEYS[0], 5)
    assert lookback.baseline_p50_ns(KEYS[0], 6) is None


def test_baseline_and_forgetting() -> None:
    """The baseline is the median of medians; 5-tuples that fell silent are dropped.

    Each by its own agent's clock: of one that is behind old windows still matter.
    """
    lookback = LookBack(CONFIG)
    for index, p50 in enumerate([10, 30, 20]):
        lookback.insert(KEYS[0], index, np.full(7, p50))
    assert lookback.baseline_p50_ns(KEYS[0], 3) == 20
    assert lookback.baseline_p50_ns(KEYS[1], 3) is None
    assert lookback.baseline_p50_ns(KEYS[0], 40) is None
    behind = ("behind", *KEYS[0][1:])
    lookback.insert(behind, 2, np.full(7, 20))
    lookback.insert(KEYS[1], 40, np.full(7, 20))
    first_open = {"agent": 15, "behind": 3}
    lookback.forget(first_open.__getitem__)
    assert len(lookback) == 3
    first_open["agent"] = 16
    lookback.forget(first_open.__getitem__)
    assert lookback.table.find(KEYS[0]) is None
    assert lookback.table.find(KEYS[1]) is not None
    assert lookback.baseline_p50_ns(behind, 3) == 20
    first_open["behind"] = 16
    lookback.forget(first_open.__getitem__)
    assert len(lookback) == 1


@pytest.mark.parametrize("health", [Health(sigma=0.4, tail=0.1, probes=5), BUSY])
def test_long_health_on_a_busy_machine_raises_no_alarm(health: Health) -> None:
    """100 paths, 48,000 windows, heavy tails: next to no alarm, five probes a window or thirty."""
    rng = np.random.default_rng(8)
    lookback = LookBack(CONFIG)
    fill(lookback, 12, rng, health)
    alarms = 0
    weak_before = np.zeros(100, np.bool_)
    for index in range(12, 492):
        features = windows(rng, health)
        verdicts = judge(lookback, index, features, answers=health.probes)
        alarms += int((verdicts.strong | (verdicts.weak & weak_before)).sum())
        weak_before = verdicts.weak
        for key, row in zip(KEYS, features, strict=True):
            lookback.insert(key, index, row)
    # One in 50,000 windows, where LOF alone would allow five.
    assert alarms <= 1


def test_many_windows_at_once_are_as_many_one_by_one() -> None:
    """`insert_all` is `insert` of each, also where rows are new or replaced."""
    rng = np.random.default_rng(8)
    single, batch = LookBack(CONFIG), LookBack(CONFIG)
    for index in range(15):
        made = windows(rng)
        chosen = np.flatnonzero(rng.random(len(KEYS)) < 0.7)
        for place in chosen.tolist():
            single.insert(KEYS[place], index, made[place])
        rows = np.array([batch.table.row(KEYS[p]) for p in chosen.tolist()], np.int64)
        batch.insert_all(rows, index, made[chosen])
        batch.insert_all(rows[:0], index, made[:0])
    asked = windows(rng)
    one, other = judge(single, 16, asked), judge(batch, 16, asked)
    np.testing.assert_array_equal(one.score, other.score)
    np.testing.assert_array_equal(one.baseline_ns, other.baseline_ns)
    assert len(single) == len(batch)
