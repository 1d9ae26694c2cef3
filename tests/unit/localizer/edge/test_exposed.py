"""What the localizer exposes: all that it declares; open faults as the transitions say."""

from typing import Any

from localizer.edge.counts import Counts
from localizer.edge.exposed import AGENTS, COVERAGE, FAULTS, METRICS, TRANSITIONS, Exposed
from schemas import topics
from schemas.enums import FaultLifecycle
from schemas.metrics.family import Sample
from schemas.records import FaultEvent
from tests.unit.localizer.fleet import Fleet
from tests.unit.schemas.valid import valid_datum


def transition(fault_id: str, seq: int, state: FaultLifecycle, severity: str) -> FaultEvent:
    """Return a transition."""
    datum = valid_datum(topics.FAULT_EVENT.name)
    datum |= {"fault_id": fault_id, "seq": seq, "state": state, "severity": severity}
    datum |= {"fault_kind": "link_down", "candidates": (), "tasks": (), "evidence": ()}
    return FaultEvent(**datum)


def exposed(counts: Counts) -> dict[Any, Any]:
    """Return what is exposed, by metric."""
    return {family.metric: family.samples for family in Exposed(counts).families()}


def test_all_that_is_declared_from_the_start_on() -> None:
    """Before anything was read, and with the status of a core that watches three agents."""
    fleet = Fleet(3)
    fleet.run(6)
    counts = Counts([topics.ANOMALY.name], 10)
    assert set(exposed(counts)) == set(METRICS)
    counts.note_status(fleet.core, 0)
    counts.note_coverage(fleet.core)
    found = exposed(counts)
    assert set(found) == set(METRICS)
    agents = {sample.labels[0]: sample.value for sample in found[AGENTS]}
    assert sum(agents.values()) == len(fleet.core.sources.members()) > 0
    (share,) = found[COVERAGE]
    assert 0 <= share.value <= 1


def test_open_faults_follow_the_transitions() -> None:
    """Of former processes, too; what was open is 0 afterwards, and does not vanish."""
    counts = Counts([], 10)
    counts.restore_faults([transition("f-0", 1, FaultLifecycle.OPEN, "warning")])
    assert exposed(counts)[FAULTS] == [Sample(1, ("link_down", "warning"))]
    counts.note_transition(transition("f-1", 1, FaultLifecycle.OPEN, "critical"))
    counts.note_transition(transition("f-1", 2, FaultLifecycle.RESOLVED, "critical"))
    found = exposed(counts)
    assert found[FAULTS] == [
        Sample(0, ("link_down", "critical")), Sample(1, ("link_down", "warning")),
    ]  # fmt: skip
    opened = Sample(1, ("open", "link_down", "critical"), {"fault_id": "f-1"})
    assert opened in found[TRANSITIONS]
