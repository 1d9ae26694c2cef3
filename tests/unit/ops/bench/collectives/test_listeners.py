"""What the bench hears of the pipeline's faults."""

from typing import Any, cast

from ops.bench.collectives.causes import Said
from ops.bench.collectives.listeners import Faults
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from tests.unit.ops.bridge.made import transition

OPEN, UPDATED, RESOLVED = (
    FaultLifecycle.OPEN, FaultLifecycle.UPDATED, FaultLifecycle.RESOLVED
)  # fmt: skip


class Silent:
    """A watch that reads nothing."""

    def poll(self, _timeout_s: float) -> list[Any]:
        """Return nothing."""
        return []


def event(state: FaultLifecycle, fault_id: str = "f-1", **changes: Any) -> FaultEvent:
    """Return a transition of a fault of the job."""
    given = {
        "fault_kind": "rank_stopped", "tasks": ("hangs",), "component_id": "hangs|3",
        "ranks": ("hangs|3", "hangs|0"), **changes,
    }  # fmt: skip
    return transition(fault_id, 1, state, **given)


def test_a_fault_counts_once_as_it_was_told_last() -> None:
    """What is refined is one word; what was open before is none; another job's is not heard."""
    faults = Faults(cast("Any", Silent()), "hangs")
    faults.take(event(OPEN))
    faults.take(event(UPDATED, fault_kind="rank_missing"))
    assert faults.hear() == (Said("rank_missing", (0, 3), "hangs|3"),)
    assert not faults.calm()
    faults.forget()
    faults.take(event(UPDATED))
    faults.take(event(OPEN, "f-2", tasks=("job1",)))
    assert faults.hear() == ()
    faults.take(event(RESOLVED))
    assert faults.calm()
