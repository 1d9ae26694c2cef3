"""Hangs of training jobs and faults of the network: joined, whichever comes first."""

from dataclasses import replace
from typing import Any

import pytest

from ops.lab.shape import LabShape
from schemas import topics
from schemas.enums import Certainty, FaultLifecycle, HangClass, Layer
from schemas.records import FaultEvent, Hang, StuckFlow
from schemas.units import SECOND_NS
from tests.unit.localizer.simlab import CLUSTER, SimLab

SHAPE = LabShape(hosts=4, rails=2, pods=2, leaves=2, spines=2)
CABLE = "link:leaf:p1-0--rnic:h3/r0"
ENDS = ("job1-w3/r0", "job1-w1/r0")
WAITING = ("job1|0", "job1|2", "job1|4", "job1|6")
OPEN, RESOLVED = FaultLifecycle.OPEN, FaultLifecycle.RESOLVED


def hang(lab: SimLab, seq: int = 1, **changes: Any) -> Hang:
    """Return a hang of four ranks; by default bytes between two of them are stuck."""
    at = lab.now // 1_000
    base = Hang(
        cluster=CLUSTER, hang_id="h-1", task_id="job1", seq=seq, state=OPEN, event_at=at,
        onset_at=at - 5_000_000, hang_class=HangClass.NETWORK, certainty=Certainty.SURE,
        ranks=(2, 6), waiting_ranks=(0, 2, 4, 6), endpoint_ids=ENDS,
        stuck_flows=(
            StuckFlow(
                src_rank=6, dst_rank=2, src_endpoint_id=ENDS[0], dst_endpoint_id=ENDS[1],
                unacked_bytes=9_000, stalled_ns=5 * SECOND_NS,
            ),
        ),
        communicator="3", sequence=49, operation="all_reduce", waited_ns=5 * SECOND_NS,
        summary="job1 hangs", evidence=("seen",), next_steps=("look",),
    )  # fmt: skip
    return replace(base, **changes)


def write(lab: SimLab, record: Hang) -> None:
    """Write a hang as it is now."""
    lab.write(topics.COLLECTIVE_HANG.name, record.hang_id, record, lab.now)


def hang_by_a_cut(lab: SimLab) -> None:
    """Cut the cable for ten seconds; the job hangs after six of them."""
    lab.run(12)
    lab.effects.links[CABLE] = (1.0, 0)
    lab.run(6)
    write(lab, hang(lab))
    lab.run(4)
    lab.effects.links.clear()


def job_class(hang_class: HangClass, rank: int = 6) -> dict[str, Any]:
    """Return the changes of a hang that a rank caused."""
    return {
        "hang_class": hang_class, "ranks": (rank,), "stuck_flows": (), "endpoint_ids": ENDS[:1],
    }  # fmt: skip


def last_of(events: list[FaultEvent]) -> dict[str, FaultEvent]:
    """Return the latest transition of each fault."""
    return {event.fault_id: event for event in events}


def test_a_fault_of_the_network_names_the_ranks_that_it_stops() -> None:
    """One fault, one page: the hang opens none."""
    lab = SimLab(SHAPE)
    lab.run(12)
    lab.effects.links[CABLE] = (1.0, 0)
    lab.run(6)
    write(lab, hang(lab))
    lab.run(8)
    events = lab.verdicts()
    assert [e.state for e in events if e.state is OPEN] == [OPEN]
    (fault,) = last_of(events).values()
    assert fault.component_id in {CABLE, "rnic:h3/r0"}
    assert fault.ranks == WAITING
    assert "job1" in fault.tasks
    assert any("job1 hangs" in text for text in fault.evidence)


def test_a_fault_above_the_leaves_is_on_the_way_of_a_hang_between_them() -> None:
    """Agents probe other pairs than those that the job uses: a spine is no RNIC of either."""
    lab = SimLab(SHAPE)
    lab.run(12)
    for leaf in ("p0-0", "p0-1", "p1-0", "p1-1"):
        lab.effects.links[f"link:leaf:{leaf}--spine:0"] = (1.0, 0)
    lab.run(6)
    pair = StuckFlow(
        src_rank=1, dst_rank=7, src_endpoint_id="job1-w0/r1", dst_endpoint_id="job1-w3/r1",
        unacked_bytes=9_000, stalled_ns=5 * SECOND_NS,
    )  # fmt: skip
    ends = (pair.src_endpoint_id or "", pair.dst_endpoint_id or "")
    write(lab, hang(lab, ranks=(1, 7), endpoint_ids=ends, stuck_flows=(pair,)))
    lab.run(12)
    (fault,) = last_of(lab.verdicts()).values()
    assert fault.component_id == "spine:0"
    assert {"job1|1", "job1|7"} <= set(fault.ranks)


@pytest.mark.parametrize("at_s", [-9.0, -5.0, -3.0, -1.0, 0.0, 1.0, 2.0, 4.0, 9.0])
def test_whichever_comes_first_the_final_state_is_the_same(at_s: float) -> None:
    """A hang some seconds before or after the first lost probes; each is told once."""
    lab = SimLab(SHAPE)
    lab.run(12)
    if at_s < 0:
        write(lab, hang(lab))
        lab.run(-at_s)
    lab.effects.links[CABLE] = (1.0, 0)
    if at_s >= 0:
        lab.run(at_s)
        write(lab, hang(lab))
    lab.run(20 - max(at_s, 0.0))
    events = lab.verdicts()
    assert len([e for e in events if e.state is OPEN]) == 1
    (fault,) = last_of(events).values()
    assert (fault.component_id, fault.fault_kind) == (CABLE, "connectivity")
    assert fault.layer is Layer.UNDERLAY
    assert (fault.ranks, fault.tasks) == (WAITING, ("job1",))


def test_a_hang_without_a_fault_of_the_network_waits_five_seconds() -> None:
    """Then it is a fault of its own, undecided between what its ends have."""
    lab = SimLab(SHAPE)
    lab.run(12)
    write(lab, hang(lab))
    at = lab.now
    lab.run(9)
    (fault,) = lab.verdicts()
    assert (fault.fault_kind, fault.decided) == ("transfer_stuck", False)
    assert 5_000_000 <= fault.event_at - at // 1_000 <= 5_500_000
    assert {"rnic:h3/r0", "rnic:h1/r0", CABLE} <= {c.component_id for c in fault.candidates}
    assert fault.ranks == WAITING


@pytest.mark.parametrize(
    ("hang_class", "kind"),
    [
        (HangClass.PROCESS_STOPPED, "rank_stopped"),
        (HangClass.NEVER_LAUNCHED, "rank_never_launched"),
        (HangClass.DESYNCHRONISED, "rank_desynchronised"),
        (HangClass.RANK_MISSING, "rank_missing"),
        (HangClass.SLOW_COMPUTE, "rank_slow"),
    ],
)
def test_a_hang_that_a_rank_caused_is_a_fault_of_the_job(hang_class: HangClass, kind: str) -> None:
    """It opens at once, and is resolved with the hang."""
    lab = SimLab(SHAPE)
    lab.run(12)
    write(lab, hang(lab, **job_class(hang_class)))
    at = lab.now
    lab.run(6)
    write(lab, hang(lab, 2, state=RESOLVED, resolved_at=lab.now // 1_000, **job_class(hang_class)))
    lab.run(4)
    first, last = lab.verdicts()
    assert (first.fault_kind, first.layer, first.component_kind) == (kind, Layer.JOB, "RANK")
    assert first.component_id == "job1|6"
    assert first.event_at - at // 1_000 <= 500_000
    assert (last.state, last.fault_id) == (RESOLVED, first.fault_id)


def test_a_rank_and_a_cable_are_two_faults_that_know_of_each_other() -> None:
    """A process that is stopped says nothing for or against the network."""
    lab = SimLab(SHAPE)
    lab.run(12)
    lab.effects.links[CABLE] = (1.0, 0)
    lab.run(6)
    write(lab, hang(lab, **job_class(HangClass.PROCESS_STOPPED)))
    lab.run(6)
    network, job = sorted(last_of(lab.verdicts()).values(), key=lambda e: e.layer, reverse=True)
    assert (network.layer, job.layer) == (Layer.UNDERLAY, Layer.JOB)
    assert network.ranks == ()
    assert job.related_fault_ids == (network.fault_id,)


def test_a_class_that_changes_changes_the_fault() -> None:
    """It stays one fault while the hang is one."""
    lab = SimLab(SHAPE)
    lab.run(12)
    undecided: dict[str, Any] = {
        "hang_class": HangClass.UNDECIDED,
        "certainty": Certainty.UNDECIDED,
    }
    write(lab, hang(lab, stuck_flows=(), ranks=(), **undecided))
    lab.run(8)
    write(lab, hang(lab, 2, **job_class(HangClass.PROCESS_STOPPED)))
    lab.run(3)
    first, second = lab.verdicts()
    assert (first.fault_kind, first.decided) == ("collective_stuck", False)
    assert (second.fault_kind, second.decided) == ("rank_stopped", True)
    assert (second.fault_id, second.seq) == (first.fault_id, 2)


def test_a_hang_that_outlasts_the_cut_is_the_cuts() -> None:
    """Connections go on a while after the cable is back: nobody is paged a second time."""
    lab = SimLab(SHAPE)
    hang_by_a_cut(lab)
    lab.run(30)
    events = lab.verdicts()
    assert [e.state for e in events if e.state in {OPEN, RESOLVED}] == [OPEN, RESOLVED]


def test_a_hang_that_outlasts_what_probes_show_of_a_port_stays_the_ports() -> None:
    """Routes lead around the port, which is down still; the job's connections are broken."""
    lab = SimLab(SHAPE)
    said = {0: "active", 16: "down", 76: "down", 136: "down", 196: "down"}
    for at_s, text in said.items():
        lab.read_port(CABLE, text, read_s=at_s, at_s=at_s)
    hang_by_a_cut(lab)
    lab.run(200)
    events = lab.verdicts()
    assert {e.fault_kind for e in last_of(events).values()} == {"port_down"}
    assert events[-1].ranks == WAITING
    assert any("job1 hangs" in text for text in events[-1].evidence)


def test_a_fault_elsewhere_is_not_the_hangs() -> None:
    """The cable of another rail: two faults."""
    lab = SimLab(SHAPE)
    lab.run(12)
    lab.effects.links["link:leaf:p0-1--rnic:h0/r1"] = (1.0, 0)
    lab.run(6)
    write(lab, hang(lab))
    lab.run(9)
    found = last_of(lab.verdicts()).values()
    assert sorted(e.fault_kind for e in found) == ["connectivity", "transfer_stuck"]
