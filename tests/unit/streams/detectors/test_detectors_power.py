"""The whole machine on hours of health and on faults: what it must not say, and what it must."""

from collections import Counter

import numpy as np
import pytest

from schemas.enums import AnomalyKind, AnomalyState
from schemas.units import SECOND_NS
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.detectors.brief_latency import BriefLatencyDetector
from streams.detectors.weak_latency import STATED_RATE
from tests.unit.streams.worlds import START_S, Fault, World, anomalies_of, machine, run

FLOW = frozenset({(0, 0)})


def first_onset(world: World, seconds: int, kind: str, since_s: int) -> float:
    """Return seconds from `since_s` to the event time of the first ONSET; inf for none."""
    found = anomalies_of(run(machine(), list(world.rounds(seconds))), kind, "ONSET")
    return min((a.event_at / 1e6 - START_S - since_s for a in found), default=float("inf"))


@pytest.mark.parametrize(
    "config", [DetectionConfig(), DetectionConfig(window_ns=5 * SECOND_NS)], ids=["30 s", "5 s"]
)
def test_half_an_hour_of_a_busy_machine_is_silent(config: DetectionConfig) -> None:
    """32 five-tuples for half an hour, one probe in ten heavily delayed: no alarm.

    Reports of small and of brief rises, which alarm nobody, stay within their stated rates.
    """
    world = World(seed=21, targets=8, sigma=0.4, tail=0.1)
    m = machine(config)
    found = anomalies_of(run(m, list(world.rounds(1800))))
    assert {a.kind for a in found} <= {AnomalyKind.WEAK_LATENCY, AnomalyKind.BRIEF_LATENCY}
    begun = Counter(a.kind for a in found if a.state is AnomalyState.ONSET)
    assert begun[AnomalyKind.WEAK_LATENCY] <= STATED_RATE * m.counts["windows"]
    looks = 32 * 1800 * SECOND_NS // REFRESH_STEP_NS
    rate = BriefLatencyDetector.false_alarms(config).rate
    assert begun[AnomalyKind.BRIEF_LATENCY] <= rate * looks
    assert m.counts["windows"] >= 32 * (1800 * SECOND_NS // config.window_ns - 2)


def test_loss_at_the_base_rate_is_within_the_budget() -> None:
    """40 five-tuples, half an hour at a base rate of 1e-3: onsets as stated, at most."""
    config = DetectionConfig(loss_base_rate=1e-3, loss_false_alarms_per_hour=1e-2)
    world = World(seed=3, targets=10, base_loss=1e-3)
    m = machine(config)
    onsets = anomalies_of(run(m, list(world.rounds(1800))), "LOSS", "ONSET")
    # Per 5-tuple and hour, and per path and hour: (20 + 5) * 0.01 = 0.25 expected at most;
    # 3 or more have a probability below 0.3 %. Some 72 probes were lost.
    assert len(onsets) <= 2


@pytest.mark.parametrize("median_ns", [1e6, 2e6])
def test_five_milliseconds_are_found_within_two_windows(median_ns: float) -> None:
    """+5 ms on a base of 1 or 2 ms, wherever in a window it begins, despite heavy tails."""
    delays = []
    for seed in range(8):
        begin = 300 + int(np.random.default_rng(seed).integers(0, 30))
        fault = Fault(begin, 9999, FLOW, delay_ns=5_000_000)
        world = World(
            seed=seed, targets=1, flows=1, median_ns=median_ns, sigma=0.4, tail=0.1, faults=[fault]
        )
        delays.append(first_onset(world, 400, "LATENCY", begin))
    assert max(delays) <= 60


def test_ten_percent_loss_is_found_in_fifteen_seconds() -> None:
    """10 % on a path of 4 five-tuples at 1 Hz: nearly always all four; mostly two of four."""
    found = {}
    for flows in (2, 4):
        fault = Fault(30, 9999, frozenset((0, f) for f in range(flows)), loss=0.1)
        delays = [
            first_onset(World(seed=s, targets=1, faults=[fault]), 62, "LOSS", 30) for s in range(30)
        ]
        found[flows] = float(np.mean(np.array(delays) <= 15))
    assert found[4] >= 0.85
    assert found[2] >= 0.55


def test_cut_is_found_in_its_round() -> None:
    """All 5-tuples of a cut path: ONSET within the first round after the cut, each of them."""
    fault = Fault(20, 9999, frozenset((0, f) for f in range(4)), loss=1.0)
    m = machine()
    rounds = list(World(targets=2, faults=[fault]).rounds(21))
    run(m, rounds[:20])
    onsets = anomalies_of(m.process(rounds[20], 20), "CONNECTIVITY", "ONSET")
    assert [a.flow for a in onsets] == [0, 1, 2, 3]


def test_lossy_link_looks_different_from_a_cut() -> None:
    """At 20 % loss three in a row happen; such a CONNECTIVITY clears soon and counts answers."""
    fault = Fault(30, 9999, frozenset((0, f) for f in range(4)), loss=0.2)
    outputs = run(machine(), list(World(seed=4, targets=1, faults=[fault]).rounds(400)))
    told = anomalies_of(outputs, "CONNECTIVITY", "ONGOING")
    assert anomalies_of(outputs, "CONNECTIVITY", "ONSET")
    assert all(a.lost < 0.8 * a.sent for a in told)
    assert len(anomalies_of(outputs, "LOSS", "ONSET")) >= 4
