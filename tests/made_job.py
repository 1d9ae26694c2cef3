"""A job that a test makes up, as the hang watcher reads it."""

from collections.abc import Mapping, Sequence

from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.hang_watch import HangWatch
from localizer.collectives.rank_batch import BatchHead, RankBatch
from schemas.enums import CollectiveSource, CollectiveState, CommunicatorRole, ProcessState
from schemas.records import CollectiveOp, CollectiveSnapshot, Communicator, Hang
from schemas.records.batches import RankProcess, batch_of
from schemas.units import US_NS

BEGIN_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
# Group, sequence, when it was launched and when it was over (µs), None: it never is.
Made = tuple[str, int, int, int | None]


def watch_job(
    groups: Mapping[str, Sequence[int]],
    ranks: Sequence[Sequence[Made]],
    end_us: int,
    *,
    every_s: int = 1,
    gone: Mapping[int, int] | None = None,
) -> list[Hang]:
    """Return what the watcher tells of a job whose ranks are read each so many seconds, in turns.

    Parameters
    ----------
    groups
        Members by name.
    ranks
        By rank, what it launches.
    end_us
        Until when.
    gone
        By rank when its process ends (µs); it launches nothing afterwards.
    """
    watch, found = HangWatch("lab"), list[Hang]()
    for name, members in groups.items():
        record = Communicator(
            cluster="lab", communicator_id=f"job1|{name}", task_id="job1", communicator=name,
            description="mesh", role=CommunicatorRole.TP, ranks=tuple(members),
            members_missing_reason=None, updated_at=BEGIN_US,
        )  # fmt: skip
        watch.feed(f"job1|{name}", record, BEGIN_US * US_NS)
    known: list[dict[int, bool]] = [{} for _ in ranks]
    for now in range(BEGIN_US, end_us, SECOND_US):
        for rank, mine in enumerate(ranks):
            if (now // SECOND_US + rank) % every_s:
                continue
            states = {
                number: over is not None and over <= now
                for number, (_, _, at, over) in enumerate(mine)
                if at <= now
            }
            ops = tuple(
                operation(number, mine[number], done=done)
                for number, done in states.items()
                if known[rank].get(number) is not done
            )
            known[rank] = states
            ended = gone is not None and now >= gone.get(rank, end_us)
            state = ProcessState.GONE if ended else ProcessState.SLEEPING
            feed(watch, rank, now, ops, size=len(ranks), state=state)
        found += watch.advance(now * US_NS)
    return found


def operation(number: int, what: Made, *, done: bool) -> CollectiveOp:
    """Return an operation of a rank."""
    name, sequence, at, _ = what
    return CollectiveOp(
        communicator=name, operation="all_reduce", sequence=sequence, is_p2p=False,
        record_id=number, op_id=number, sender=None, receiver=None, input_sizes=((64,),),
        output_sizes=((64,),), input_dtypes=("Float",), output_dtypes=("Float",), n_bytes=256,
        launched_at=at, started_at=None, completed_at=None, missing_reason="gloo",
        state=CollectiveState.COMPLETED if done else CollectiveState.SCHEDULED, retired=done,
        timeout_ms=1_800_000, stack=(),
    )  # fmt: skip


def feed(
    watch: HangWatch,
    rank: int,
    now: int,
    ops: tuple[CollectiveOp, ...],
    *,
    size: int,
    state: ProcessState = ProcessState.SLEEPING,
    counted: bool = True,
) -> None:
    """Give the watcher what a rank launched; its process takes 2 % of a core, if `counted`."""
    process = RankProcess(
        cluster="lab", task_id="job1", rank=rank, world_size=size, host_id=f"h{rank}",
        endpoint_ids=(f"e{rank}",), attempt=BEGIN_US, process_state=state,
        cpu_ns=(now - BEGIN_US) * US_NS // 50 if counted else None,
    )  # fmt: skip
    held = CollectiveSnapshot(
        rank=rank, source="", library="gloo", version="2.10", taken_at=now,
        taken_at_missing_reason=None, dropped_before=0, communicators=(), operations=(),
    )  # fmt: skip
    source = CollectiveSource.FLIGHT_RECORDER
    batch = batch_of(held, process, taken_at=now, source=source, whole=False)
    watch.feed(
        batch.rank_id, RankBatch(BatchHead.of(batch), BatchOperations.of_records(ops)), now * US_NS
    )
