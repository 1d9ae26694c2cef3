"""Each lost first probe is told, and again only after a while."""

from schemas.enums import AnomalyKind
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.machine import PartitionMachine
from streams.detectors.base import FOREVER_S
from streams.detectors.stray_loss import FEW_OPEN, HOLD_S, StrayLossDetector
from tests.unit.streams.worlds import IDENTITY, START_S, anomalies_of, result, round_datum, run


def told(lost_s: set[int], seconds: int = 60) -> list[tuple[str, int]]:
    """Return states and seconds of what is told of a 5-tuple that loses probes at some seconds."""
    machine = PartitionMachine(DetectionConfig(), IDENTITY, detectors=(StrayLossDetector,))
    found = []
    for second in range(seconds):
        rtt = None if second in lost_s else 9_000
        datum = round_datum([result("a", "b", 0, 0, rtt)], (START_S + second) * SECOND_NS, second)
        for anomaly in anomalies_of(run(machine, [datum])):
            assert anomaly.kind is AnomalyKind.STRAY_LOSS
            found.append((str(anomaly.state), second))
    return found


def test_a_loss_begins_and_ends() -> None:
    """At once, and when nothing was lost for a while."""
    states = [entry for entry in told({20}) if entry[0] != "ONGOING"]
    assert [state for state, _ in states] == ["ONSET", "CLEARED"]
    assert states[0][1] == 20
    assert HOLD_S - 1 <= states[1][1] - 20 <= HOLD_S + 1


def test_losses_within_seconds_are_one() -> None:
    """Later ones are further ones."""
    assert [s for state, s in told({20, 22, 25, 45}) if state == "ONSET"] == [20, 45]


def test_no_loss_is_told_of_a_healthy_one() -> None:
    """Nothing."""
    assert told(set()) == []


def test_it_says_when_it_decides_next() -> None:
    """With the first end of few open anomalies; of many it is not looked for."""
    for flows, wanted_s in ((1, START_S + 20 + HOLD_S), (FEW_OPEN + 1, 0)):
        machine = PartitionMachine(DetectionConfig(), IDENTITY, detectors=(StrayLossDetector,))
        (detector,) = machine.detection.detectors
        assert isinstance(detector, StrayLossDetector)
        assert detector.next_decision_s == machine.detection.next_decision_s == FOREVER_S
        for second in range(21):
            rtt = None if second == 20 else 9_000
            results = [result("a", "b", flow, 0, rtt) for flow in range(flows)]
            run(machine, [round_datum(results, (START_S + second) * SECOND_NS, second)])
        assert detector.next_decision_s == machine.detection.next_decision_s == wanted_s
