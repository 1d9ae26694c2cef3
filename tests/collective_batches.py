"""Dumps of real jobs as the batches that a collector would have sent while they were made.

gloo records no end of an operation: one that is done ended, at the latest, when its rank launched
the next one. What a rank's process did follows from what was wrong with the job.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ops.jobs.dumps import read_dumps
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.ids import communicator_id, rank_id
from schemas.records import (
    CollectiveBatch,
    CollectiveOp,
    CollectiveSnapshot,
    RankSocket,
    SocketBatch,
)
from schemas.records.batches import RankProcess, batch_of, communicators_of
from schemas.units import MS_NS, SECOND_NS, US_NS
from tests.collective_dumps import unpack

CLUSTER: Final = "lab"
TASK: Final = "job1"
PERIOD_US: Final = 2_000_000
# Every 30 s a batch is whole.
WHOLE_EACH: Final = 15
# Readings of ranks do not fall together.
APART_US: Final = 37_000
ATTEMPT: Final = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record, its topic's key, and when it reached the broker (ns)."""

    at_ns: int
    key: str
    record: Any


@dataclass(frozen=True, slots=True)
class Job:
    """A kept job: the snapshots of its ranks, and the truth."""

    snapshots: Mapping[int, CollectiveSnapshot]
    truth: Mapping[str, Any]
    world_size: int
    end_us: int

    @classmethod
    def load(cls, name: str, folder: Path) -> "Job":
        """Unpack and read the dumps of a case."""
        case = unpack(name, folder)
        found = {s.rank: s for s in read_dumps(case.folder).snapshots}
        end = max(s.taken_at for s in found.values() if s.taken_at is not None)
        size = int(case.truth.get("ranks", max(found) + 1))
        return cls(found, case.truth, size, end)


def arrivals(
    job: Job,
    *,
    states: Mapping[int, ProcessState] | None = None,
    sockets: Mapping[int, tuple[RankSocket, ...]] | None = None,
    skew_us: Mapping[int, int] | None = None,
    longer_us: int = 6_000_000,
    task: str = TASK,
) -> list[Arrival]:
    """Return what the collectors of a job's ranks would have sent, in order of arrival.

    Parameters
    ----------
    states
        Processes that do something else than sleep, from the last launch of the job on.
    sockets
        Sockets of ranks, from then on.
    skew_us
        How far a rank's clock is ahead.
    longer_us
        How long the job goes on standing where its dumps end.
    """
    found = []
    begin = min(o.launched_at or 0 for s in job.snapshots.values() for o in s.operations[:1])
    # The last launch of any rank: what is wrong is wrong since then.
    wrong = max(o.launched_at or 0 for s in job.snapshots.values() for o in s.operations)
    for rank in range(job.world_size):
        skew = (skew_us or {}).get(rank, 0)
        held = job.snapshots.get(rank)
        seen: dict[int, CollectiveOp] = {}
        now, number = begin + rank * APART_US, 0
        while now < job.end_us + longer_us:
            state = ProcessState.SLEEPING if now <= wrong else (states or {}).get(rank)
            process = _process(task, rank, job.world_size, state or ProcessState.SLEEPING, number)
            at_ns = now * US_NS
            if held is not None:
                then = _at(held, now)
                if number == 0:
                    for record in communicators_of(held, process, updated_at=now + skew):
                        key = communicator_id(task, record.communicator)
                        found.append(Arrival(at_ns, key, record))
                changed = [o for o in then if seen.get(o.record_id) != o]
                seen.update((o.record_id, o) for o in changed)
                snapshot = replace(
                    held, taken_at=now + skew, taken_at_missing_reason=None,
                    operations=tuple(_shifted(o, skew) for o in then),
                )  # fmt: skip
                # As a collector does: all that waits, and the last of each communicator.
                whole = number % WHOLE_EACH == WHOLE_EACH - 1
                sent = [_shifted(o, skew) for o in (then if whole else changed)]
            else:
                snapshot, whole = _empty(rank), False
                sent = []
            batch = batch_of(
                snapshot, process, taken_at=now + skew,
                source=CollectiveSource.FLIGHT_RECORDER, operations=sent, whole=whole,
            )  # fmt: skip
            found.append(Arrival(at_ns, rank_id(task, rank), batch))
            if now > wrong and sockets is not None:
                found.append(
                    Arrival(at_ns, rank_id(task, rank), _sockets(task, rank, now, sockets))
                )
            if state is ProcessState.GONE:
                break
            now, number = now + PERIOD_US, number + 1
    return sorted(found, key=lambda a: a.at_ns)


def _at(held: CollectiveSnapshot, now: int) -> list[CollectiveOp]:
    """Return the operations of a rank as they stood at a time."""
    found = []
    for place, operation in enumerate(held.operations):
        if (operation.launched_at or 0) > now:
            break
        after = held.operations[place + 1 : place + 2]
        ended = after[0].launched_at if after else (operation.launched_at or 0)
        waits = operation.state is CollectiveState.COMPLETED and (ended or 0) > now
        found.append(
            operation._replace(state=CollectiveState.SCHEDULED, retired=False)
            if waits
            else operation
        )
    return found


def _shifted(operation: CollectiveOp, skew: int) -> CollectiveOp:
    if not skew or operation.launched_at is None:
        return operation
    return operation._replace(launched_at=operation.launched_at + skew)


def _process(task: str, rank: int, size: int, state: ProcessState, number: int) -> RankProcess:
    busy = state not in {ProcessState.STOPPED, ProcessState.GONE}
    return RankProcess(
        cluster=CLUSTER, task_id=task, rank=rank, world_size=size, host_id=f"host:h{rank // 2}",
        endpoint_ids=(f"{task}-w{rank // 2}/r{rank % 2}",), attempt=ATTEMPT, pid=1000 + rank,
        process_state=state, cpu_ns=(20 * MS_NS * number) if busy else 7 * MS_NS,
    )  # fmt: skip


def _empty(rank: int) -> CollectiveSnapshot:
    return CollectiveSnapshot(
        rank=rank, source="", library=None, version="", taken_at=None,
        taken_at_missing_reason="no dump", dropped_before=0, communicators=(), operations=(),
    )  # fmt: skip


def _sockets(
    task: str, rank: int, now: int, sockets: Mapping[int, tuple[RankSocket, ...]]
) -> SocketBatch:
    return SocketBatch(
        cluster=CLUSTER, rank_id=rank_id(task, rank), task_id=task, rank=rank,
        host_id=f"host:h{rank // 2}", taken_at=now, sockets=sockets.get(rank, ()),
    )  # fmt: skip


def bare_batch(task: str, rank: int) -> CollectiveBatch:
    """Return what a collector tells of a rank that recorded nothing."""
    process = RankProcess(
        cluster=CLUSTER, task_id=task, rank=rank, host_id="host:h0", attempt=ATTEMPT,
        process_state=ProcessState.RUNNING,
    )  # fmt: skip
    return batch_of(
        _empty(rank), process, taken_at=ATTEMPT, source=CollectiveSource.FLIGHT_RECORDER
    )


def socket(rank: int, peer: int, **counted: Any) -> RankSocket:
    """Return a socket between two ranks; change what it counts by name."""
    numbers = {
        "queued_bytes": 0, "unacked_bytes": 0, "unread_bytes": 0, "sent_bytes": 1_000,
        "acked_bytes": 1_000, "received_bytes": 1_000, "retransmits": 0, "backoff": 0,
        "stalled_ns": 0, "rtt_ns": 200_000,
    }  # fmt: skip
    low, high = sorted((rank, peer))
    ports = {low: 40_000 + 100 * low + high, high: 50_000 + 100 * low + high}
    return RankSocket(
        protocol="tcp", local_address=f"10.0.0.{rank}", local_port=ports[rank],
        peer_address=f"10.0.0.{peer}", peer_port=ports[peer], **{**numbers, **counted},
    )  # fmt: skip


def seconds(records: list[Arrival]) -> Iterator[tuple[int, list[Arrival]]]:
    """Yield the records second by second, with the end of each (ns)."""
    until = (records[0].at_ns // SECOND_NS + 1) * SECOND_NS
    pending: list[Arrival] = []
    for arrival in records:
        while arrival.at_ns >= until:
            yield until, pending
            pending, until = [], until + SECOND_NS
        pending.append(arrival)
    yield until, pending


def moved(arrival: Arrival, by_ns: int) -> Arrival:
    """Return a record of another time: all its times are later by as much."""
    record, by_us = arrival.record, by_ns // 1_000
    if hasattr(record, "operations"):
        operations = tuple(
            replace(o, launched_at=None if o.launched_at is None else o.launched_at + by_us)
            for o in record.operations
        )
        recorded = None if record.recorded_at is None else record.recorded_at + by_us
        record = replace(
            record, taken_at=record.taken_at + by_us, recorded_at=recorded, operations=operations
        )
    return Arrival(arrival.at_ns + by_ns, arrival.key, record)
