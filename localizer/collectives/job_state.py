"""What is known of one running job, folded from the records of its ranks."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.groups import WORLD, line_up
from localizer.collectives.pace import Pace
from localizer.collectives.ranges import rank_text
from localizer.collectives.rank_batch import BatchHead, RankBatch
from localizer.collectives.rank_operations import OldestWait, Waits
from localizer.collectives.rank_state import ENDED, SILENT_NS, RankState, snapshots_of
from localizer.collectives.slow_readers import SlowReaders
from localizer.collectives.sockets import SocketState
from localizer.collectives.sole_work import sole_work
from localizer.collectives.stillness import Stillness
from localizer.collectives.stragglers import Stragglers
from localizer.collectives.usual_waits import (
    LEAST_WAITS,
    READ_ONCE_US,
    READ_TWICE_US,
    UsualWaits,
    given_up,
    limit_of,
    longest_of,
    patience,
)
from schemas.columns.interpreter import NULL
from schemas.enums import CommunicatorRole, ProcessState
from schemas.records import (
    CollectiveBatch,
    CollectiveSnapshot,
    Communicator,
    CommunicatorProgress,
    SocketBatch,
)
from schemas.records.batches import Tables
from schemas.units import SECOND_NS, US_NS, us_to_ns

# Operations kept of a job: of a small one several iterations, which tell what usually comes next;
# of the largest the last few of each communicator. Some 400 bytes each.
MAX_OPERATIONS: Final = 300_000
LEAST_KEPT: Final = 8
MOST_KEPT: Final = 256
# Tensor, pipeline, data and expert parallelism: communicators of a rank.
COMMUNICATORS_EACH: Final = 4
# Ranks of one attempt are first heard of within this time; all start anew when one does, since
# communicators do not outlive a member.
RESTART_NS: Final = 60 * SECOND_NS
# Whom ranks wait for is looked at as often as collectors tell. It takes some 2 ms for each rank,
# with a full history twice as long, and nothing else is decided meanwhile.
COMPARE_NS: Final = 2 * SECOND_NS
COMPARED_AT_ONCE: Final = 64
MOST_COMPARED: Final = 256
# Launches that weigh as much as an operation that is held.
LAUNCHES_EACH: Final = 4
# Operations before those that are new: clocks are brought together by what both ranks launched.
OVERLAP: Final = 64
# Beyond these it is no job of ours.
MAX_RANKS: Final = 65_536
MAX_COMMUNICATORS: Final = 65_536
# What a rank takes beside its operations, and members of a communicator, in operations.
RANK_WEIGHT: Final = 4
MEMBERS_EACH: Final = 32
# Hangs of a job within what is read again at a start.
MAX_SPANS: Final = 64
# Of a job that is started anew the old processes end within this time.
TWICE_NS: Final = 30 * SECOND_NS

# Of a rank's operations that were seen to wait: the one in which it does, and the one before.
HELD_UP: Final = 2

# What is told of a job.
JobRecord = RankBatch | CollectiveBatch | SocketBatch | Communicator


@dataclass(frozen=True, slots=True)
class Overdue:
    """An operation that has waited longer than it may.

    Attributes
    ----------
    waited, limit
        Microseconds.
    since_ns
        By times of arrival: who is seen to be behind later than this is later than any was before.
    timeout_ms
        After which the program gives it up; None: not known.
    """

    rank: int
    waited: int
    limit: int
    since_ns: int
    timeout_ms: int | None = None


class Wait(NamedTuple):
    """The oldest operation that a rank waits in.

    `waited`: how long, in microseconds; `read_ns`: see `RankState`; `cold`: whether it is of the
    first iteration, its rank's or most ranks'.
    """

    rank: int
    oldest: OldestWait
    waited: int
    read_ns: int
    cold: bool


def _beyond(waiting: Sequence[Wait], limit_of_wait: Callable[[Wait], int]) -> list[Overdue]:
    """Return the waits beyond their limits (µs)."""
    found = []
    limits: dict[tuple[str, bool], int] = {}
    for wait in waiting:
        key = wait.oldest.communicator, wait.cold
        limit = limits.get(key)
        if limit is None:
            limit = limits[key] = limit_of_wait(wait)
        if wait.waited > limit:
            # The longest wait so far was about half of the limit, or less.
            since_ns = wait.read_ns - us_to_ns(wait.waited - limit // 2)
            timeout_ms = wait.oldest.timeout_ms
            found.append(Overdue(wait.rank, wait.waited, limit, since_ns, timeout_ms))
    return found


@dataclass(slots=True)
class _Rival:
    """Another living process that says to be the same rank; since when and until when (ns)."""

    host_id: str
    since_ns: int
    until_ns: int


@dataclass(slots=True)
class JobState:
    """One job.

    Attributes
    ----------
    waits
        By communicator: how long its operations took.
    every, former
        Those of all communicators together, and those before the first iteration was over.
    refused
        Records beyond the bounds.
    heard_ns
        When the last record of any rank reached the broker.
    hung
        While it hangs: what ends then tells nothing of what is usual.
    pace
        How fast it goes on.
    hang_spans
        By hang, those that were told: when it began and, unless it is open, ended (ns).
    most_kept
        Finished operations of a rank's communicator that are kept at most.
    stragglers
        Whom the others wait for.
    readers
        Whose sockets have bytes that nobody reads.
    restarted_ns
        When a rank was last seen to have been started anew.
    stillness
        Of a job that records no operations: when bytes moved between its ranks.
    recorded
        Whether the recorder of any rank was ever read.
    """

    task_id: str
    ranks: dict[int, RankState] = field(default_factory=dict)
    sockets: dict[int, SocketState] = field(default_factory=dict)
    communicators: dict[str, Communicator] = field(default_factory=dict)
    waits: dict[str, UsualWaits] = field(default_factory=dict)
    every: UsualWaits = field(default_factory=UsualWaits)
    former: UsualWaits = field(default_factory=UsualWaits)
    world_size: int | None = None
    heard_ns: int = 0
    refused: int = 0
    hung: bool = False
    pace: Pace = field(default_factory=Pace)
    most_kept: int = MOST_KEPT
    hang_spans: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    _rivals: dict[int, _Rival] = field(default_factory=dict)
    stragglers: Stragglers = field(default_factory=Stragglers)
    readers: SlowReaders = field(default_factory=SlowReaders)
    restarted_ns: int = 0
    stillness: Stillness = field(default_factory=Stillness)
    recorded: bool = False
    # By rank, its last newest operations, and up to when each was seen not to be over (µs).
    _held_up: dict[int, dict[int, int]] = field(default_factory=dict)
    # By rank, the newest operation in which it was seen to wait, and when first to be over (µs).
    _over: dict[int, tuple[int, int]] = field(default_factory=dict)
    _compared_ns: int = 0

    @property
    def attempt(self) -> int:
        """When the last of its processes was started, microseconds since the epoch; 0: none."""
        return max((state.attempt for state in self.ranks.values()), default=0)

    def apply(self, record: JobRecord, arrived_ns: int) -> None:
        """Apply a record of the job.

        Raises
        ------
        BatchError
            If a batch cannot be used; nothing of it is then.
        """
        match record:
            case RankBatch():
                head, operations = record
                before = self.ranks.get(head.rank)
                self.apply_batch(head, operations, arrived_ns)
                self._note_rank(head.rank, before, arrived_ns)
            case CollectiveBatch():
                self.apply(RankBatch.of(record), arrived_ns)
            case SocketBatch():
                self.apply_sockets(record, arrived_ns)
            case Communicator():
                self.apply_communicator(record.communicator, record)

    def _note_rank(self, rank: int, before: RankState | None, arrived_ns: int) -> None:
        """Note that a rank was started anew, and up to when its last operation was not over."""
        state = self.ranks.get(rank)
        if before is not None and state is not before:
            self.restarted_ns = arrived_ns
        if state is None or state.batch.recorded_at is None:
            return
        newest = state.operations.newest
        if state.operations.newest_waits:
            held = self._held_up.setdefault(rank, {})
            held[newest] = state.batch.recorded_at
            if len(held) > HELD_UP:
                del held[next(iter(held))]
        elif newest in self._held_up.get(rank, ()) and self._over.get(rank, (-1,))[0] != newest:
            self._over[rank] = newest, state.batch.recorded_at

    def idle_us(self, rank: int) -> int | None:
        """Return how long a rank has launched nothing while nothing held it up (µs), at most.

        By its own clock; None: not known.
        """
        state = self.ranks[rank]
        return self._since_over(rank, state.operations.newest, state.known_until)

    def idle_since_ns(self, rank: int) -> int | None:
        """Return since when a rank is seen to launch nothing while nothing holds it up.

        By times of arrival; None: not known. Where it was seen to wait in its last operation, and
        nobody recorded when that ended, since it was first seen to be over.
        """
        state = self.ranks[rank]
        newest, until = state.operations.newest, state.known_until
        launch = state.operations.launch(newest)
        idle_us = self.idle_us(rank)
        if launch is None or idle_us is None or until is None:
            return None
        number, over_at = self._over.get(rank, (-1, 0))
        if launch.completed_at is None and number == newest:
            idle_us = min(idle_us, until - over_at)
        return state.read_ns - us_to_ns(idle_us)

    def launched_ns(self, rank: int, number: int) -> int | None:
        """Return when a rank launched the operation of a record id, by times of arrival.

        None: not known.
        """
        state = self.ranks[rank]
        launch, until = state.operations.launch(number), state.known_until
        if launch is None or launch.launched_at is None or until is None:
            return None
        return state.read_ns - us_to_ns(until - launch.launched_at)

    def pause_before_us(self, rank: int, number: int) -> int | None:
        """Return how long a rank was idle before it launched an operation (µs), at most, as above.

        Parameters
        ----------
        number
            The operation's record id.
        """
        launch = self.ranks[rank].operations.launch(number)
        return None if launch is None else self._since_over(rank, number - 1, launch.launched_at)

    def _since_over(self, rank: int, number: int, until: int | None) -> int | None:
        """Return the time (µs) from when an operation was last seen not to be over to another."""
        launch = self.ranks[rank].operations.launch(number)
        if launch is None or launch.launched_at is None or until is None:
            return None
        held_up_at = self._held_up.get(rank, {}).get(number, 0)
        return until - max(launch.launched_at, launch.completed_at or 0, held_up_at)

    @property
    def slow(self) -> bool:
        """Whether it is slower than ever, or one rank holds the others up as it never did.

        It computes, or reads slowly.
        """
        found = self.stragglers.found, self.readers.found
        return self.pace.slow or any(one is not None for one in found)

    def goes_on(self, now_ns: int) -> bool:
        """Return whether any of its processes is heard of, and has not ended."""
        return any(not s.ended and not s.is_silent(now_ns) for s in self.ranks.values())

    def forget_ranks(self) -> None:
        """Forget a job that has ended; its communicators are known until their tombstones come."""
        self.ranks.clear()
        self.sockets.clear()
        self.stragglers.forget()
        self.readers.forget()
        self._held_up.clear()
        self._over.clear()

    def apply_batch(self, batch: BatchHead, operations: BatchOperations, arrived_ns: int) -> None:
        """Apply what a rank launched; a rank that was started anew has done nothing before.

        Of two processes that say to be the same rank the later one counts while it lives, so that
        one that began in a future that never comes holds nobody up for longer.
        """
        known = self.ranks.get(batch.rank)
        anew = known is not None and not known.is_of(batch)
        earlier = known is not None and anew and batch.attempt < known.attempt
        if known is not None and earlier and not (known.ended or known.is_silent(arrived_ns)):
            self._note_rival(batch, arrived_ns)
            return
        if known is None and len(self.ranks) >= MAX_RANKS:
            self.refused += 1
            return
        self.heard_ns = max(self.heard_ns, arrived_ns)
        self.recorded |= batch.recorded_at is not None
        if batch.world_size is not None:
            self.world_size = batch.world_size
        if anew:
            known = None
            self.stragglers.begin_anew()
            if not earlier:
                self._forget_before(arrived_ns - RESTART_NS)
        if known is None:
            known = self.ranks[batch.rank] = RankState(batch, batch.attempt, arrived_ns, arrived_ns)
        waits = known.apply_batch(batch, operations, arrived_ns, self._keep())
        if known.operations.take_cold():
            # All ranks are in the same iteration: those of the others tell as little. Until others
            # are known they are better than nothing.
            self.waits.clear()
            if self.every.count >= LEAST_WAITS:
                self.former = self.every
            self.every = UsualWaits()
        self._observe(waits, arrived_ns)

    def _observe(self, waits: Waits, arrived_ns: int) -> None:
        """Learn from waits that ended what is usual."""
        if not len(waits):
            return
        names = waits.communicators
        alone = waits.numbers
        # While it hangs one by one, since each changes what is usual, which the next is held to.
        if not self.hung:
            self._learn_each(names, waits.counts, waits.longest)
            if not waits.long:
                return
            alone = waits.took_long()
        for _, code, timeout_ms, waited in alone.T.tolist():
            timeout = None if timeout_ms == NULL else timeout_ms
            self._observe_one(names[code], timeout, waited, arrived_ns)

    def _observe_one(self, name: str, timeout_ms: int | None, waited: int, arrived_ns: int) -> None:
        # Longer than until it is given up: the host's clock was set in between.
        possible = waited <= given_up(timeout_ms)
        possible &= waited <= READ_TWICE_US or not self._was_hung(arrived_ns, waited)
        if possible and (not self.hung or waited <= self.limit(name, timeout_ms)):
            self._learn(name, waited)

    def _learn(self, communicator: str, waited: int) -> None:
        """Learn from a wait in a communicator."""
        self._learn_each((communicator,), (1,), (waited,))

    def _learn_each(
        self, communicators: Sequence[str], counts: Sequence[int], longest: Sequence[int]
    ) -> None:
        """Learn from waits in some communicators: how many, and the longest of each."""
        known = self.waits
        every = most = 0
        for name, count, waited in zip(communicators, counts, longest, strict=True):
            if not count:
                continue
            own = known.get(name)
            if own is None:
                if len(known) >= MAX_COMMUNICATORS:
                    self.refused += count
                    continue
                own = known[name] = UsualWaits()
            own.observe(waited, count)
            every += count
            most = max(most, waited)
        self.every.observe(most, every)

    def note_hang(self, hang_id: str, begin_ns: int, end_ns: int | None) -> None:
        """Note a hang that was told: no wait of that time is usual.

        A process that reads the log again would take it for one, and tell no hang that is shorter.
        """
        self.hang_spans.pop(hang_id, None)
        self.hang_spans[hang_id] = begin_ns, end_ns
        while len(self.hang_spans) > MAX_SPANS:
            del self.hang_spans[next(iter(self.hang_spans))]

    def _was_hung(self, arrived_ns: int, waited: int) -> bool:
        """Return whether it hung at some time of a wait (µs) that was told at a time (ns)."""
        began_ns = arrived_ns - (waited + READ_TWICE_US) * US_NS
        return any(
            begin_ns <= arrived_ns and (end_ns is None or end_ns >= began_ns)
            for begin_ns, end_ns in self.hang_spans.values()
        )

    def _note_rival(self, batch: BatchHead, arrived_ns: int) -> None:
        if batch.process_state in ENDED:
            return
        rival = self._rivals.get(batch.rank)
        if rival is None or arrived_ns - rival.until_ns > SILENT_NS:
            self._rivals[batch.rank] = _Rival(batch.host_id, arrived_ns, arrived_ns)
        else:
            rival.host_id, rival.until_ns = batch.host_id, max(rival.until_ns, arrived_ns)

    def mixed(self, now_ns: int) -> str | None:
        """Return what shows that two jobs are told under this name; None: nothing does."""
        twice = sorted(
            rank
            for rank, rival in self._rivals.items()
            if now_ns - rival.until_ns <= SILENT_NS and rival.until_ns - rival.since_ns >= TWICE_NS
            if rank in self.ranks
        )
        if not twice:
            return None
        hosts = f"{self.ranks[twice[0]].batch.host_id} and {self._rivals[twice[0]].host_id}"
        return (
            f"two living processes each say to be {rank_text(twice)} of {self.task_id}, as on "
            f"{hosts}: are there two jobs of this name?"
        )

    def weight(self) -> int:
        """Return how much is held of it, in operations."""
        held = sum(RANK_WEIGHT + len(s.operations) for s in self.ranks.values())
        tables: dict[int, Tables] = {}
        for state in self.ranks.values():
            tables |= state.operations.tables()
        held += sum(table.entries for table in tables.values())
        held += sum(1 + len(s.batch.sockets) for s in self.sockets.values())
        held += sum(1 + len(c.ranks) // MEMBERS_EACH for c in self.communicators.values())
        launches = self.stragglers.weight + self.readers.weight
        return held + len(self.waits) + launches // LAUNCHES_EACH

    def trim(self, most_kept: int) -> None:
        """Keep no more than so many finished operations of each communicator of a rank."""
        self.most_kept = min(most_kept, self.most_kept)
        self.stragglers.forget()
        self.readers.forget()
        for state in self.ranks.values():
            state.operations.forget_finished(self.most_kept)

    @property
    def trimmed(self) -> bool:
        """Whether less of it is kept than of the largest job, for there is no room."""
        return self.most_kept < LEAST_KEPT

    def _forget_before(self, since_ns: int) -> None:
        """Forget the ranks of an earlier attempt; what was usual in it stays so."""
        for rank in [r for r, state in self.ranks.items() if state.first_ns < since_ns]:
            del self.ranks[rank]
            self.sockets.pop(rank, None)
            self._rivals.pop(rank, None)
            self._held_up.pop(rank, None)
            self._over.pop(rank, None)
            self.readers.forget_rank(rank)

    def apply_sockets(self, batch: SocketBatch, arrived_ns: int) -> None:
        """Apply what a rank's sockets say."""
        self.heard_ns = max(self.heard_ns, arrived_ns)
        known = self.sockets.get(batch.rank)
        if known is not None:
            known.apply_batch(batch, arrived_ns)
        elif len(self.sockets) < MAX_RANKS:
            known = self.sockets[batch.rank] = SocketState(batch, arrived_ns)
        else:
            self.refused += 1
            return
        if (state := self.ranks.get(batch.rank)) is not None:
            self.readers.observe(known, state.attempt, state.operations.newest)
        if known.full:
            self.readers.note_full(known.full_peers(self.sockets))

    def apply_communicator(self, name: str, communicator: Communicator | None) -> None:
        """Apply a communicator, or (None) that there is none of that name any more."""
        if communicator is None:
            self.communicators.pop(name, None)
        elif name in self.communicators or len(self.communicators) < MAX_COMMUNICATORS:
            self.communicators[name] = communicator
        else:
            self.refused += 1

    def limit(self, communicator: str, timeout_ms: int | None) -> int:
        """Return how long (µs) an operation may wait."""
        return limit_of(*self._known_waits(communicator), len(self.waits), timeout_ms)

    def _known_waits(self, communicator: str) -> tuple[UsualWaits, UsualWaits]:
        """Return waits of a communicator, and of all; while few, those of the first iteration."""
        own = self.waits.get(communicator, UsualWaits())
        return own, self.every if self.every.count >= LEAST_WAITS else self.former

    @property
    def halted(self) -> bool:
        """Whether the kernel says of some process that it is stopped, or no more."""
        return any(state.halted for state in self.ranks.values())

    @property
    def unrecorded(self) -> bool:
        """Whether there are ranks, and the recorder of none was ever read."""
        return bool(self.ranks) and not self.recorded

    @property
    def cold(self) -> bool:
        """Whether half of the ranks, or more, are in their first iteration.

        Connections are made in it and code is compiled: nothing that is known tells how long. All
        ranks are in the same one; a rank that takes part in little more than the start does not
        count against the others. Microbatches look like iterations until what follows them ends, in
        a group in which nothing has ended yet.
        """
        launched = {r: s for r, s in self.ranks.items() if s.operations.newest >= 0 and not s.ended}
        first = {r for r, s in launched.items() if s.operations.warm_from is None}
        early = {r for r, s in launched.items() if s.operations.is_early}
        if 2 * len(first) < len(launched) <= 2 * len(early):
            ended = {
                name
                for state in self.ranks.values()
                for name in state.operations.communicators(finished=True)
            }
            idle = (c.ranks for name, c in self.communicators.items() if name not in ended)
            first |= early & {rank for ranks in idle if len(ranks) > 1 for rank in ranks}
        return bool(launched) and 2 * len(first) >= len(launched)

    def waiting(self, now_ns: int) -> list[Wait]:
        """Return the operation of each rank that has waited longest, longest first.

        Not of ranks that have ended, or of which nothing is heard: they wait for nothing.
        """
        found = []
        cold = self.cold
        for rank, state in self.ranks.items():
            if state.ended or state.is_silent(now_ns) or state.batch.recorded_at is None:
                continue
            oldest = state.operations.oldest_wait()
            if oldest is not None:
                waited, is_cold = state.waited(oldest), cold or oldest.is_cold
                found.append(Wait(rank, oldest, waited, state.read_ns, is_cold))
        return sorted(found, key=lambda wait: (-wait.waited, wait.rank))

    def overdue(self, waiting: Sequence[Wait]) -> list[Overdue]:
        """Return which of those that wait have waited longer than they may."""

        def limit(wait: Wait) -> int:
            usual = self.limit(wait.oldest.communicator, wait.oldest.timeout_ms)
            return max(usual, patience(wait.oldest.timeout_ms)) if wait.cold else usual

        return _beyond(waiting, limit)

    def held_up(self, waiting: Sequence[Wait]) -> list[Overdue]:
        """Return which wait while a process is stopped or gone; no longer than usual, perhaps."""
        if not self.halted:
            return []
        stopped = any(s.process_state is ProcessState.STOPPED for s in self.ranks.values())
        # When a job is ended its ranks go one after another.
        limit = READ_ONCE_US if stopped else READ_TWICE_US
        return _beyond(waiting, lambda _: limit)

    def longest(self, waiting: Sequence[Wait]) -> list[Overdue]:
        """Return which have waited longer than any whose wait ended, after the first iteration."""

        def limit(wait: Wait) -> int:
            waits = self._known_waits(wait.oldest.communicator)
            known = None if wait.cold else longest_of(*waits)
            return patience(wait.oldest.timeout_ms) if known is None else known

        return _beyond(waiting, limit)

    def snapshots(self, first: Mapping[int, int] | None = None) -> list[CollectiveSnapshot]:
        """Return the ranks as the analysis reads them, but those whose recorder was never read.

        Each source names communicators in its own way: a rank that is told from another one than
        most would be one that launched nothing in theirs, and counts as not read.

        Parameters
        ----------
        first
            By rank, the record id of the first operation that is wanted; None: all are.
        """
        views = self._views()
        read = [s for _, s in sorted(self.ranks.items()) if s.batch.recorded_at is not None]
        sources = Counter(state.batch.source for state in read)
        usual = max(sources, key=sources.__getitem__, default=None)
        over_ns = [end_ns for _, end_ns in self.hang_spans.values() if end_ns is not None]
        after_ns = max(over_ns, default=None)
        told = [state for state in read if state.batch.source is usual]
        return snapshots_of(told, views, after_ns, first)

    def compare_work(self, now_ns: int) -> None:
        """See whom the others waited for since, where the library's launches tell, as gloo's do."""
        states = self.ranks
        every_ns = COMPARE_NS * max(1, len(states) // COMPARED_AT_ONCE)
        early = now_ns - self._compared_ns < every_ns
        if early or not 2 <= len(states) <= MOST_COMPARED:
            return
        self._compared_ns = now_ns
        whole = self.world_size is None or len(states) == self.world_size
        if not whole or any(s.batch.library != "gloo" or s.ended for s in states.values()):
            return
        first = {rank: self._compared_from(rank) for rank in states}
        known = {rank: begin for rank, begin in first.items() if begin is not None}
        if len(known) < len(states):
            return
        snapshots = self.snapshots(known)
        if len(snapshots) < len(states):
            return
        worked = {
            rank: [w for w in done if w.record_id >= (states[rank].operations.warm_from or 0)]
            for rank, done in sole_work(snapshots, line_up(snapshots, sorted(states))).items()
        }
        kinds = max(s.operations.kinds() for s in states.values())
        self.stragglers.observe(worked, {r: s.attempt for r, s in states.items()}, kinds)

    def _compared_from(self, rank: int) -> int | None:
        """Return from which record id on a rank's operations are compared; None: not yet."""
        state = self.ranks[rank]
        if state.operations.warm_from is None:
            return None
        return max(0, self.stragglers.taken(rank, state.attempt) - OVERLAP)

    def _views(self) -> dict[str, CommunicatorProgress]:
        views = {}
        for name, communicator in self.communicators.items():
            world = communicator.role is CommunicatorRole.WORLD
            views[name] = CommunicatorProgress(
                communicator=name,
                description=communicator.description or (WORLD if world else ""),
                ranks=tuple(communicator.ranks) or None,
            )
        return views

    def _keep(self) -> int:
        """Return how many finished operations of a rank's communicator are kept."""
        share = MAX_OPERATIONS // (max(1, len(self.ranks)) * COMMUNICATORS_EACH)
        return min(self.most_kept, max(LEAST_KEPT, share))


def endpoints_of(ranks: Mapping[int, RankState], wanted: Iterable[int]) -> tuple[str, ...]:
    """Return the endpoints of some ranks, sorted."""
    return tuple(sorted({e for r in wanted if r in ranks for e in ranks[r].batch.endpoint_ids}))
