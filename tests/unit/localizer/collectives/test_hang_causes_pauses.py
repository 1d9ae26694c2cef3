"""A rank that comes later than the others to the pause that all of them make."""

import pytest

from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.hang_watch import HangWatch
from localizer.collectives.rank_batch import BatchHead, RankBatch
from schemas.enums import (
    CollectiveSource,
    CollectiveState,
    CommunicatorRole,
    FaultLifecycle,
    HangClass,
    ProcessState,
)
from schemas.records import CollectiveOp, CollectiveSnapshot, Communicator, Hang
from schemas.records.batches import RankProcess, batch_of
from schemas.units import SECOND_NS, US_NS

RANKS = 4
GROUPS = {"0": (0, 1), "1": (2, 3), "2": (0, 2), "3": (1, 3)}
BEGIN_US = 1_700_000_000_000_000
STEP_US = 200_000
STEPS = 150
PAUSE_US = 4_000_000
# When all are to pause; ranks 1 and 3 are in two operations for so much longer each.
PAUSE_AT_US = BEGIN_US + STEPS * STEP_US
EACH_US = 3_000_000
HELD_UP_US = 2 * EACH_US


def job(*, stalls: bool) -> list[list[tuple[str, int, int, int | None]]]:
    """Return by rank its operations: group, sequence, when it launched it, and when it was over."""
    found: list[list[tuple[str, int, int, int | None]]] = []
    for rank in range(RANKS):
        first = next(name for name in ("0", "1") if rank in GROUPS[name])
        second = next(name for name in ("2", "3") if rank in GROUPS[name])
        mine: list[tuple[str, int, int, int | None]] = []
        for step in range(STEPS):
            at = BEGIN_US + step * STEP_US
            mine.append((first, step, at, at + 10_000))
            mine.append((second, step, at + 100_000, at + 110_000))
        late = rank in GROUPS["3"]
        over = PAUSE_AT_US
        for number in range(2):
            begun, over = over, over + (EACH_US if late else 10_000)
            mine.append((second, STEPS + number, begun, over))
        after = over + PAUSE_US
        if not late or not stalls:
            ends = PAUSE_AT_US + HELD_UP_US + PAUSE_US + 10_000
            mine.append((first, STEPS, after, None if stalls else ends))
        found.append(mine)
    return found


def told(*, stalls: bool) -> list[Hang]:
    """Let the watcher read each rank each second until 30 s after the pause began."""
    watch, found, ranks = HangWatch("lab"), [], job(stalls=stalls)
    for name, members in GROUPS.items():
        record = Communicator(
            cluster="lab", communicator_id=f"job1|{name}", task_id="job1", communicator=name,
            description="mesh", role=CommunicatorRole.TP, ranks=members,
            members_missing_reason=None, updated_at=BEGIN_US,
        )  # fmt: skip
        watch.feed(f"job1|{name}", record, BEGIN_US * US_NS)
    end = PAUSE_AT_US + (30_000_000 if stalls else 10_000_000)
    known: list[dict[int, bool]] = [{} for _ in ranks]
    for now in range(BEGIN_US, end, 1_000_000):
        for rank, mine in enumerate(ranks):
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
            feed(watch, rank, now, ops)
        found += watch.advance(now * US_NS)
    return found


def operation(number: int, what: tuple[str, int, int, int | None], *, done: bool) -> CollectiveOp:
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


def feed(watch: HangWatch, rank: int, now: int, ops: tuple[CollectiveOp, ...]) -> None:
    """Give the watcher what a rank launched; its process sleeps."""
    process = RankProcess(
        cluster="lab", task_id="job1", rank=rank, world_size=RANKS, host_id=f"h{rank}",
        endpoint_ids=(f"e{rank}",), attempt=BEGIN_US, process_state=ProcessState.SLEEPING,
        cpu_ns=(now - BEGIN_US) * US_NS // 50,
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


def test_who_was_held_up_makes_the_pause_that_the_others_made() -> None:
    """They wait for five seconds in the next operation, longer than ever: nobody is told."""
    assert told(stalls=False) == []


def test_who_idles_for_longer_than_the_others_did_is_told() -> None:
    """Half as long again as they, from when its last operation was over."""
    hang, *_ = told(stalls=True)
    assert hang.hang_class is HangClass.NEVER_LAUNCHED
    assert hang.ranks in {(1,), (3,), (1, 3)}
    idle_ns = hang.event_at * US_NS - (PAUSE_AT_US + HELD_UP_US) * US_NS
    assert idle_ns == pytest.approx(1.5 * PAUSE_US * US_NS, abs=2.5 * SECOND_NS)


def test_a_rank_that_does_nothing_after_the_start_hides_no_hang() -> None:
    """It never leaves its first iteration: that of the others is over all the same."""
    watch, found = HangWatch("lab"), []
    stalls_at = BEGIN_US + 60_000_000
    for now in range(BEGIN_US, stalls_at + 20_000_000, 1_000_000):
        for rank in range(RANKS):
            launches = range(max(BEGIN_US, now - 1_000_000 + STEP_US), now + 1, STEP_US)
            ops = []
            for at in launches:
                if at > stalls_at or (at == stalls_at and rank == 2):
                    break
                what = "0", (at - BEGIN_US) // STEP_US, at, None
                number = (at - BEGIN_US) // STEP_US
                ops.append(operation(number, what, done=at < stalls_at))
            feed(watch, rank, now, tuple(ops))
        started = BEGIN_US + 1_000_000
        idle = (operation(0, ("start", 0, started, None), done=True),) if now == started else ()
        feed(watch, RANKS, now, idle)
        found += watch.advance(now * US_NS)
    (hang,) = [h for h in found if h.state is FaultLifecycle.OPEN]
    assert (hang.hang_class, hang.ranks) == (HangClass.NEVER_LAUNCHED, (2,))
    assert hang.event_at < stalls_at + 8_000_000
