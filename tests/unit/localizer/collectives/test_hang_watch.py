"""Which jobs hang, from batches made of the dumps of real jobs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localizer.collectives.hang_watch import HangWatch
from localizer.collectives.job_state import JobState
from localizer.collectives.usual_waits import READ_ONCE_US, READ_TWICE_US
from schemas.bounds import violation
from schemas.codec import to_datum
from schemas.enums import Certainty, CollectiveState, FaultLifecycle, HangClass, ProcessState
from schemas.records import CollectiveBatch, CollectiveSnapshot, Communicator, Hang
from schemas.topics import COLLECTIVE_COMM, COLLECTIVE_OP
from schemas.units import SECOND_NS, US_NS, us_to_ns
from tests.collective_batches import CLUSTER, TASK, Arrival, Job, arrivals, moved, seconds, socket

OPEN, RESOLVED = FaultLifecycle.OPEN, FaultLifecycle.RESOLVED
STUCK: dict[str, Any] = {
    "unacked_bytes": 65_536, "retransmits": 5, "backoff": 4, "stalled_ns": 5 * SECOND_NS,
}  # fmt: skip


def watched(log: list[Arrival], watch: HangWatch | None = None) -> tuple[HangWatch, list[Hang]]:
    """Feed records and decide each second; return the watch and its transitions."""
    watch = HangWatch(CLUSTER) if watch is None else watch
    found = []
    for until_ns, records in seconds(log):
        for arrival in records:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
        found += watch.advance(until_ns)
    return watch, found


def last_launch_us(job: Job) -> int:
    """Return when any rank launched something for the last time."""
    return max(o.launched_at or 0 for s in job.snapshots.values() for o in s.operations)


def processes(job: Job, name: str) -> dict[int, ProcessState]:
    """Return what the processes of ranks without a dump do."""
    state = ProcessState.STOPPED if name == "stopped" else ProcessState.GONE
    return {rank: state for rank in range(job.world_size) if rank not in job.snapshots}


@pytest.mark.parametrize(
    ("name", "hang_class"),
    [
        ("stalled", HangClass.NEVER_LAUNCHED),
        ("stalled-of-8", HangClass.NEVER_LAUNCHED),
        ("stopped", HangClass.PROCESS_STOPPED),
        ("exited", HangClass.RANK_MISSING),
        ("skipped", HangClass.RANK_MISSING),
        ("size", HangClass.DESYNCHRONISED),
        ("order", HangClass.DESYNCHRONISED),
        ("dtype", HangClass.DESYNCHRONISED),
        ("type", HangClass.DESYNCHRONISED),
        ("splits", HangClass.DESYNCHRONISED),
    ],
)
def test_a_job_that_hangs_has_one_hang_of_its_class(
    name: str, hang_class: HangClass, tmp_path: Path
) -> None:
    """Whose fault it is stands in it, and it opens within seconds of the last launch."""
    job = Job.load(name, tmp_path)
    _, (hang,) = watched(arrivals(job, states=processes(job, name)))
    assert (hang.state, hang.hang_class) == (OPEN, hang_class)
    assert hang.ranks == tuple(job.truth["culprits"])
    assert hang.event_at - last_launch_us(job) < 8_000_000
    assert hang.onset_at <= last_launch_us(job) + 1_000_000
    assert set(hang.waiting_ranks).isdisjoint(hang.ranks) or hang_class is HangClass.DESYNCHRONISED


@pytest.mark.parametrize("name", ["stopped", "type"])
def test_what_two_records_or_the_kernel_say_needs_no_usual_wait(name: str, tmp_path: Path) -> None:
    """A process that is stopped, or another operation in its place: after one reading, and once."""
    job = Job.load(name, tmp_path)
    _, (hang,) = watched(arrivals(job, states=processes(job, name), longer_us=20_000_000))
    assert READ_ONCE_US < hang.waited_ns // US_NS < READ_TWICE_US


def test_ranks_that_end_one_after_another_are_not_waited_for_at_once(tmp_path: Path) -> None:
    """A job that somebody ends is no hang while the last of its ranks are still there."""
    job = Job.load("exited", tmp_path)
    log = arrivals(job, states=processes(job, "exited"))
    _, (hang,) = watched(log)
    assert hang.waited_ns // US_NS > READ_TWICE_US


@pytest.mark.parametrize("name", ["healthy", "pause", "slow"])
def test_a_job_that_goes_on_has_none(name: str, tmp_path: Path) -> None:
    """Nor has one that makes a pause in which the ranks wait for one of them."""
    job = Job.load(name, tmp_path)
    assert watched(arrivals(job, longer_us=0))[1] == []


def test_clocks_of_hosts_are_never_compared(tmp_path: Path) -> None:
    """A host that is 90 s ahead, another one 90 s behind: the same hang."""
    job = Job.load("stalled", tmp_path)
    _, (plain,) = watched(arrivals(job))
    skew = {0: 90_000_000, 1: 90_000_000, 2: -90_000_000, 3: -90_000_000}
    _, (skewed,) = watched(arrivals(job, skew_us=skew))
    assert skewed == plain


def test_bytes_that_nobody_acknowledges_are_the_network(tmp_path: Path) -> None:
    """All ranks launched; what the stuck sockets have in common is named, with its endpoints."""
    job = cable_cut(tmp_path)
    sockets = {
        0: (socket(0, 2, **STUCK), socket(0, 1)), 2: (socket(2, 0, **STUCK), socket(2, 3)),
        1: (socket(1, 3), socket(1, 0)), 3: (socket(3, 1), socket(3, 2)),
    }  # fmt: skip
    _, (hang,) = watched(arrivals(job, sockets=sockets))
    assert (hang.hang_class, hang.certainty) == (HangClass.NETWORK, Certainty.SURE)
    assert hang.ranks == (0, 2)
    assert hang.endpoint_ids == ("job1-w0/r0", "job1-w1/r0")
    assert {(f.src_rank, f.dst_rank) for f in hang.stuck_flows} == {(0, 2), (2, 0)}
    assert {f.src_endpoint_id for f in hang.stuck_flows} == set(hang.endpoint_ids)


def test_without_sockets_what_all_launched_is_undecided(tmp_path: Path) -> None:
    """The network is no default."""
    _, (hang,) = watched(arrivals(cable_cut(tmp_path)))
    assert (hang.hang_class, hang.certainty) == (HangClass.UNDECIDED, Certainty.UNDECIDED)
    assert hang.ranks == ()
    assert any("sockets of ranks" in text for text in hang.evidence)


def test_sockets_that_move_are_not_the_network(tmp_path: Path) -> None:
    """Bytes are outstanding at any moment of a transfer."""
    job = cable_cut(tmp_path)
    moving = {r: (socket(r, r ^ 2, unacked_bytes=9_000),) for r in range(4)}
    _, (hang,) = watched(arrivals(job, sockets=moving))
    assert hang.hang_class is HangClass.UNDECIDED


def test_a_process_that_uses_no_time_is_stopped(tmp_path: Path) -> None:
    """Though the kernel does not call it so, as in a frozen cgroup."""
    job = cable_cut(tmp_path)
    log = []
    for arrival in arrivals(job):
        record = arrival.record
        if getattr(record, "rank", None) == 2 and hasattr(record, "cpu_ns"):
            record = _with(record, cpu_ns=1_000)
        log.append(Arrival(arrival.at_ns, arrival.key, record))
    _, (hang,) = watched(log)
    assert (hang.hang_class, hang.certainty) == (HangClass.PROCESS_STOPPED, Certainty.LIKELY)
    assert hang.ranks == (2,)


def test_a_rank_that_works_may_let_the_others_wait(tmp_path: Path) -> None:
    """A checkpoint takes as long as it takes: a tenth of what the program allows."""
    job = Job.load("stalled", tmp_path)
    log = [
        Arrival(a.at_ns, a.key, _busy(a.record, a.at_ns))
        for a in arrivals(job, longer_us=30_000_000)
    ]
    assert watched(log)[1] == []
    long = arrivals(job, longer_us=200_000_000)
    _, (hang,) = watched([Arrival(a.at_ns, a.key, _busy(a.record, a.at_ns)) for a in long])
    assert hang.ranks == (1,)
    # gloo gives an operation up after half an hour.
    assert hang.waited_ns > 179 * SECOND_NS


def test_a_hang_that_ends_is_resolved_once(tmp_path: Path) -> None:
    """The job goes on; what waited has ended. The same again soon is the same hang."""
    job = Job.load("stalled", tmp_path)
    watch, found = watched(arrivals(job))
    later = Job.load("healthy", tmp_path / "other")
    log = arrivals(later, longer_us=0)
    shift = us_to_ns(job.end_us + 8_000_000) - log[0].at_ns
    _, more = watched([moved(a, shift) for a in log], watch)
    assert [h.state for h in [*found, *more]] == [OPEN, RESOLVED]
    assert more[0].hang_id == found[0].hang_id
    assert more[0].seq == found[0].seq + 1
    assert watch.open_hangs == []


def test_a_job_of_which_nothing_is_heard_has_ended(tmp_path: Path) -> None:
    """Other jobs move time on."""
    job = Job.load("stalled", tmp_path)
    log = arrivals(job)
    other = Job.load("healthy", tmp_path / "other")
    shift = log[-1].at_ns - other.end_us * 1_000 + 200 * SECOND_NS
    rest = [moved(a, shift) for a in arrivals(other, longer_us=0, task="job2")]
    _, found = watched([*log, *rest])
    assert [h.state for h in found] == [OPEN, RESOLVED]
    assert "nothing is heard" in found[1].summary


def test_a_watch_that_starts_anew_tells_nothing_twice(tmp_path: Path) -> None:
    """What was published is known; the rest comes from the log."""
    job = Job.load("stalled", tmp_path)
    log = arrivals(job, longer_us=20_000_000)
    _, whole = watched(log)
    for cut in range(0, len(log), 11):
        _, first = watched(log[:cut]) if cut else (None, [])
        again = HangWatch(CLUSTER, first)
        for arrival in log[:cut]:
            again.feed(arrival.key, arrival.record, arrival.at_ns)
        _, second = watched(log[cut:], again)
        states = {h.hang_id: h for h in [*first, *second]}
        assert [h.state for h in [*first, *second]] == [OPEN], cut
        assert states.keys() == {h.hang_id for h in whole}


def test_two_jobs_with_the_same_groups_are_two(tmp_path: Path) -> None:
    """One hangs, the other one goes on, or ends."""
    bad, good = Job.load("stalled", tmp_path), Job.load("healthy", tmp_path / "other")
    log = arrivals(bad)
    shift = log[0].at_ns - arrivals(good)[0].at_ns
    both = [*log, *(moved(a, shift) for a in arrivals(good, longer_us=0, task="job2"))]
    _, found = watched(sorted(both, key=lambda a: a.at_ns))
    assert [h.task_id for h in found] == [TASK]


def cable_cut(folder: Path) -> Job:
    """Return a job in which all ranks of one group launched what does not end."""
    job = Job.load("healthy", folder)
    cut: dict[int, int] = {}
    snapshots = {}
    group = next(v.communicator for v in job.snapshots[0].communicators if v.description == "dp")
    for rank, held in job.snapshots.items():
        own = [o for o in held.operations if o.communicator == group]
        # The others stop at the last operation that does not need this group.
        last = (
            own[-4].record_id if own else min(cut.values(), default=held.operations[-9].record_id)
        )
        cut[rank] = last
        kept = [o for o in held.operations if o.record_id <= last]
        if own:
            kept[-1] = kept[-1]._replace(state=CollectiveState.SCHEDULED, retired=False)
        snapshots[rank] = replace(held, operations=tuple(kept))
    return Job(snapshots, job.truth, job.world_size, job.end_us)


def _with(record: Any, **changes: Any) -> Any:
    return replace(record, **changes)


def _busy(record: Any, at_ns: int) -> Any:
    busy = getattr(record, "rank", None) == 1 and hasattr(record, "cpu_ns")
    return _with(record, cpu_ns=at_ns) if busy else record


def test_a_host_whose_clock_is_ahead_has_ranks_like_any_other(tmp_path: Path) -> None:
    """Its records are no dead letters: its times are compared with each other only."""
    job = Job.load("stalled", tmp_path)
    log = arrivals(job, skew_us={1: 90_000_000, 2: -90_000_000})
    names = {CollectiveBatch: COLLECTIVE_OP.name, Communicator: COLLECTIVE_COMM.name}
    assert {violation(names[type(a.record)], to_datum(a.record), a.at_ns) for a in log} == {None}
    _, (hang,) = watched(log)
    assert hang.ranks == tuple(job.truth["culprits"])


def test_a_size_that_nobody_could_have_changes_nothing(tmp_path: Path) -> None:
    """Any rank may say how many there are: of ranks that are never heard nothing follows."""
    log = arrivals(Job.load("size", tmp_path))
    claimed = [
        replace(a, record=replace(a.record, world_size=131_072))
        if isinstance(a.record, CollectiveBatch)
        else a
        for a in log
    ]
    _, right = watched(log)
    _, found = watched(claimed)
    assert [(h.hang_class, h.ranks) for h in found] == [(h.hang_class, h.ranks) for h in right]
    assert right


def test_a_job_that_no_analysis_copes_with_does_not_end_the_watch_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told and left alone for a while; the hang of the other one is told as ever."""
    job = Job.load("stalled", tmp_path)
    log = sorted(
        [*arrivals(job), *arrivals(job, task="strange")], key=lambda arrival: arrival.at_ns
    )
    usual = JobState.snapshots

    def snapshots(
        state: JobState, first: Mapping[int, int] | None = None
    ) -> list[CollectiveSnapshot]:
        if state.task_id == "strange":
            raise KeyError("sequence")
        return usual(state, first)

    monkeypatch.setattr(JobState, "snapshots", snapshots)
    watch, hangs = watched(log)
    assert {hang.task_id for hang in hangs} == {TASK}
    assert watch.failures[0] == ("strange", "KeyError('sequence')")
