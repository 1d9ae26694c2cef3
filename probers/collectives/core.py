"""From what is seen of a host's ranks to the records of `collective.*.v1`. Pure.

The edge (`probers.collector`) reads processes, dumps and sockets; each reading comes here with its
time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from probers.collectives.changes import OperationChanges
from probers.collectives.flight_recorder import Dump, DumpError, read_dump
from probers.collectives.processes import JobRank, ProcessReading
from probers.collectives.sockets import RankKey
from schemas.codec import to_datum
from schemas.enums import CollectiveSource, ProcessState
from schemas.ids import communicator_id, rank_id
from schemas.records import (
    CollectiveOp,
    CollectiveSnapshot,
    CommunicatorProgress,
    RankSocket,
    SocketBatch,
)
from schemas.records.batches import RankProcess, batch_of, communicators_of
from schemas.topics import COLLECTIVE_COMM, COLLECTIVE_FLOW, COLLECTIVE_OP, Topic
from schemas.units import US_PER_S
from schemas.version import VERSION

# A reader that starts late is right after so long.
SNAPSHOT_US: Final = 30 * US_PER_S
# So often communicators are told again: they are kept for a week.
REPEAT_COMMUNICATORS_US: Final = 3_600 * US_PER_S
# That a rank ended is told for so long: one record may be lost.
GONE_TOLD_US: Final = 30 * US_PER_S
# The kernel says to the second when the host was started, and counts from there.
SAME_START_US: Final = 2 * US_PER_S
# The helper writes or touches a dump every second; NCCL alone writes none until a timeout.
STALE_US: Final = 10 * US_PER_S
# An operation is some 100 bytes: far below the largest message, and one batch is quick to read.
MAX_OPERATIONS: Final = 8_192
# A rank's operations are told from one source at a time, that of the most merit. All ranks of a job
# should be told from the same, since each names communicators in its own way. A dump that is kept
# up has stacks, shapes and members. One that is written once, when a collective times out, comes
# late and of some ranks only: a ring stays. A log has what is done, a count what was launched.
FLIGHT_RECORDER: Final = CollectiveSource.FLIGHT_RECORDER
LIVE_DUMP: Final = 4
# Of what has no operation yet: it takes no other's place.
EMPTY: Final = -1
MERITS: Final[Mapping[CollectiveSource, int]] = {
    CollectiveSource.PROFILER: 3, FLIGHT_RECORDER: 2, CollectiveSource.INSPECTOR: 1,
    CollectiveSource.RAS: 0,
}  # fmt: skip
# These do not say what a rank waits in: for who looks for it the rank was never read.
PARTIAL: Final[Mapping[CollectiveSource, str]] = {
    CollectiveSource.INSPECTOR: "NCCL's Inspector logs what is done, not what waits",
    CollectiveSource.RAS: "NCCL's RAS counts what was launched, not what is done",
}
# Each source counts from 0, and a reader takes a number that it knows for the same operation.
NUMBERS_EACH: Final = 2**48
# Characters of stacks in one batch; of a message of 8 MiB half.
MAX_STACK_CHARS: Final = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpReading:
    """A look at a rank's dump.

    Attributes
    ----------
    content
        None: as it was at the last look, or none could be read.
    written_at
        When the file was written or touched, microseconds since the epoch; None with a reason.
    live
        Whether somebody keeps it up, as `torch_dump.py` does.
    """

    content: bytes | None = None
    written_at: int | None = None
    missing_reason: str | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A record for a topic."""

    topic: Topic
    key: str
    record: Any
    at_us: int


@dataclass(slots=True)
class CollectCounts:
    """What was read, since the start; `refused` by reason."""

    batches: int = 0
    operations: int = 0
    sockets: int = 0
    dumps: int = 0
    rings: int = 0
    ras: int = 0
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Rank:
    """What is known of one attempt of one rank."""

    attempt: int
    process: ProcessReading
    job: JobRank
    source: CollectiveSource | None = None
    merit: int = EMPTY - 1
    # What is added to the numbers of the present source's operations.
    first_number: int = 0
    changes: OperationChanges = field(default_factory=OperationChanges)
    unsent: dict[int, CollectiveOp] = field(default_factory=dict)
    recorded_at: int | None = None
    missing_reason: str | None = "no dump yet"
    # Why RAS, too, says nothing.
    ras_reason: str | None = None
    refusal: str | None = None
    refusals: dict[CollectiveSource, str] = field(default_factory=dict)
    snapshot_at: int | None = None
    gone_at: int | None = None
    told: dict[str, tuple[CommunicatorProgress, int]] = field(default_factory=dict)


class Collector:
    """Keeps what was told of each rank, and makes records of what was not."""

    def __init__(self, cluster: str, host_id: str) -> None:
        self._cluster = cluster
        self._host_id = host_id
        self._ranks: dict[RankKey, _Rank] = {}
        self.counts = CollectCounts()

    @property
    def ranks(self) -> tuple[RankKey, ...]:
        """Ranks that are known, those that ended a moment ago too."""
        return tuple(self._ranks)

    def observe_process(self, job: JobRank, process: ProcessReading) -> None:
        """Take in a rank's process; another one begins an attempt, unless it is an older one."""
        key = job.task_id, job.rank
        known = self._ranks.get(key)
        if known is None or process.started_at > known.attempt + SAME_START_US:
            self._ranks[key] = _Rank(process.started_at, process, job)
        elif process.started_at >= known.attempt - SAME_START_US:
            known.process, known.gone_at = process, None

    def observe_end(self, key: RankKey, now_us: int) -> None:
        """Take in that a rank's process is gone."""
        known = self._ranks.get(key)
        if known is not None and known.gone_at is None:
            known.gone_at = now_us
            known.process = replace(known.process, state=ProcessState.GONE)

    def observe_dump(self, key: RankKey, reading: DumpReading) -> None:
        """Take in a look at a rank's dump; what cannot be used is counted, and said in batches."""
        known = self._ranks.get(key)
        if known is None:
            return
        merit = LIVE_DUMP if reading.live else MERITS[FLIGHT_RECORDER]
        own = known.source in {None, FLIGHT_RECORDER}
        if reading.written_at is None:
            if known.recorded_at is None and own:
                known.missing_reason = reading.missing_reason
            return
        if not own and (reading.content is None or merit < known.merit):
            return
        if reading.written_at < known.attempt - SAME_START_US:
            self._refuse(known, reading, "of an earlier attempt")
            return
        if reading.content is not None:
            try:
                self._read(known, reading.content, merit)
            except DumpError as error:
                self._refuse(known, reading, str(error))
                return
            known.refusal = None
        if known.refusal is None and known.source in {None, FLIGHT_RECORDER}:
            known.recorded_at, known.missing_reason = reading.written_at, None

    def observe_operations(
        self, key: RankKey, source: CollectiveSource, dump: Dump, now_us: int
    ) -> None:
        """Take in what another source than a dump says of a rank, unless a better one is there."""
        known = self._ranks.get(key)
        if known is None:
            return
        self._adopt(known, source, MERITS[source] if dump.highest_record_id >= 0 else EMPTY)
        if known.source not in {None, source}:
            return
        self._note(known, dump)
        reason = PARTIAL.get(source)
        known.recorded_at, known.missing_reason = None if reason else now_us, reason

    def refuse(self, key: RankKey, source: CollectiveSource, why: str) -> None:
        """Take in that a source could not be used: counted, and said if no other one is there."""
        known = self._ranks.get(key)
        if known is None:
            return
        if known.refusals.get(source) != why:
            # The same file is looked at every two seconds.
            known.refusals[source] = why
            self.counts.refused[why] += 1
        if known.source in {None, source}:
            known.missing_reason = f"refused: {why}"

    def observe_no_ras(self, key: RankKey, why: str) -> None:
        """Take in why RAS says nothing of a rank: said as long as nothing else is known of it."""
        known = self._ranks.get(key)
        if known is not None:
            known.ras_reason = why

    def batches(self, key: RankKey, now_us: int) -> list[Message]:
        """Return the records that tell of a rank at this time; a rank that ended is forgotten."""
        known = self._ranks.get(key)
        if known is None:
            return []
        due = known.snapshot_at is None or now_us - known.snapshot_at >= SNAPSHOT_US
        operations = dict(known.unsent)
        if due:
            known.snapshot_at = now_us
            operations = {o.record_id: o for o in known.changes.repeated()} | operations
        known.unsent = {}
        messages = self._communicators(known, now_us)
        ordered = [operations[number] for number in sorted(operations)]
        messages += self._operations(known, ordered, now_us, whole=due)
        if known.gone_at is not None and now_us - known.gone_at >= GONE_TOLD_US:
            del self._ranks[key]
        return messages

    def sockets(
        self, key: RankKey, held: Sequence[RankSocket], missing_reason: str | None, now_us: int
    ) -> Message:
        """Return the record of a rank's connections."""
        task_id, rank = key
        self.counts.sockets += len(held)
        batch = SocketBatch(
            cluster=self._cluster, rank_id=rank_id(task_id, rank), task_id=task_id, rank=rank,
            host_id=self._host_id, taken_at=now_us, missing_reason=missing_reason,
            sockets=tuple(held), producer_version=VERSION,
        )  # fmt: skip
        return Message(COLLECTIVE_FLOW, batch.rank_id, batch, now_us)

    def _read(self, known: _Rank, content: bytes, merit: int) -> None:
        rank, changes = known.job.rank, known.changes
        own = known.source in {None, FLIGHT_RECORDER}
        dump = read_dump(content, f"rank{rank}", skip=changes.is_settled if own else None)
        if dump.snapshot.rank != rank:
            raise DumpError(f"of rank {dump.snapshot.rank}")
        self.counts.dumps += 1
        self._adopt(known, FLIGHT_RECORDER, merit if dump.highest_record_id >= 0 else EMPTY)
        if known.source in {None, FLIGHT_RECORDER}:
            self._note(known, dump)

    def _adopt(self, known: _Rank, source: CollectiveSource, merit: int) -> None:
        """Tell the rank's operations from a source from now on, if it is a better one."""
        if known.source is source:
            known.merit = max(known.merit, merit)
        elif merit > known.merit:
            if known.source is not None:
                # What the former one said waits is no longer told: readers drop it with the next
                # snapshot.
                known.first_number += NUMBERS_EACH
                known.changes, known.unsent, known.told = OperationChanges(), {}, {}
                known.snapshot_at = known.recorded_at = known.refusal = None
            known.source, known.merit = source, merit

    def _note(self, known: _Rank, dump: Dump) -> None:
        changes = known.changes
        refused = changes.refused
        known.unsent.update({o.record_id: o for o in changes.observe(dump)})
        if changes.refused > refused:
            self.counts.refused["operation out of bounds"] += changes.refused - refused

    def _refuse(self, known: _Rank, reading: DumpReading, why: str) -> None:
        reason = f"refused: {why}"
        if reading.content is not None:
            self.counts.refused[why] += 1
        known.refusal = known.missing_reason = reason

    def _communicators(self, known: _Rank, now_us: int) -> list[Message]:
        due = []
        for group in known.changes.communicators:
            told, at = known.told.get(group.communicator, (None, 0))
            if told != group or now_us - at >= REPEAT_COMMUNICATORS_US:
                known.told[group.communicator] = group, now_us
                due.append(group)
        held = replace(self._held(known, now_us), communicators=tuple(due))
        return [
            Message(
                COLLECTIVE_COMM,
                communicator_id(known.job.task_id, one.communicator),
                one,
                now_us,
            )
            for one in communicators_of(held, self._process(known), updated_at=now_us)
        ]

    def _operations(
        self, known: _Rank, operations: Sequence[CollectiveOp], now_us: int, *, whole: bool
    ) -> list[Message]:
        held, process = self._held(known, now_us), self._process(known)
        messages = []
        for begin in range(0, max(1, len(operations)), MAX_OPERATIONS):
            chunk = operations[begin : begin + MAX_OPERATIONS]
            if known.first_number:
                chunk = [o._replace(record_id=o.record_id + known.first_number) for o in chunk]
            batch = batch_of(
                held, process, taken_at=now_us, source=known.source or FLIGHT_RECORDER,
                operations=_with_short_stacks(chunk), whole=whole,
            )  # fmt: skip
            messages.append(Message(COLLECTIVE_OP, batch.rank_id, batch, now_us))
            self.counts.batches += 1
            self.counts.operations += len(chunk)
        return messages

    def _held(self, known: _Rank, now_us: int) -> CollectiveSnapshot:
        changes, reason = known.changes, known.missing_reason
        if reason is None and known.recorded_at is not None:
            age_us = now_us - known.recorded_at
            reason = f"no dump for {age_us // US_PER_S} s" if age_us > STALE_US else None
        elif reason is not None and known.source is None and known.ras_reason is not None:
            reason = f"{reason}; RAS: {known.ras_reason}"
        return CollectiveSnapshot(
            rank=known.job.rank, source="", library=changes.library, version=changes.version,
            # A dump may have been written during this look.
            taken_at=None if known.recorded_at is None else min(known.recorded_at, now_us),
            taken_at_missing_reason=reason,
            dropped_before=changes.dropped_before, communicators=changes.communicators,
            operations=(),
        )  # fmt: skip

    def _process(self, known: _Rank) -> RankProcess:
        job, process = known.job, known.process
        return RankProcess(
            cluster=self._cluster, task_id=job.task_id, rank=job.rank, world_size=job.world_size,
            host_id=self._host_id, endpoint_ids=job.endpoint_ids, attempt=known.attempt,
            pid=process.pid, process_state=process.state, cpu_ns=process.cpu_ns,
        )  # fmt: skip


def _with_short_stacks(operations: Sequence[CollectiveOp]) -> Sequence[CollectiveOp]:
    """Return the operations, without stacks if these are more than a message holds."""
    frames = {frame for operation in operations for frame in operation.stack}
    if sum(map(len, frames)) <= MAX_STACK_CHARS:
        return operations
    return [operation._replace(stack=()) for operation in operations]


def as_documents(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """Return records as plain documents, for people who look without Kafka."""
    return [{"topic": m.topic.name, "record": to_datum(m.record)} for m in messages]
