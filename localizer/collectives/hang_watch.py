"""Which jobs hang: opens, updates and resolves a hang, once each.

In: records of ranks, with the time at which each reached the broker. Out: transitions of hangs
(collective.hang.v1). A job has one hang at a time: what hangs in it hangs for one cause, or the
first cause hides the others. Times of arrival decide what is known when; how long an operation
has waited is measured by its own rank's clock. No two hosts' clocks are compared.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from localizer.collectives import diagnosis
from localizer.collectives.diagnosis import diagnose
from localizer.collectives.groups import is_finished
from localizer.collectives.hang_causes import Cause, cause_of
from localizer.collectives.hang_record import (
    Seen,
    followed,
    hang_of,
    resolved,
    slow_hang_of,
    unrecorded_hang_of,
)
from localizer.collectives.job_state import (
    LEAST_KEPT,
    MEMBERS_EACH,
    RANK_WEIGHT,
    JobRecord,
    JobState,
    Overdue,
)
from localizer.collectives.pace import LEAST_KNOWN
from localizer.collectives.rank_batch import RankBatch
from localizer.collectives.rank_state import SILENT_NS
from localizer.collectives.room import EASY_SHARE, FULL_SHARE, LEFT_SHARE, MOST_HELD, fair_level
from localizer.collectives.slow_causes import slow_cause
from localizer.collectives.stillness import last_move
from localizer.collectives.unrecorded import unrecorded_cause
from localizer.collectives.usual_waits import READ_TWICE_US, patience
from schemas.enums import Certainty, FaultLifecycle, HangClass, ProcessState
from schemas.ids import STATE_SEPARATOR
from schemas.records import CollectiveBatch, CollectiveSnapshot, Hang, SocketBatch
from schemas.units import SECOND_NS, US_NS, us_to_ns

# Decisions are made on this grid of event time, so that they do not depend on how records were
# batched: batches of a rank come every two seconds.
GRID_NS: Final = SECOND_NS
# A hang that comes back within this time is the same hang: one that goes on operation by operation.
RETURN_NS: Final = 60 * SECOND_NS
# A job of which nothing is heard for so long has ended, or nobody watches it any more.
FORGET_NS: Final = 120 * SECOND_NS
# An analysis of the largest jobs takes a second or two: these are looked at again less often.
AGAIN_NS: Final = 2 * SECOND_NS
LARGE: Final = 1_024
AGAIN_LARGE_NS: Final = 10 * SECOND_NS
MAX_JOBS: Final = 4_096
# The last operation of each communicator says where a rank stands.
LAST_KEPT: Final = 1
# A job that held more than there is room for, or that no analysis copes with, is taken up again
# after so long.
ASIDE_NS: Final = 120 * SECOND_NS
# What is wrong with a job's records, and nothing else.
OF_ONE_JOB: Final = (ValueError, ArithmeticError, LookupError, TypeError)
# Any rank may say how many there are, and those of which nothing is heard are looked at one by one.
# Of a job of which less than an eighth is heard their absence says nothing.
MOST_UNHEARD: Final = 8
SMALL_JOB: Final = 64


def event_time(newest_ns: int, told_ns: int, quiet_ns: int) -> int:
    """Return up to when it is known what came; records alone do not tell once none come any more.

    Durations alone count, no clock of this host: one that is ahead would make all ranks silent.

    Parameters
    ----------
    newest_ns
        When the newest record reached the broker; 0: there is none.
    told_ns
        When a hang was told last; counts where there is no record.
    quiet_ns
        For how long nothing came, though the broker was there and all was read.
    """
    known_ns = newest_ns or told_ns
    return known_ns + max(0, quiet_ns - SILENT_NS) if known_ns else 0


@dataclass(slots=True)
class _Watched:
    """A job, its last hang, in which attempt of the job, and when it was last looked at.

    Until `aside_ns` nothing is taken of it: it held too much. `seen_ns`: when there was last
    something to tell of one whose ranks record nothing. `begun`: which processes those were.
    `network_ns`: when a look last said that it is the network. `glanced_ns`: when it was last
    looked at though nothing waited for longer than usual.
    """

    job: JobState
    hang: Hang | None = None
    attempt: int | None = None
    looked_ns: int = 0
    aside_ns: int = 0
    seen_ns: int = 0
    begun: tuple[int, int] = (0, 0)
    network_ns: int = 0
    glanced_ns: int = 0

    @property
    def open_hang(self) -> Hang | None:
        """The hang, if it is not resolved."""
        hang = self.hang
        return None if hang is None or hang.state is FaultLifecycle.RESOLVED else hang

    def set_hang(self, hang: Hang) -> None:
        self.hang = hang
        self.job.hung = self.open_hang is not None
        self.note_span(hang)

    def note_span(self, hang: Hang) -> None:
        end_ns = None if hang.resolved_at is None else us_to_ns(hang.resolved_at)
        self.job.note_hang(hang.hang_id, us_to_ns(hang.onset_at), end_ns)


class HangWatch:
    """All jobs of a cluster.

    Parameters
    ----------
    cluster
        Its name.
    published
        Hangs that former processes have published: the latest state of each.

    Attributes
    ----------
    refused
        Records of jobs beyond the bounds.
    failures
        Jobs that no analysis coped with, and why; whoever tells of them empties it.
    most_held
        What is held of all jobs together at most; see `JobState.weight`.
    """

    def __init__(self, cluster: str, published: Iterable[Hang] = ()) -> None:
        self.refused = 0
        self.most_held = MOST_HELD
        self.failures: list[tuple[str, str]] = []
        self._held = self._fed = 0
        # Of tables that were fed since all was counted, their identities: ranks share them.
        self._counted: set[int] = set()
        self.now_ns: int | None = None
        self._cluster = cluster
        self._jobs: dict[str, _Watched] = {}
        self.follow(published)

    def __len__(self) -> int:
        """How many ranks are known."""
        return sum(len(w.job.ranks) for w in self._jobs.values())

    def follow(self, published: Iterable[Hang]) -> None:
        """Take over what another process has published; of each job the latest hang counts."""
        for hang in sorted(published, key=lambda h: (h.event_at, h.hang_id, h.seq)):
            if (watched := self._watched(hang.task_id)) is not None:
                watched.set_hang(hang)

    @property
    def latest_told_ns(self) -> int:
        """When a hang was told last; 0: none was."""
        told = (us_to_ns(w.hang.event_at) for w in self._jobs.values() if w.hang is not None)
        return max(told, default=0)

    @property
    def jobs(self) -> dict[str, JobState]:
        """What is known of each job, by task."""
        return {name: watched.job for name, watched in self._jobs.items()}

    @property
    def open_hangs(self) -> list[Hang]:
        """Return the hangs that are not resolved, by task."""
        held = (watched.open_hang for _, watched in sorted(self._jobs.items()))
        return [hang for hang in held if hang is not None]

    def feed(self, key: str, record: JobRecord | None, arrived_ns: int) -> None:
        """Take a record of one of the inputs; None is a tombstone of that key.

        Raises
        ------
        BatchError
            If a batch cannot be used; nothing of it is then.
        """
        if record is None:
            task_id, _, name = key.partition(STATE_SEPARATOR)
            if (known := self._jobs.get(task_id)) is not None:
                known.job.apply_communicator(name, None)
        elif (watched := self._watched(record.task_id, arrived_ns)) is not None:
            watched.job.apply(record, arrived_ns)
            self._note_fed(record, arrived_ns)

    def _note_fed(self, record: JobRecord, arrived_ns: int) -> None:
        """Count what came; what is held is counted when it may be too much."""
        match record:
            case RankBatch():
                operations = record.operations
                count, table = len(operations), operations.tables
                self._fed += RANK_WEIGHT + count
                if count and id(table) not in self._counted:
                    self._counted.add(id(table))
                    self._fed += table.entries
            case CollectiveBatch():
                self._fed += RANK_WEIGHT + len(record.operations)
                self._fed += len(record.signatures) + len(record.frames) + len(record.shapes)
            case SocketBatch():
                self._fed += 1 + len(record.sockets)
            case _:
                self._fed += 1 + len(record.ranks) // MEMBERS_EACH
        if self._held + self._fed > self.most_held:
            self._make_room(arrived_ns)

    def _make_room(self, now_ns: int) -> None:
        """Let the jobs that hold more than their share keep less, then drop those that must go.

        First as little history as of the largest job, which costs no conclusion, then the last
        operations alone. The heaviest goes first: it is told as over, if it hung, and taken up
        again later.
        """
        held = {name: watched.job.weight() for name, watched in self._jobs.items()}
        if sum(held.values()) > self.most_held * FULL_SHARE:
            room = int(self.most_held * LEFT_SHARE)
            for keep in (LEAST_KEPT, LAST_KEPT):
                level = fair_level(held.values(), room)
                for name in [name for name, own in held.items() if own > level]:
                    self._jobs[name].job.trim(keep)
                    held[name] = self._jobs[name].job.weight()
            while sum(held.values()) > room:
                name = max(held, key=lambda name: (held[name], name))
                self._set_aside(self._jobs[name], now_ns)
                held[name] = 0
        elif sum(held.values()) < self.most_held * EASY_SHARE:
            for watched in self._jobs.values():
                watched.job.most_kept = max(LEAST_KEPT, watched.job.most_kept)
        self._held, self._fed = sum(held.values()), 0
        self._counted.clear()

    def _set_aside(self, watched: _Watched, now_ns: int) -> None:
        """Forget a job, and take nothing of it for a while."""
        job = watched.job
        watched.job = JobState(
            job.task_id, hung=watched.open_hang is not None, hang_spans=job.hang_spans
        )
        watched.aside_ns = now_ns + ASIDE_NS
        self.refused += 1

    @property
    def held(self) -> int:
        """What is held of all jobs together, or may be."""
        return self._held + self._fed

    def set_aside(self, now_ns: int) -> list[str]:
        """Return the jobs of which nothing is taken, for they held too much."""
        return sorted(name for name, watched in self._jobs.items() if watched.aside_ns > now_ns)

    def _watched(self, task_id: str, arrived_ns: int = 0) -> _Watched | None:
        known = self._jobs.get(task_id)
        if known is not None and known.aside_ns > arrived_ns > 0:
            self.refused += 1
            return None
        if known is None:
            if len(self._jobs) >= MAX_JOBS and not self._drop_one():
                self.refused += 1
                return None
            known = self._jobs[task_id] = _Watched(JobState(task_id))
        return known

    def _drop_one(self) -> bool:
        """Forget a job of which only communicators are known, such as one that has ended."""
        idle = (n for n, w in self._jobs.items() if not w.job.ranks and w.open_hang is None)
        name = next(idle, None)
        if name is not None:
            del self._jobs[name]
        return name is not None

    def advance(self, to_ns: int) -> list[Hang]:
        """Decide at the last point of the grid up to a time; all records before have been fed.

        Returns
        -------
        list of Hang
            Transitions, by task.
        """
        now_ns = to_ns // GRID_NS * GRID_NS
        if self.now_ns is not None and now_ns <= self.now_ns:
            return []
        self.now_ns = now_ns
        found = []
        for name, watched in sorted(self._jobs.items()):
            try:
                hang = self._decide(watched, now_ns)
            except OF_ONE_JOB as error:
                # One job's strange records must not end the watch of all others.
                self.failures.append((name, repr(error)))
                self._set_aside(watched, now_ns)
                continue
            if hang is not None:
                watched.set_hang(hang)
                found.append(hang)
        self.forget(now_ns)
        return found

    def forget(self, now_ns: int) -> None:
        """Forget the jobs that have ended, as `advance` does."""
        for name, watched in list(self._jobs.items()):
            job = watched.job
            heard_ns = job.heard_ns
            if watched.hang is not None:
                heard_ns = max(heard_ns, us_to_ns(watched.hang.event_at))
            heard_ns = max(heard_ns, watched.aside_ns)
            if watched.open_hang is None and now_ns - heard_ns > FORGET_NS:
                job.forget_ranks()
                if not job.communicators:
                    del self._jobs[name]

    def _decide(self, watched: _Watched, now_ns: int) -> Hang | None:
        job = watched.job
        if job.unrecorded:
            return self._decide_unrecorded(watched, now_ns)
        job.pace.observe(job.ranks, now_ns)
        job.compare_work(now_ns)
        waiting = job.waiting(now_ns)
        overdue = job.overdue(waiting)
        known = watched.open_hang
        if known is not None and known.communicator is None:
            # At half of its pace a job waits twice as long as usual, and has not stopped.
            share = job.pace.share()
            overdue = [o for o in overdue if o.waited * share > o.limit]
            if _goes_on_slowly(job, overdue, now_ns):
                overdue = []
        late = overdue or job.held_up(waiting)
        longest = late or job.longest(waiting)
        odd = known is not None and known.hang_class is HangClass.DESYNCHRONISED
        still = longest if odd else late
        if known is not None and (why := _why_over(watched, known, still, now_ns)) is not None:
            return resolved(known, now_ns, why)
        slow = known is None and job.slow and job.goes_on(now_ns)
        looked_ns = watched.looked_ns
        found = None
        if overdue:
            if _may_look(job, overdue, now_ns, looked_ns, AGAIN_NS):
                watched.looked_ns = now_ns
                found = self._analyse(job, overdue, now_ns)
        elif _may_look(job, longest, now_ns, watched.glanced_ns, GRID_NS):
            watched.glanced_ns = now_ns
            tells = _is_seen if late else _is_surely_odd
            found = self._analyse(job, longest, now_ns, tells)
        if found is not None and known is not None and known.communicator is None:
            # It is told at the next point of the grid: a job has one hang at a time.
            watched.looked_ns = watched.glanced_ns = 0
            return resolved(known, now_ns, "the job has stopped")
        due = now_ns - looked_ns >= _again_ns(job, AGAIN_NS)
        if found is None and slow and due and (overdue or not late):
            watched.looked_ns = now_ns
            found = self._slow(job, now_ns)
        return None if found is None else _follow(watched, found, now_ns)

    def _decide_unrecorded(self, watched: _Watched, now_ns: int) -> Hang | None:
        """Return what is to be told of a job of whose operations nothing is known."""
        job, known = watched.job, watched.open_hang
        if now_ns - watched.looked_ns < _again_ns(job, AGAIN_NS):
            return None
        watched.looked_ns = now_ns
        if watched.begun != (begun := (job.attempt, job.restarted_ns)):
            watched.begun = begun
            job.stillness.begin_anew(now_ns)
        # A pause of which nobody knows why, and that ended by itself, was one after all.
        hung = known is not None and known.hang_class is not HangClass.UNDECIDED
        job.stillness.observe(job.sockets, now_ns, hung=hung)
        cause = unrecorded_cause(job, now_ns)
        if cause is not None or not watched.seen_ns:
            watched.seen_ns = now_ns
        if known is not None:
            why = _why_not_watched(watched, known, now_ns)
            if why is None and known.communicator is not None:
                # What it was told from has not come yet, as when this process has just begun.
                return None
            if why is None and (cause is None or cause.hang_class is not known.hang_class):
                why = _why_not_stopped(job, known, now_ns)
            if why is None and cause is None:
                why = _why_not_still(watched, known, now_ns)
            if why is not None:
                return resolved(known, now_ns, why)
        if cause is None:
            return None
        return _follow(watched, unrecorded_hang_of(self._cluster, job, cause, now_ns), now_ns)

    def _slow(self, job: JobState, now_ns: int) -> Hang | None:
        """Return what is to be told of a job that goes on more slowly than it ever did."""
        cause = slow_cause(job)
        return None if cause is None else slow_hang_of(self._cluster, job, cause, now_ns)

    def _analyse(
        self,
        job: JobState,
        overdue: list[Overdue],
        now_ns: int,
        tells: Callable[[Cause], bool] | None = None,
    ) -> Hang | None:
        """Return what is to be told of what waits.

        Parameters
        ----------
        tells
            Which causes are told of what waits for no longer than usual; None: it has waited for
            longer, and all are.
        """
        seen = tells is not None
        snapshots = [_without_stale_waits(s, job, now_ns) for s in job.snapshots()]
        found = diagnose(snapshots, world_size=_believed_size(job), overdue=not seen)
        late = {o.rank for o in overdue}
        names = {group.label: group.name for group in found.groups}
        # One that does something else may be why another one ended: it got what it did not expect.
        odd = diagnosis.HangClass.DESYNCHRONISED
        for finding in sorted(found.findings, key=lambda f: f.hang_class is not odd):
            usual = finding.hang_class is diagnosis.HangClass.USUAL_WAIT
            if (usual and not seen) or late.isdisjoint(finding.waiting):
                continue
            name = names.get(finding.group, finding.group)
            if _may_be_over(finding, name, job, now_ns):
                continue
            cause = cause_of(finding, name, job, now_ns, overdue=overdue)
            if cause is not None and tells is not None and not tells(cause):
                continue
            if cause is not None:
                told = Seen(
                    finding=finding, communicator=name, cause=cause, overdue=overdue,
                    notes=found.notes,
                )  # fmt: skip
                return hang_of(self._cluster, job, told, now_ns)
        return None


def _follow(watched: _Watched, found: Hang, now_ns: int) -> Hang | None:
    """Return the next transition of the job's hang, or the first of another one."""
    job, hang, known = watched.job, watched.hang, watched.open_hang
    soon = hang is not None and now_ns - us_to_ns(hang.event_at) <= RETURN_NS
    alike = hang is not None and (hang.communicator is None) == (found.communicator is None)
    # Who took over from another process knows of no attempt, and opens no hang a second time.
    again = (soon and watched.attempt == job.attempt) or (
        hang is not None and hang.hang_id == found.hang_id
    )
    if found.hang_class is HangClass.NETWORK:
        watched.network_ns = now_ns
    if hang is not None and alike and (known is not None or again):
        # What another process has told it may have seen until it ended.
        said_ns = max(watched.network_ns, us_to_ns(hang.event_at))
        return followed(hang, found, network_lately=now_ns - said_ns <= RETURN_NS)
    watched.attempt = job.attempt
    return found


def _without_stale_waits(
    snapshot: CollectiveSnapshot, job: JobState, now_ns: int
) -> CollectiveSnapshot:
    """Return a rank without what it waited in when it was last heard, if that is long ago.

    It may be over, and the rank may have launched more: whoever waits for it waits for one of which
    nothing is known, and what it waited in explains nothing.
    """
    state = job.ranks[snapshot.rank]
    if state.ended or not state.is_silent(now_ns):
        return snapshot
    return replace(snapshot, operations=tuple(o for o in snapshot.operations if is_finished(o)))


def _is_seen(cause: Cause) -> bool:
    """Return whether a cause is what the kernel says of a process, or why it came to that."""
    classes = {HangClass.PROCESS_STOPPED, HangClass.RANK_MISSING}
    sure = cause.hang_class in classes and cause.certainty is Certainty.SURE
    return sure or cause.hang_class is HangClass.DESYNCHRONISED


def _is_surely_odd(cause: Cause) -> bool:
    """Return whether ranks do different things, which two records of one operation say."""
    return cause.hang_class is HangClass.DESYNCHRONISED and cause.certainty is Certainty.SURE


def _may_look(
    job: JobState, waits: list[Overdue], now_ns: int, looked_ns: int, again_ns: int
) -> bool:
    """Return whether something waits of which all is read, and the last look is long enough ago."""
    due = now_ns - looked_ns >= _again_ns(job, again_ns)
    return bool(waits) and due and _is_read_since(job, waits, now_ns)


def _again_ns(job: JobState, again_ns: int) -> int:
    """Return how long after a look at a job the next one is due."""
    return AGAIN_LARGE_NS if len(job.ranks) > LARGE else again_ns


def _may_be_over(finding: diagnosis.Finding, communicator: str, job: JobState, now_ns: int) -> bool:
    """Return whether those that wait were read before others that have finished the operation.

    So it is when a long pause ends: some ranks are read before its end, others after it. A process
    that is stopped is read no more.
    """
    ends = [job.ranks[rank].read_ns for rank in finding.finished if rank in job.ranks]
    if not ends:
        return False
    first_ns = min(ends)
    waiting = (job.ranks[rank] for rank in finding.waiting if rank in job.ranks)
    return any(
        state.read_ns < first_ns
        and not state.halted
        and now_ns - state.read_ns <= SILENT_NS
        and state.operations.waits_in(communicator)
        for state in waiting
    )


def _believed_size(job: JobState) -> int | None:
    """Return how many ranks a job has, None if so few of them are heard that it does not matter."""
    size = job.world_size
    believed = max(SMALL_JOB, MOST_UNHEARD * len(job.ranks))
    return None if size is None or size > believed else size


def _why_not_watched(watched: _Watched, hang: Hang, now_ns: int) -> str | None:
    """Return why nothing more is known of a hang; None: it still is."""
    job = watched.job
    if watched.aside_ns > now_ns:
        return "more is told of it than there is room for, so it is not watched"
    if now_ns - max(job.heard_ns, us_to_ns(hang.event_at)) > FORGET_NS:
        return "nothing is heard of the job any more"
    if watched.attempt not in {None, job.attempt}:
        return "the job was started anew"
    return None


def _why_not_stopped(job: JobState, hang: Hang, now_ns: int) -> str | None:
    """Return why nobody knows that the processes named are stopped; None: some are, or may be."""
    event_ns = us_to_ns(hang.event_at)
    if hang.hang_class is not HangClass.PROCESS_STOPPED or now_ns <= event_ns:
        return None
    named = [job.ranks.get(rank) for rank in hang.ranks]
    over = all(
        state is not None
        and (
            state.is_silent(now_ns)
            or (state.arrived_ns > event_ns and state.process_state is not ProcessState.STOPPED)
        )
        for state in named
    )
    return "none of these processes is seen to be stopped any more" if over else None


def _why_not_still(watched: _Watched, hang: Hang, now_ns: int) -> str | None:
    """Return why a job of which nothing wrong is seen stands still no longer; None: it may."""
    job, event_ns = watched.job, us_to_ns(hang.event_at)
    if job.ranks and all(state.ended for state in job.ranks.values()):
        return "its ranks have ended"
    if job.stillness.moved_ns > event_ns:
        return "bytes move between its ranks again"
    unseen = now_ns - max(watched.seen_ns, event_ns) > RETURN_NS
    return "what it was told from has not been seen for a minute" if unseen else None


def _why_over(watched: _Watched, hang: Hang, overdue: list[Overdue], now_ns: int) -> str | None:
    """Return why a hang is over; None: it is not, or that is not known yet."""
    job = watched.job
    if (why := _why_not_watched(watched, hang, now_ns)) is not None:
        return why
    if hang.communicator is None:
        return _why_not_slow(job)
    # A process that starts again has read nothing of the job yet.
    waited = [job.ranks[rank] for rank in hang.waiting_ranks if rank in job.ranks]
    heard = any(
        state.arrived_ns > us_to_ns(hang.event_at)
        and not state.is_silent(now_ns)
        and (state.ended or state.batch.missing_reason is None)
        for state in waited
    )
    return "the job goes on, or its ranks have ended" if heard and not overdue else None


def _why_not_slow(job: JobState) -> str | None:
    """Return why a job is slow no longer; None: it is."""
    if job.ranks and all(state.ended for state in job.ranks.values()):
        return "its ranks have ended"
    slow = job.slow or len(job.pace.known) < LEAST_KNOWN
    return None if slow else "the job is no slower than it was in its slowest moments"


def _goes_on_slowly(job: JobState, overdue: list[Overdue], now_ns: int) -> bool:
    """Return whether bytes move between the ranks of a slow job all the while that some wait.

    Where one rank reads or writes slowly the others wait for longer than its pace explains, each
    for what the others take in turn. They may as long as for a rank that works.
    """
    if not overdue or any(one.waited > patience(one.timeout_ms) for one in overdue):
        return False
    return now_ns - last_move(job.sockets) <= READ_TWICE_US * US_NS


def _is_read_since(job: JobState, overdue: list[Overdue], now_ns: int) -> bool:
    """Return whether each rank was read since the first of them has waited longer than usual.

    A rank whose picture is older may have launched what the others wait for. Of a job that is
    started anew it may be of a process that is no more: all are read again first.
    """
    since_ns = max(min(o.since_ns for o in overdue), job.restarted_ns)
    return all(
        state.read_ns >= since_ns or state.halted or now_ns - state.read_ns > SILENT_NS
        for state in job.ranks.values()
    )
