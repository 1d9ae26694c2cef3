"""The recording with latency faults: they can be told, and are open for minutes."""

from types import SimpleNamespace
from typing import Any, cast

from arena.faults.kinds import KINDS
from ops.bench.accuracy.diagnose_speed import BEGIN_S, SLOW, open_faults
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.detectors.lof import MIN_HISTORY

OPEN, UPDATED, RESOLVED = (
    FaultLifecycle.OPEN,
    FaultLifecycle.UPDATED,
    FaultLifecycle.RESOLVED,
)


def test_faults_begin_when_enough_windows_are_known() -> None:
    """What is slow from the first windows on is the normal of its 5-tuples."""
    window_s = DetectionConfig().window_ns // SECOND_NS
    assert BEGIN_S // window_s > MIN_HISTORY
    assert all(fault.begin_s == BEGIN_S and fault.end_s is None for fault in SLOW.faults)
    assert all(not KINDS[fault.kind].hard for fault in SLOW.faults)
    assert SLOW.seconds - BEGIN_S > 300


def test_open_faults_are_counted_once_and_until_they_are_resolved() -> None:
    """An update is no further fault."""
    history = [("a", OPEN), ("b", OPEN), ("a", UPDATED), ("b", RESOLVED), ("c", OPEN)]
    events: list[Any] = [SimpleNamespace(fault_id=name, state=state) for name, state in history]
    counts = [open_faults(cast(list[FaultEvent], events[:n])) for n in range(len(events) + 1)]
    assert counts == [0, 1, 2, 2, 1, 2]
