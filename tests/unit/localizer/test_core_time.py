"""Time that goes far in one go, and records from long ago."""

from schemas.enums import FaultLifecycle
from schemas.units import SECOND_NS
from tests.unit.localizer.fleet import Fleet

DAY_NS = 86_400 * SECOND_NS


def test_a_stretch_in_which_nothing_happens_is_skipped() -> None:
    """A year without a record costs no more than what follows the last one."""
    fleet = Fleet(4)
    fleet.run(10)
    before = fleet.core.steps
    fleet.now += 365 * DAY_NS
    fleet.decide()
    assert fleet.core.steps - before < 4_000
    assert fleet.events == []
    fleet.run(30)
    found = fleet.run(15, silent=["a1"])
    assert [(e.component_id, e.fault_kind) for e in found] == [("a1", "agent_dead")]


def test_open_faults_last_over_a_stretch_that_is_skipped() -> None:
    """And end as soon as the agent is back."""
    fleet = Fleet(4)
    fleet.run(10)
    fleet.run(15, silent=["a1"])
    fleet.now += DAY_NS
    found = fleet.run(30, silent=["a1"])
    assert found == []
    assert [e.state for e in fleet.run(10)] == [FaultLifecycle.RESOLVED]


def test_a_record_from_1970_does_not_begin_time_there() -> None:
    """The first heartbeat has no time; the localizer is at the present with the first mark."""
    fleet = Fleet(4)
    fleet.beat("a1", at=0)
    fleet.run(30)
    assert fleet.core.steps < 4_000
    assert fleet.events == []
