"""What every registered detector keeps to; a new one is tested without a line written here.

Each detector runs alone in a partition's machine. At the end broken detectors show that the
checks can fail.
"""

import gc
import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import ClassVar

import numpy as np
import pytest

from schemas.codec import Codec
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import PathWindow
from schemas.units import SECOND_NS
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.core.checkpoint import Checkpoint
from streams.core.feed import Feed
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from streams.detectors.base import (
    P50,
    Decision,
    Detector,
    Evidence,
    FalseAlarmRate,
    FeatureBatch,
    ProbeDetector,
    ResultBatch,
    WindowDetector,
)
from streams.detectors.moments import MomentDetector
from streams.detectors.registry import DETECTORS
from tests.property.test_streams_machine_restart import checkpoint, in_time, restarted
from tests.unit.streams.worlds import (
    IDENTITY,
    START_S,
    Fault,
    World,
    anomalies_of,
    as_bytes,
    result,
    round_datum,
    run,
)

# Small, so that look-backs, blocks and expiries pass within some minutes.
CONFIG = DetectionConfig(
    window_ns=5 * SECOND_NS,
    lateness_ns=2 * SECOND_NS,
    trend_ns=100 * SECOND_NS,
    idle_ns=10 * SECOND_NS,
    latency_max_ns=90 * SECOND_NS,
)
# A restart while something is open, or just after a decision: seconds.
RESTARTS_S = (140, 190, 215, 303, 390)
# A cut, a lossy path, and a slow one for more than two blocks of the long-term test.
TROUBLES = [
    Fault(120, 150, frozenset({(0, 0)}), loss=1.0),
    Fault(160, 200, frozenset({(0, 1)}), loss=0.3),
    Fault(203, 430, frozenset({(1, 0), (1, 1)}), delay_ns=5_000_000),
]
TROUBLED = list(World(seed=5, flows=2, faults=TROUBLES).rounds(460))
TIMED = in_time(TROUBLED)
HEALTHY = list(World(seed=6, flows=2, tail=0.1).rounds(460))


def machine_of(detector: type[Detector], config: DetectionConfig = CONFIG) -> PartitionMachine:
    """Return a machine that has this detector only."""
    return PartitionMachine(config, IDENTITY, detectors=(detector,))


def check_statement(detector: type[Detector]) -> None:
    """State what it detects, in which unit, by which method, and how often by mistake."""
    assert detector.kind not in {AnomalyKind.UNKNOWN, AnomalyKind.PROGRESS}
    assert detector.name
    assert detector.unit
    assert len(detector.reference) > 10
    false_alarms = detector.false_alarms(DetectionConfig())
    assert 0 < false_alarms.rate <= 1e-2
    assert false_alarms.per
    assert issubclass(detector, ProbeDetector | MomentDetector | WindowDetector)


def check_health(detector: type[Detector]) -> None:
    """Run a busy machine without faults: no more anomalies than stated."""
    outputs = run(machine_of(detector), HEALTHY)
    onsets = sum(r.state is AnomalyState.ONSET for r in anomalies_of(outputs))
    stated = detector.false_alarms(CONFIG)
    windows = sum(isinstance(one.record, PathWindow) for one in outputs)
    assert windows
    judged = windows if "window" in stated.per else 0
    if "look" in stated.per:
        judged = windows * CONFIG.window_ns // REFRESH_STEP_NS
    assert onsets <= stated.rate * judged


def check_records(detector: type[Detector]) -> None:
    """Find its kind, name and unit in its records; an anomaly that ends has begun."""
    records = anomalies_of(run(machine_of(detector), TROUBLED))
    assert {(r.kind, r.detector) for r in records} <= {(detector.kind, detector.name)}
    assert {r.unit for r in records} <= {detector.unit, None}
    assert all((r.unit is None) == (r.value is None) for r in records)
    began = {(r.src, r.dst, r.flow, r.onset_at) for r in records if r.state == "ONSET"}
    assert {(r.src, r.dst, r.flow, r.onset_at) for r in records} == began


def check_batches(detector: type[Detector]) -> None:
    """Process rounds one by one, by kernels singly, and in large batches: the same bytes."""
    alone = machine_of(detector)
    single = as_bytes([o for n in range(len(TIMED)) for o in TIMED.process(alone, n)])
    messages = TIMED.messages(0, len(TIMED))
    for length in (1, 200):
        feed = Feed(machine_of(detector), Codec())
        outputs: list[Output] = []
        for first in range(0, len(messages), length):
            for taken in feed.process(messages[first : first + length]):
                outputs += taken.outputs
        assert as_bytes(outputs) == single


def check_restart(detector: type[Detector]) -> None:
    """Restart: everything goes on as without one, whenever the history comes."""
    undisturbed = machine_of(detector)
    outputs: list[Output] = []
    points: dict[int, tuple[Checkpoint, int]] = {}
    for offset in range(len(TIMED)):
        if offset in RESTARTS_S:
            points[offset] = checkpoint(undisturbed, offset), len(outputs)
        outputs += TIMED.process(undisturbed, offset)
    for offset, (point, before) in points.items():
        for late in (None, 2):
            again, _ = restarted(
                CONFIG, TIMED, outputs[:before], point,
                kernels=False, late=late, detectors=(detector,),
            )  # fmt: skip
            rest = [o for n in range(offset, len(TIMED)) for o in TIMED.process(again, n)]
            assert as_bytes(rest) == as_bytes(outputs[before:])


def check_memory(detector: type[Detector]) -> None:
    """Let 5-tuples come and go, some of them cut off: they leave nothing behind."""
    config = DetectionConfig(
        window_ns=SECOND_NS, lateness_ns=0, lookback_windows=5, trend_ns=10 * SECOND_NS,
        idle_ns=5 * SECOND_NS,
    )  # fmt: skip
    machine = machine_of(detector, config)
    (observed,) = machine.detection.detectors
    held = []
    for second in range(601):
        # Each 5-tuple lives for ten seconds.
        results = [
            result("a", f"b{second // 10}", flow, flow * 1_000_000 + n, None if flow == 2 else 9)
            for flow in range(3)
            for n in range(4)
        ]
        run(machine, [round_datum(results, (START_S + second) * SECOND_NS, second)])
        if second % 100 == 0:
            held.append(held_bytes(observed, machine))
    assert len(observed) <= 3 * 20
    assert max(held[4:]) <= 1.05 * max(held[1:4])


def held_bytes(detector: Detector, machine: PartitionMachine) -> int:
    """Return the bytes of all that a detector refers to, but for what belongs to the machine."""
    seen = {id(machine.recent), id(machine.config)}
    todo: list[object] = [detector]
    total = 0
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, type | FunctionType | MethodType | ModuleType):
            continue
        seen.add(id(item))
        total += item.nbytes if isinstance(item, np.ndarray) else sys.getsizeof(item)
        todo += gc.get_referents(item)
    return total


CHECKS: tuple[Callable[[type[Detector]], None], ...] = (
    check_statement,
    check_health,
    check_records,
    check_batches,
    check_restart,
    check_memory,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.kind.value)
def test_registered_detector(
    detector: type[Detector], check: Callable[[type[Detector]], None]
) -> None:
    """Each check of each detector."""
    check(detector)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.kind.value)
def test_the_troubles_show_what_a_detector_decides(detector: type[Detector]) -> None:
    """Else restarts and batches would show nothing: a new kind of trouble goes to TROUBLES."""
    records = anomalies_of(run(machine_of(detector), TROUBLED))
    assert {"ONSET", "ONGOING"} <= {record.state for record in records}


def test_kinds_and_names_are_unique() -> None:
    """The kind tells whose record it is after a restart, the name tells people."""
    assert len({detector.kind for detector in DETECTORS}) == len(DETECTORS)
    assert len({detector.name for detector in DETECTORS}) == len(DETECTORS)


class Slow(WindowDetector):
    """A sound detector, to be broken below: medians above 4 ms."""

    kind: ClassVar[AnomalyKind] = AnomalyKind.LATENCY
    name: ClassVar = "slow"
    unit: ClassVar = "ns"
    reference: ClassVar = "An example of this suite"

    def __len__(self) -> int:
        """Nothing is kept but open anomalies."""
        return 0

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return some rate."""
        del config
        return FalseAlarmRate(1e-3, "window of a 5-tuple")

    @property
    def history_ns(self) -> int:
        """No window before the present one matters."""
        return 0

    def is_slow(self, windows: FeatureBatch, place: int) -> bool:
        """Return whether a window is slow."""
        return bool(windows.features_ns[place, P50] > 4_000_000)

    def observe_windows(self, windows: FeatureBatch) -> list[Decision]:
        """Compare each window with the bound."""
        decisions = []
        end_ns = (windows.index + 1) * self.config.window_ns
        for place in range(len(windows)):
            key, slow = windows.key(place), self.is_slow(windows, place)
            anomaly = self.open.get(key)
            if slow and anomaly is None:
                evidence = Evidence(value=float(windows.features_ns[place, P50]))
                decisions.append(self._begin(key, end_ns, end_ns, evidence))
            elif anomaly is not None and not slow:
                decisions.append(self._end(anomaly, end_ns))
        return decisions

    def restore_windows(self, windows: FeatureBatch) -> None:
        """Nothing is kept of windows."""


class Nameless(Slow):
    """Says nothing of its method."""

    reference: ClassVar = ""


class Alarmist(Slow):
    """Takes every third window for slow."""

    def is_slow(self, windows: FeatureBatch, place: int) -> bool:
        """Return whether its turn has come."""
        return (windows.index + place) % 3 == 0


class Amnesiac(Slow):
    """Decides by how many windows it has seen, which a restart does not know."""

    def __init__(self, config: DetectionConfig) -> None:
        super().__init__(config)
        self._seen = 0

    def is_slow(self, windows: FeatureBatch, place: int) -> bool:
        """Return whether a window is slow and its number a multiple of five."""
        self._seen += 1
        return super().is_slow(windows, place) and self._seen % 5 == 0


class Hoarder(Slow):
    """Never forgets a 5-tuple, and does not count what it keeps."""

    def __init__(self, config: DetectionConfig) -> None:
        super().__init__(config)
        self._keys: dict[object, bytes] = {}

    def is_slow(self, windows: FeatureBatch, place: int) -> bool:
        """Remember the 5-tuple."""
        self._keys[windows.key(place)] = bytes(1_000)
        return super().is_slow(windows, place)


class Mislabelled(Slow):
    """Restores and ends what another detector began."""

    def observe_windows(self, windows: FeatureBatch) -> list[Decision]:
        """Begin each anomaly at another time than it says when it ends."""
        decisions = super().observe_windows(windows)
        for key, anomaly in list(self.open.items()):
            object.__setattr__(anomaly, "onset_at", anomaly.onset_at - 1)
            self.open[key] = anomaly
        return decisions


class Counting(ProbeDetector):
    """Decides by how often it is called, which depends on batches."""

    kind: ClassVar = AnomalyKind.LOSS
    name: ClassVar = "counting"
    unit: ClassVar = "ratio"
    reference: ClassVar = "An example of this suite"
    calls = 0

    def __len__(self) -> int:
        """Nothing is kept by 5-tuple."""
        return 0

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return some rate."""
        del config
        return FalseAlarmRate(1e-3, "probe")

    def observe_results(self, results: ResultBatch, *, decide: bool) -> list[Decision]:
        """Begin an anomaly of a 5-tuple that lost a probe at every fifth call."""
        self.calls += 1
        lost = results.rows[~results.ok].tolist()
        if not decide or not lost or self.calls % 5:
            return []
        key, sent_ns = self.recent.flows.key(lost[0]), int(results.sent_ns[0])
        return [] if key in self.open else [self._begin(key, sent_ns, sent_ns, Evidence(value=1.0))]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_sound_detector_passes(check: Callable[[type[Detector]], None]) -> None:
    """The checks ask for nothing special."""
    check(Slow)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Nameless, check_statement),
        (Alarmist, check_health),
        (Mislabelled, check_records),
        (Counting, check_batches),
        (Amnesiac, check_restart),
        (Hoarder, check_memory),
    ],
    ids=lambda item: item.__name__,
)
def test_a_broken_detector_fails(
    broken: type[Detector], check: Callable[[type[Detector]], None]
) -> None:
    """Each check finds what it is there for."""
    with pytest.raises(AssertionError):
        check(broken)
