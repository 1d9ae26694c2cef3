"""What the collectors of a job's hosts publish: operations, processes and connections of ranks.

A helper in each process writes dumps now and then, and says in between that the last one still
holds all (`probers/collector/torch_dump.py`); a collector on each host looks every two seconds.
Each host has a clock of its own, and a way to the broker that takes a while.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from arena.training.engine import Engine, Op, RankRun
from arena.training.program import TYPE, Does
from arena.training.shape import GLOO, TIMEOUT_MS, JobShape
from arena.training.sockets import Connections
from arena.training.troubles import Trouble
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.ids import communicator_id, rank_id
from schemas.records import (
    CollectiveBatch,
    CollectiveOp,
    CollectiveSnapshot,
    Communicator,
    CommunicatorProgress,
    SocketBatch,
)
from schemas.records.batches import RankProcess, batch_of, communicators_of
from schemas.units import US_NS, US_PER_S
from schemas.version import VERSION

LOOK_US: Final = 2 * US_PER_S
LATE_US: Final = 100_000
SNAPSHOT_US: Final = 30 * US_PER_S
GONE_TOLD_US: Final = 30 * US_PER_S
STALE_US: Final = 10 * US_PER_S
# The helper's times, and what PyTorch takes to write an operation.
CHECK_US: Final = 500_000
STILL_CHECKS: Final = 2
REPEAT_US: Final = 60 * US_PER_S
LEAST_US: Final = 2 * US_PER_S
MOST_US: Final = 6 * US_PER_S
WRITE_US: Final = 25
SHARE: Final = 0.002
# The watchdog of NCCL looks ten times a second what has begun and what is through.
WATCHDOG_US: Final = 100_000
# Shares of a core: of a process that waits, and of one that works or spins.
IDLE: Final = 0.02
BUSY: Final = 1.0
NOT_RECORDED: Final = "not recorded by this library"
NOT_YET: Final = "not seen to happen"
LEFT_THE_RING: Final = "the ring lost it before it was seen to end"
# Time spent saving in which the kernel is seen to wait for the disk.
DISK_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Read:
    """A record and when it reaches the broker (true time, µs).

    `operations` are those of a batch, which itself holds them only where the batch is whole.
    """

    at_us: int
    key: str
    record: CollectiveBatch | SocketBatch | Communicator
    operations: tuple[CollectiveOp, ...] = ()


class _Helper:
    """What a rank's helper has written: dumps, and that it lives."""

    __slots__ = ("dumped_us", "next_us", "recorded_us", "still", "tick_us")

    def __init__(self, first_us: int) -> None:
        self.tick_us = first_us
        self.next_us = first_us
        self.still = 0
        self.dumped_us: int | None = None
        self.recorded_us: int | None = None


class _Told:
    """What a collector has told of a rank."""

    __slots__ = ("dropped", "gone_us", "last", "pending", "states", "whole_us")

    def __init__(self, whole_us: int) -> None:
        self.whole_us = whole_us
        self.dropped = 0
        self.gone_us: int | None = None
        # Not told to the end, by number.
        self.pending: dict[int, Op] = {}
        self.states: dict[int, CollectiveState] = {}
        self.last: dict[tuple[int, bool], CollectiveOp] = {}


class Collectors:
    """The collectors of all hosts of a job, for one attempt.

    Parameters
    ----------
    epoch_us
        The job's begin, microseconds since the epoch.
    clocks_us
        By host: how far its clock is ahead.
    attempt_us
        When the attempt's processes were started, true time.
    encoded
        Whether batches hold their operations, as topics do. Without, they are beside them, which
        spares most of the time.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        cluster: str,
        epoch_us: int,
        clocks_us: tuple[int, ...],
        seed: int,
        attempt_us: int = 0,
        encoded: bool = False,
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._epoch_us = epoch_us
        self._clocks_us = clocks_us
        self._attempt_us = attempt_us
        self._encoded = encoded
        self._connections = Connections(engine)
        shape = engine.shape
        self._random = Random(f"{seed}/collectors/{attempt_us}")  # noqa: S311 - a seed decides
        self._next_us = [
            attempt_us + self._random.randrange(LOOK_US) for _ in range(shape.hosts)
        ]  # fmt: skip
        self._helpers = [
            _Helper(attempt_us + self._random.randrange(CHECK_US)) for _ in range(shape.ranks)
        ]
        self._told = [
            _Told(attempt_us + self._random.randrange(SNAPSHOT_US)) for _ in range(shape.ranks)
        ]
        self._groups = tuple(
            CommunicatorProgress(
                communicator=group.name, description=group.description,
                ranks=None if shape.library == GLOO else group.ranks,
            )
            for group in shape.groups
        )  # fmt: skip
        self._signatures: dict[int, tuple[object, ...]] = {}

    def communicators(self) -> list[Read]:
        """Return the communicators, as a rank's first dump tells them."""
        at_us = self._attempt_us + LOOK_US
        held = self._held(self._engine.ranks[0], at_us)
        records = communicators_of(
            replace(held, communicators=self._groups), self._process(0, at_us),
            updated_at=self._epoch_us + at_us,
        )  # fmt: skip
        return [
            Read(at_us, communicator_id(self._engine.shape.task_id, one.communicator), one)
            for one in records
        ]

    def read(self, to_us: int) -> Iterator[Read]:
        """Yield what is published of looks up to a time, by host; arrival is a little later."""
        shape = self._engine.shape
        for host in range(shape.hosts):
            first = host * shape.rails
            dead = self._engine.trouble(first, Trouble.COLLECTOR, Trouble.HOST)
            while self._next_us[host] <= to_us:
                at_us = self._next_us[host]
                self._next_us[host] += LOOK_US + self._random.randrange(-20_000, 20_000)
                if dead is not None and dead.at(at_us):
                    continue
                late_us = LATE_US + self._random.randrange(LATE_US)
                for rank in range(first, first + shape.rails):
                    yield from self._look(rank, at_us, at_us + late_us)

    def _look(self, rank: int, at_us: int, arrives_us: int) -> Iterator[Read]:
        engine, told = self._engine, self._told[rank]
        run = engine.ranks[rank]
        gone_us = self._gone_us(run)
        if gone_us is not None and at_us - gone_us >= GONE_TOLD_US:
            return
        self._help(run, min(at_us, at_us if gone_us is None else gone_us))
        operations = self._changed(run)
        whole = at_us >= told.whole_us
        if whole:
            told.whole_us = at_us + SNAPSHOT_US
            operations = self._repeated(run, operations)
        held = self._held(run, at_us)
        batch = batch_of(
            held, self._process(rank, at_us), taken_at=self._clock(rank, at_us),
            source=CollectiveSource.FLIGHT_RECORDER,
            operations=operations if self._encoded else (), whole=False,
        )  # fmt: skip
        if whole:
            batch = replace(batch, snapshot=True)
        yield Read(arrives_us, batch.rank_id, batch, tuple(operations))
        if gone_us is not None and gone_us <= at_us:
            return
        sockets = self._connections.read(rank, self._launched(run, at_us), at_us)
        yield Read(
            arrives_us, batch.rank_id,
            SocketBatch(
                cluster=self._cluster, rank_id=rank_id(engine.shape.task_id, rank),
                task_id=engine.shape.task_id, rank=rank, host_id=engine.shape.host_name(rank),
                taken_at=self._clock(rank, at_us), sockets=sockets, producer_version=VERSION,
            ),
        )  # fmt: skip

    def _launched(self, run: RankRun, at_us: int) -> dict[int, Op]:
        """Return what a rank has launched at a time and its collector has not told as done."""
        found = dict(self._told[run.number].pending)
        found.update({op.number: op for op in run.fresh if op.launched <= at_us})
        return found

    def _gone_us(self, run: RankRun) -> int | None:
        exited = self._engine.trouble(run.number, Trouble.EXITED)
        times = [run.ended_us, None if exited is None else exited.begin_us]
        return min((t for t in times if t is not None), default=None)

    def _help(self, run: RankRun, to_us: int) -> None:
        """Let a rank's helper check, twice a second, until its process stops."""
        helper = self._helpers[run.number]
        stop = self._engine.trouble(run.number, Trouble.STOPPED, Trouble.EXITED, Trouble.HOST)
        while helper.tick_us <= to_us:
            at_us = helper.tick_us
            helper.tick_us += CHECK_US
            if stop is not None and stop.at(at_us):
                continue
            newest = self._newest_us(run, at_us)
            if newest > at_us - CHECK_US:
                if helper.still >= STILL_CHECKS:
                    helper.next_us = min(helper.next_us, at_us + LEAST_US)
                helper.still = 0
            else:
                helper.still += 1
            waits = helper.still >= STILL_CHECKS
            same = helper.dumped_us is not None and newest <= helper.dumped_us
            if at_us >= helper.next_us or (waits and not same):
                helper.dumped_us = helper.recorded_us = at_us
                held = min(self._engine.shape.ring, run.count)
                took = min(MOST_US, max(LEAST_US, round(held * WRITE_US / SHARE)))
                helper.next_us = at_us + (REPEAT_US if waits else took)
            elif same:
                helper.recorded_us = at_us

    def _newest_us(self, run: RankRun, at_us: int) -> int:
        """Return when a rank last launched, began or finished something before a time."""
        newest = 0
        nccl = self._engine.shape.library != GLOO
        for held in (self._told[run.number].pending.values(), run.fresh):
            for op in held:
                if op.launched > at_us:
                    continue
                newest = max(newest, op.launched)
                for time in (op.started if nccl else None, op.ended):
                    if time is not None:
                        seen = _seen(time) if nccl else time
                        newest = max(newest, seen if seen <= at_us else 0)
        return newest

    def _changed(self, run: RankRun) -> list[CollectiveOp]:
        """Return what the last dump shows and was not told."""
        told, dumped = self._told[run.number], self._helpers[run.number].dumped_us
        if dumped is None:
            return []
        new = [op for op in run.fresh if op.launched <= dumped]
        run.fresh = run.fresh[len(new) :]
        ring = self._engine.shape.ring
        if len(new) > ring:
            told.dropped += len(new) - ring
            new = new[-ring:]
        oldest = max((op.number for op in new), default=0) - ring
        told.pending.update({op.number: op for op in new})
        found = []
        for number, op in list(told.pending.items()):
            if number <= oldest and number in told.states:
                # The ring is over it.
                found.append(
                    self._record(run, op, told.states[number], dumped)._replace(
                        state=CollectiveState.UNKNOWN, missing_reason=LEFT_THE_RING,
                    )
                )  # fmt: skip
                del told.pending[number], told.states[number]
                continue
            state = self._state(op, dumped)
            if told.states.get(number) is state:
                continue
            record = self._record(run, op, state, dumped)
            found.append(record)
            told.last[op.group.number, op.peer is not None] = record
            if state is CollectiveState.COMPLETED:
                told.pending.pop(number)
                told.states.pop(number, None)
                done = self._connections.done
                key = run.number, op.group.number
                done[key] = done.get(key, 0) + op.step.n_bytes
            else:
                told.states[number] = state
        return found

    def _repeated(self, run: RankRun, changed: list[CollectiveOp]) -> list[CollectiveOp]:
        """Return what a whole batch holds: what is pending and each communicator's last."""
        told, dumped = self._told[run.number], self._helpers[run.number].dumped_us
        found = {o.record_id: o for o in told.last.values()}
        if dumped is not None:
            for number, op in told.pending.items():
                if number in told.states:
                    found[number] = self._record(run, op, told.states[number], dumped)
        found.update({o.record_id: o for o in changed})
        return [found[number] for number in sorted(found)]

    def _state(self, op: Op, at_us: int) -> CollectiveState:
        shape = self._engine.shape
        if shape.library == GLOO:
            over = op.ended is not None and op.ended <= at_us
            return CollectiveState.COMPLETED if over else CollectiveState.SCHEDULED
        if op.ended is not None and _seen(op.ended) <= at_us:
            return CollectiveState.COMPLETED
        if shape.timed and op.started is not None and _seen(op.started) <= at_us:
            return CollectiveState.STARTED
        return CollectiveState.SCHEDULED

    def _record(self, run: RankRun, op: Op, state: CollectiveState, at_us: int) -> CollectiveOp:
        shape, step = self._engine.shape, op.step
        gloo = shape.library == GLOO
        over = state is CollectiveState.COMPLETED
        sender = receiver = None
        if op.peer is not None:
            mine, other = op.group.ranks.index(run.number), op.group.ranks.index(op.peer)
            sends = step.does is Does.SEND
            sender, receiver = (mine, other) if sends else (other, mine)
        begun = not gloo and shape.timed and op.started is not None and _seen(op.started) <= at_us
        shift = self._epoch_us + self._clocks_us[shape.host(run.number)]
        ended = _seen(op.ended) + shift if over and not gloo and op.ended is not None else None
        reason = None if ended is not None else NOT_RECORDED if gloo else NOT_YET
        dtypes = (TYPE,)
        return CollectiveOp(
            communicator=op.group.name, operation=step.operation, sequence=op.seq,
            is_p2p=op.peer is not None, record_id=op.number, op_id=op.number, sender=sender,
            receiver=receiver, input_sizes=step.inputs, output_sizes=step.outputs,
            input_dtypes=dtypes, output_dtypes=dtypes if step.outputs else (),
            n_bytes=step.n_bytes, launched_at=shift + op.launched,
            started_at=_seen(op.started) + shift if begun and op.started is not None else None,
            completed_at=ended, missing_reason=reason, state=state, retired=over,
            timeout_ms=TIMEOUT_MS[shape.library], stack=(),
        )  # fmt: skip

    def _held(self, run: RankRun, at_us: int) -> CollectiveSnapshot:
        helper, told = self._helpers[run.number], self._told[run.number]
        recorded, reason = helper.recorded_us, None
        if recorded is None:
            reason = "no dump yet"
        elif at_us - recorded > STALE_US:
            reason = f"no dump for {(at_us - recorded) // US_PER_S} s"
        return CollectiveSnapshot(
            rank=run.number, source="", library=self._engine.shape.library, version="2.10",
            taken_at=None if recorded is None else self._clock(run.number, recorded),
            taken_at_missing_reason=reason, dropped_before=told.dropped, communicators=(),
            operations=(),
        )  # fmt: skip

    def _clock(self, rank: int, at_us: int) -> int:
        """Return a time as a rank's host tells it."""
        return self._epoch_us + at_us + self._clocks_us[self._engine.shape.host(rank)]

    def _process(self, rank: int, at_us: int) -> RankProcess:
        shape, run = self._engine.shape, self._engine.ranks[rank]
        stop = self._engine.trouble(rank, Trouble.STOPPED)
        gone_us = self._gone_us(run)
        state, until = ProcessState.SLEEPING, at_us
        if gone_us is not None and gone_us <= at_us:
            state, until = ProcessState.GONE, gone_us
        elif stop is not None and stop.at(at_us):
            state, until = ProcessState.STOPPED, stop.begin_us
        elif run.saving is not None and run.saving[0] <= at_us < run.saving[1]:
            disk = self._random.random() < DISK_SHARE
            state = ProcessState.DISK if disk else ProcessState.RUNNING
        noted = run.span_us(until)
        since = until - self._attempt_us
        worked = noted if shape.waits_for_each else since - noted
        cpu_us = IDLE * since + (BUSY - IDLE) * worked
        return RankProcess(
            cluster=self._cluster, task_id=shape.task_id, rank=rank, world_size=shape.ranks,
            host_id=shape.host_name(rank), endpoint_ids=(shape.endpoint(rank),),
            attempt=self._clock(rank, self._attempt_us), pid=1_000 + rank, process_state=state,
            cpu_ns=max(0, round(cpu_us)) * US_NS,
        )  # fmt: skip


def _seen(at_us: int) -> int:
    """Return when NCCL's watchdog sees what happened."""
    return -(-at_us // WATCHDOG_US) * WATCHDOG_US


def clocks(shape: JobShape, seed: int, *, apart_us: int = 5 * US_PER_S) -> tuple[int, ...]:
    """Return how far each host's clock is ahead: seconds, of one in twenty a minute."""
    random = Random(f"{seed}/clocks")  # noqa: S311 - a seed decides
    found = []
    for _ in range(shape.hosts):
        far = random.random() < 0.05
        found.append(round(random.uniform(-1, 1) * apart_us * (18 if far else 1)))
    return tuple(found)
