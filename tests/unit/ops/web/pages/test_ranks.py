"""Where the ranks of a job stand: rows, folds, who waits for whom, and how large it may become."""

import json
from dataclasses import replace
from pathlib import Path

from localizer.collectives.hang_watch import HangWatch
from ops.view.cluster import ClusterView
from ops.view.job_ranks import JobNow
from ops.web.pages.page import Document, Wanted
from ops.web.pages.ranks import MAX_ROWS, RANKS, document, wanted
from schemas import topics as t
from schemas.enums import CollectiveSource, CollectiveState, CommunicatorRole, ProcessState
from schemas.ids import rank_id
from schemas.records import CollectiveOp, CollectiveSnapshot, Communicator, Hang
from schemas.records.batches import RankProcess, batch_of
from schemas.records.jobs import CollectiveBatch
from schemas.units import MS_NS, US_PER_MS
from tests.collective_batches import CLUSTER, Job, arrivals, seconds
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, fault, task

TASK = "job-1"


def looked_at(*jobs: JobNow) -> ClusterView:
    """Return a view with a job whose ranks somebody looks at, and a fault of it."""
    view, log = ClusterView(), Log()
    told = fault(component_id=rank_id(TASK, 1), ranks=(rank_id(TASK, 0),))
    for seen in log.all([(t.TASK, task()), (t.FAULT_EVENT, told)]):
        view.apply(seen)
    view.ranks.put(jobs)
    return view


def hung(folder: Path) -> tuple[JobNow, int]:
    """Return a job of four ranks whose rank 1 never launches, and the time (ms)."""
    log = arrivals(Job.load("stalled", folder), task=TASK)
    watch, now = HangWatch(CLUSTER), JobNow.of(TASK)
    for until_ns, records in seconds(log):
        for arrival in records:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
            now.apply(arrival.record, arrival.at_ns)
        for hang in watch.advance(until_ns):
            now.apply(hang, until_ns)
    return now, log[-1].at_ns // MS_NS


def rows(found: Document) -> list[Document]:
    """Return the rows in their order."""
    return sorted(found["rows"].values(), key=lambda row: row["order"])


def test_a_small_job_has_a_row_for_each_rank(tmp_path: Path) -> None:
    """In their order, the culprit marked; those who wait say in what, how long, for whom."""
    now, now_ms = hung(tmp_path)
    found = document(looked_at(now), {}, now_ms)
    assert (found["heard"], found["world_size"]) == (4, 4)
    assert [row["ranks"] for row in rows(found)] == [f"rank {n}" for n in range(4)]
    assert [bool(row.get("culprit")) for row in rows(found)] == [False, True, False, False]
    assert found["columns"] == ["default_pg", "dp", "tp"]
    waits = [cell for row in rows(found) for cell in row["cells"].values() if "waits_in" in cell]
    assert len(waits) == 3
    assert all(cell["waited_s"] > 4 for cell in waits)
    assert "rank 1" in {cell.get("for") for cell in waits}
    hang = found["hang"]
    assert (hang["open"], hang["class"], hang["culprits"]) == (True, "NEVER_LAUNCHED", "rank 1")
    assert hang["waiting"] == "ranks 0, 2–3"
    assert hang["faults"] == ["f-1"]


def test_nobody_is_looked_at_without_a_reason() -> None:
    """What nobody read yet, and a job of which nothing is told, say why."""
    view = looked_at()
    assert document(view, {}, START_MS) == {"rows": {}, "missing": "nobody reads them"}
    view.ranks.put([JobNow.of(TASK)])
    view.ranks.missing = "gone"
    assert document(view, {}, START_MS) == {"rows": {}, "missing": "gone"}
    assert wanted(view, {}) == Wanted(jobs=(TASK,))


def operation(group: str, sequence: int, *, waits: bool, number: int) -> CollectiveOp:
    """Return an all-reduce that was launched ten seconds ago."""
    return CollectiveOp(
        communicator=group, operation="all_reduce", sequence=sequence, is_p2p=False,
        record_id=number, op_id=None, sender=None, receiver=None, input_sizes=((8,),),
        output_sizes=((8,),), input_dtypes=("Float",), output_dtypes=("Float",), n_bytes=32,
        launched_at=START_MS * US_PER_MS - 10_000_000, started_at=None, completed_at=None,
        missing_reason="not recorded by this library",
        state=CollectiveState.SCHEDULED if waits else CollectiveState.COMPLETED,
        retired=not waits, timeout_ms=None, stack=(),
    )  # fmt: skip


def batch(rank: int, size: int, operations: tuple[CollectiveOp, ...]) -> CollectiveBatch:
    """Return what a collector tells of a rank now; eight ranks are on a host."""
    at_us = START_MS * US_PER_MS
    held = CollectiveSnapshot(
        rank=rank, source="", library="nccl", version="2", taken_at=at_us,
        taken_at_missing_reason=None, dropped_before=0, communicators=(), operations=operations,
    )  # fmt: skip
    process = RankProcess(
        cluster=CLUSTER, task_id=TASK, rank=rank, world_size=size, host_id=f"host:h{rank // 8:04d}",
        endpoint_ids=(), attempt=1, pid=rank, process_state=ProcessState.SLEEPING, cpu_ns=None,
    )  # fmt: skip
    source = CollectiveSource.FLIGHT_RECORDER
    return batch_of(held, process, taken_at=at_us, source=source, whole=True)


def large(size: int, *, each_differs: bool = False) -> JobNow:
    """Return a job of tensor groups of eight and data groups across; rank 9 is behind in its own.

    With `each_differs` every rank waits elsewhere.
    """
    now = JobNow.of(TASK)
    for rank in range(size):
        tensor, data = f"tp{rank // 8}", f"dp{rank % 8}"
        behind = rank == 9
        at = 100 + rank if each_differs else 100
        operations = (
            operation(tensor, 500 - rank % 3, waits=False, number=1),
            operation(data, at - behind, waits=not behind, number=2),
        )
        now.apply(batch(rank, size, operations), START_MS * MS_NS)
    for name in {f"tp{r // 8}" for r in range(size)} | {f"dp{r % 8}" for r in range(size)}:
        number = int(name[2:])
        ranks = range(number * 8, number * 8 + 8) if name[0] == "t" else range(number, size, 8)
        now.apply(
            Communicator(
                cluster=CLUSTER, communicator_id=f"{TASK}|{name}", task_id=TASK,
                communicator=name, description=name[:2], role=CommunicatorRole.UNKNOWN,
                ranks=tuple(ranks), updated_at=0,
            ),
            START_MS * MS_NS,
        )  # fmt: skip
    return now


def test_ranks_at_the_same_place_share_a_row() -> None:
    """A thousand ranks are three places: who waits for rank 9, who waits elsewhere, rank 9."""
    found = document(looked_at(large(1_024)), {}, START_MS)
    assert found["rows_left"] == 0
    told = {row["ranks"][:20]: row for row in rows(found)}
    assert sum(row["count"] for row in told.values()) == 1_024
    assert len(told) == 3
    behind = next(row for row in told.values() if row["count"] == 1)
    assert behind["ranks"] == "rank 9"
    waits = {row["count"]: row["cells"]["dp"] for row in told.values() if row["count"] > 1}
    # The data group of rank 9, and the seven others.
    assert sorted(waits) == [127, 7 * 128]
    assert waits[127]["for"] == "rank 9"
    assert waits[7 * 128]["all_launched"]
    # What goes on is alike, however far it came.
    assert waits[127]["waits_at"] == 100
    assert behind["cells"]["tp"]["launched"] == "500"
    assert next(iter(told.values()))["cells"]["tp"]["launched"] == "498–500"


def test_the_page_of_the_largest_job_is_no_megabyte() -> None:
    """Also where every rank stands elsewhere; what is left out is counted and found by host."""
    view = looked_at(large(10_240, each_differs=True))
    found = document(view, {}, START_MS)
    assert len(found["rows"]) == MAX_ROWS
    assert found["rows_left"] == found["ranks_left"] == 10_240 - MAX_ROWS
    assert len(json.dumps(found)) < 150_000
    own = document(view, {"host": "h0001"}, START_MS)
    assert [row["ranks"] for row in rows(own)] == [f"rank {n}" for n in range(8, 16)]


def test_hostile_texts_are_cut() -> None:
    """Names of any length, of as many communicators as somebody invents."""
    now = JobNow.of(TASK)
    operations = tuple(
        operation(f"{n}" + "x" * 1_000, 1, waits=True, number=n) for n in range(2_000)
    )
    for rank in range(MAX_ROWS):
        one = batch(rank, MAX_ROWS, operations)
        one = replace(one, host_id="h" * 1_000, missing_reason="r" * 9_999)
        now.apply(one, START_MS * MS_NS)
    found = document(looked_at(now), {}, START_MS)
    assert len(found["columns"]) == 12
    assert found["columns_left"] == 2_000 - 12
    assert len(json.dumps(found)) < 500_000


def test_a_hang_that_is_over_marks_nobody(tmp_path: Path) -> None:
    """And says that it is over."""
    now, now_ms = hung(tmp_path)
    assert isinstance(now.hang, Hang)
    now.hang = replace(now.hang, state=now.hang.state.RESOLVED)
    found = document(looked_at(now), {}, now_ms)
    assert not found["hang"]["open"]
    assert not any(row.get("culprit") for row in rows(found))


def test_the_page_is_read_on_demand() -> None:
    """Only of the job that is shown."""
    assert RANKS.wanted is not None
    assert RANKS.wanted(looked_at(), {"task": TASK}).jobs == (TASK,)
