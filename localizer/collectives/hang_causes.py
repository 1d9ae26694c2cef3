"""What a hang is: the graph of who waits for whom, beside the ranks' processes and sockets.

The graph says where the waiting ends: at a rank, at an operation that all launched, or at ranks
that do different things. Processes and sockets say why. What is seen weighs more than what is
absent: a process that the kernel calls stopped, bytes that nobody acknowledges, then bytes that
nobody reads. A conclusion from something that is absent is never sure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from localizer.collectives import diagnosis
from localizer.collectives.ages import UNUSUAL
from localizer.collectives.diagnosis import Finding
from localizer.collectives.job_state import JobState, Overdue
from localizer.collectives.ranges import rank_text
from localizer.collectives.rank_state import SILENT_NS, RankState
from localizer.collectives.sockets import Stuck, common_ranks, stuck_flows
from localizer.collectives.usual_waits import READ_TWICE_US, patience
from schemas.enums import Certainty, HangClass, ProcessState
from schemas.units import SECOND_NS, US_NS

SHOWN_FLOWS: Final = 8
SHOWN_RANKS: Final = 8
CERTAINTY: Final = {
    diagnosis.Certainty.SURE: Certainty.SURE,
    diagnosis.Certainty.LIKELY: Certainty.LIKELY,
    diagnosis.Certainty.UNDECIDED: Certainty.UNDECIDED,
}
LOOK_AT_NETWORK: Final = (
    "faults of the network at these endpoints: skeletonhunter tail fault.state.v1",
    "ss -tinp of both ends: retransmissions, the backoff of the timer",
)
LOOK_AT_STOPPED: Final = (
    "kill -CONT PID if somebody stopped it; a debugger, a frozen cgroup?",
    "cat /proc/PID/status /proc/PID/wchan /proc/PID/stack on its host",
)
LOOK_AT_GPU: Final = (
    "nvidia-smi -q and dmesg on their hosts: an Xid, ECC errors, a GPU that fell off the bus?",
    "cuda-gdb or py-spy dump --native of these ranks: which kernel does not end?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What a hang is, and who is to blame.

    `ranks` are the culprits; `flows` the sockets that are stuck, of class NETWORK only; `lasts_ns`
    how long a job is slow already, at least.
    """

    hang_class: HangClass
    certainty: Certainty
    ranks: tuple[int, ...]
    evidence: tuple[str, ...]
    next_steps: tuple[str, ...]
    flows: tuple[Stuck, ...] = ()
    lasts_ns: int = 0


def cause_of(
    finding: Finding,
    communicator: str,
    job: JobState,
    now_ns: int,
    *,
    overdue: Sequence[Overdue] = (),
) -> Cause | None:
    """Return the cause of what the graph found; None while it may still be a pause.

    Parameters
    ----------
    finding
        Not one of a usual wait.
    communicator
        Name of its group.
    now_ns
        Event time.
    overdue
        What has waited longer than it may, longest first.
    """
    look = _Look(finding, communicator, job, now_ns)
    odd = look.desynchronised()
    found = (
        # One that does something else may have ended, or stopped, for that. One of a circle that is
        # gone has not: its last word says that it waits, which it does no more.
        (None if finding.circle else odd)
        or look.stopped()
        or look.ended()
        or odd
        or look.network()
        or look.never_launched()
        or look.missing()
        or look.unread()
        or look.gpu()
        or look.undecided()
    )
    if look.pauses(found):
        return None
    late_us = max((one.waited - one.limit for one in overdue), default=0)
    if late_us * US_NS < SILENT_NS and (look.is_early(found) or not look.explains(found, overdue)):
        return None
    return look.with_doubts(found)


def _went_on(state: RankState) -> bool:
    """Return whether a rank's GPU began or finished something within the last two readings."""
    progress, recorded = state.operations.latest_progress(), state.batch.recorded_at
    return bool(progress) and recorded is not None and recorded - (progress or 0) < READ_TWICE_US


class _Look:
    """One finding, held against what else is known of the job."""

    def __init__(self, finding: Finding, communicator: str, job: JobState, now_ns: int) -> None:
        self._finding = finding
        self._communicator = communicator
        self._job = job
        self._now_ns = now_ns
        self._behind = finding.hang_class is diagnosis.HangClass.NEVER_LAUNCHED
        # Those of which the cause may be one: who is behind, who waits for each other, or all who
        # take part.
        self._suspects = (
            finding.ranks
            or finding.circle
            or tuple(
                rank
                for rank in finding.waiting
                if rank in job.ranks and job.ranks[rank].operations.waits_in(communicator)
            )
        )
        # A rank whose GPU has not come to what all launched need not wait for anything itself.
        launched = {*self._suspects, *finding.unbegun}
        self._launched = {r: job.ranks[r] for r in sorted(launched) if r in job.ranks}
        self._states = {r: job.ranks[r] for r in self._suspects if r in job.ranks}

    def stopped(self) -> Cause | None:
        """Return whose process the kernel says is stopped."""
        ranks = [r for r, s in self._launched.items() if s.process_state is ProcessState.STOPPED]
        if not ranks:
            return None
        evidence = [
            f"{process_text(self._launched[r])} is stopped (state T)" for r in ranks[:SHOWN_RANKS]
        ]
        return make_cause(
            (HangClass.PROCESS_STOPPED, Certainty.SURE), ranks, evidence, LOOK_AT_STOPPED
        )

    def ended(self) -> Cause | None:
        """Return whose process is no more."""
        ranks = [r for r, s in self._launched.items() if s.ended]
        if not ranks:
            return None
        evidence = [f"{process_text(self._launched[r])} has ended" for r in ranks[:SHOWN_RANKS]]
        steps = diagnosis.LOOK_AT_PROCESS[1:]
        return make_cause((HangClass.RANK_MISSING, Certainty.SURE), ranks, evidence, steps)

    def desynchronised(self) -> Cause | None:
        """Return the ranks that do different things."""
        finding = self._finding
        if finding.hang_class is not diagnosis.HangClass.DESYNCHRONISED:
            return None
        certainty = CERTAINTY[finding.certainty]
        return make_cause(
            (HangClass.DESYNCHRONISED, certainty), finding.ranks, (), finding.next_steps
        )

    def network(self) -> Cause | None:
        """Return bytes of or for the suspects that the other end's kernel does not acknowledge."""
        flows = stuck_flows(self._job.sockets, self._suspects)
        if not flows:
            return None
        repeats = any(flow.repeats for flow in flows)
        certainty = Certainty.SURE if repeats and not self._behind else Certainty.LIKELY
        hosts = {rank: state.batch.host_id for rank, state in self._job.ranks.items()}
        return make_cause(
            (HangClass.NETWORK, certainty), common_ranks(flows, hosts), flow_texts(flows),
            LOOK_AT_NETWORK, flows=tuple(flows),
        )  # fmt: skip

    def never_launched(self) -> Cause | None:
        """Return the ranks that are behind, wait for nothing, and are alive."""
        if not self._behind:
            return None
        silent = [r for r, s in self._states.items() if s.is_silent(self._now_ns)]
        alive = [r for r in self._finding.ranks if r not in silent]
        if silent and not alive:
            return self._silent(silent)
        # Of those that are behind and not heard it is not known whether they still are.
        evidence = [_work_text(self._states[r]) for r in alive[:SHOWN_RANKS] if r in self._states]
        return make_cause(
            (HangClass.NEVER_LAUNCHED, CERTAINTY[self._finding.certainty]),
            alive,
            [text for text in evidence if text],
            self._finding.next_steps,
        )

    def _silent(self, ranks: Sequence[int]) -> Cause:
        evidence = [
            f"rank {r}: nothing has been heard of it for "
            f"{(self._now_ns - self._states[r].arrived_ns) / SECOND_NS:.0f} s"
            for r in ranks[:SHOWN_RANKS]
        ]
        hosts = sorted({self._states[r].batch.host_id for r in ranks})
        evidence.append(f"collector, host or its way to the broker is down: {', '.join(hosts)}")
        return make_cause(
            (HangClass.RANK_MISSING, Certainty.UNDECIDED), ranks, evidence, self._finding.next_steps
        )

    def missing(self) -> Cause | None:
        """Return the ranks that others wait for, and of which nothing was ever heard."""
        finding = self._finding
        if finding.hang_class is not diagnosis.HangClass.MISSING_DUMP:
            return None
        evidence = [f"nothing was ever heard of {rank_text(finding.ranks)}"]
        what = HangClass.RANK_MISSING, CERTAINTY[finding.certainty]
        return make_cause(what, finding.ranks, evidence, finding.next_steps)

    def unread(self) -> Cause | None:
        """Return whose process uses no time at all, and what lies there unread."""
        still = [r for r, s in self._states.items() if s.cpu_share() == 0.0]
        others = [r for r in self._states if r not in still]
        if not still or not others:
            return None
        evidence = idle_texts(still, self._job, "uses no CPU time, those of the others do")
        return make_cause(
            (HangClass.PROCESS_STOPPED, Certainty.LIKELY), still, evidence, LOOK_AT_STOPPED
        )

    def gpu(self) -> Cause | None:
        """Say that GPUs are left: all launched, and nothing is on the network."""
        if unbegun := self._finding.unbegun:
            evidence = [f"others' GPUs have begun it, not that of {rank_text(unbegun)}"]
            return make_cause(
                (HangClass.GPU_STOPPED, Certainty.LIKELY), unbegun, evidence, LOOK_AT_GPU
            )
        libraries = {(s.batch.library or "").lower() for s in self._states.values()}
        sockets = [self._job.sockets.get(r) for r in self._suspects]
        if not libraries or any("nccl" not in library for library in libraries):
            return None
        if any(s is None or not s.known or not s.batch.sockets or s.outstanding for s in sockets):
            return None
        if not self._is_on_sockets():
            return None
        evidence = ["no byte is queued, unacknowledged or unread at any socket of these ranks"]
        return make_cause((HangClass.GPU_STOPPED, Certainty.LIKELY), (), evidence, LOOK_AT_GPU)

    def _is_on_sockets(self) -> bool:
        """Return whether the sockets carry the job's bytes: what RDMA carries they do not show."""
        hosts = {rank: state.batch.host_id for rank, state in self._job.ranks.items()}
        # Communicators within a host; of members that are not known some may be elsewhere.
        within = {
            name
            for name, communicator in self._job.communicators.items()
            if len({hosts.get(rank) for rank in communicator.ranks}) == 1
        }
        for rank, state in self._states.items():
            sockets = self._job.sockets.get(rank)
            sent = 0 if sockets is None else sum(s.sent_bytes or 0 for s in sockets.batch.sockets)
            most = state.operations.most_bytes(within)
            # A library sends half of the bytes at least, however it does it.
            if 2 * sent < most:
                return False
        return True

    def undecided(self) -> Cause:
        """Say that nothing tells why what all launched does not end."""
        unknown = [
            r
            for r in self._suspects
            if r not in self._job.sockets or not self._job.sockets[r].known
        ]
        evidence = []
        if unknown:
            evidence.append(f"the sockets of {rank_text(sorted(unknown))} are not known")
        return make_cause(
            (HangClass.UNDECIDED, Certainty.UNDECIDED), (), evidence, self._finding.next_steps
        )

    def pauses(self, cause: Cause) -> bool:
        """Return whether others only wait for a rank that works, and may go on by itself."""
        if cause.hang_class is not HangClass.NEVER_LAUNCHED:
            return False
        waited = self._finding.age.waited
        if waited is None or self._finding.age.timed_out:
            return False
        if self._is_in_the_others_pause(cause.ranks):
            return True
        if not any(self._states[r].is_busy() for r in cause.ranks if r in self._states):
            return False
        timeouts_ms = [
            timeout_ms
            for r in self._finding.waiting
            if (state := self._job.ranks.get(r)) is not None
            for timeout_ms in state.operations.pending_timeouts_ms()
        ]
        return waited <= max(map(patience, timeouts_ms), default=patience(None))

    def _is_in_the_others_pause(self, ranks: Sequence[int]) -> bool:
        """Return whether ranks that are behind have been idle no longer than those that wait were.

        All of them pause at one place of the program, to evaluate or to save, and some came to it
        later than others: what they did before held them up, as a slow transfer does. The pause is
        the shortest of those that wait, for the others of them may have waited in what came before.
        """
        idle = [self._job.idle_us(rank) for rank in ranks if rank in self._job.ranks]
        known = [us for us in idle if us is not None]
        if not known or len(known) < len(idle):
            return False
        paused = False
        for rank in self._finding.waiting:
            state = self._job.ranks.get(rank)
            if state is None:
                continue
            for number in state.operations.waits_at(self._communicator, self._finding.sequence):
                pause = self._job.pause_before_us(rank, number)
                # Of ten thousand that wait the first tells, as a rule.
                if pause is not None and max(known) > UNUSUAL * pause:
                    return False
                paused |= pause is not None
        return paused

    def is_early(self, cause: Cause) -> bool:
        """Return whether somebody who takes part may soon turn out to be gone, or to go on.

        Nothing has been heard of it for longer than between two readings, or its GPU went on since:
        a job that is slow waits for longer than it ever did. And nothing else tells why what all
        launched does not end, or why ranks wait for each other.
        """
        unsure = {HangClass.UNDECIDED, HangClass.GPU_STOPPED}
        if self._finding.circle:
            unsure.add(HangClass.DESYNCHRONISED)
        if cause.hang_class not in unsure:
            return False
        states = [s for r, s in self._launched.items() if not cause.ranks or r in cause.ranks]
        return any(
            (
                self._now_ns - state.arrived_ns > READ_TWICE_US * US_NS
                and not (state.halted or state.is_silent(self._now_ns))
            )
            or _went_on(state)
            for state in states
        )

    def explains(self, cause: Cause, overdue: Sequence[Overdue]) -> bool:
        """Return whether what the waiting ends at may have held up those that are overdue.

        A rank that stops holds others up from then on; before that they have waited as long as
        usual. What began later than that is no reason for most of a wait: the job goes on, more
        slowly than ever, and others come to stand at the end of the chain one after the other.
        What has taken longer than an operation may wait is told all the same.
        """
        late = [one for one in overdue if one.rank in self._finding.waiting]
        begun_ns = self._begun_ns(cause)
        if not late or begun_ns is None:
            return True
        return any(
            begun_ns <= one.since_ns or self._now_ns - begun_ns > one.limit * US_NS for one in late
        )

    def _begun_ns(self, cause: Cause) -> int | None:
        """Return since when what the waiting ends at may hold others up, by times of arrival.

        Ranks that are behind since the first of them was idle, an operation since the last of those
        that wait in it launched it. None: not known, or seen, and not concluded.
        """
        job, finding = self._job, self._finding
        if cause.hang_class is HangClass.NEVER_LAUNCHED:
            idle_ns = [job.idle_since_ns(rank) for rank in cause.ranks if rank in job.ranks]
            return min((ns for ns in idle_ns if ns is not None), default=None)
        if cause.hang_class not in {HangClass.UNDECIDED, HangClass.GPU_STOPPED}:
            return None
        launched_ns = [
            job.launched_ns(rank, number)
            for rank, state in self._launched.items()
            for number in state.operations.waits_at(self._communicator, finding.sequence)
        ]
        return max((ns for ns in launched_ns if ns is not None), default=None)

    def with_doubts(self, cause: Cause) -> Cause:
        """Return the cause less sure where something is missing that may tell otherwise."""
        doubts = [f"but: {doubt}" for doubt in self._finding.doubts]
        seen = {HangClass.NETWORK, HangClass.PROCESS_STOPPED, HangClass.DESYNCHRONISED}
        gone = [s for s in self._states.values() if s.batch.missing_reason and not s.ended]
        stopped = cause.hang_class is HangClass.PROCESS_STOPPED
        for state in gone[:SHOWN_RANKS] if not stopped else ():
            doubts.append(f"but: rank {state.rank}: {state.batch.missing_reason}")
        certainty = cause.certainty
        absent = cause.hang_class not in seen and certainty is not Certainty.UNDECIDED
        if self._job.trimmed:
            doubts.append("but: there was no room to keep more than its last operations")
        if (mixed := self._job.mixed(self._now_ns)) is not None:
            doubts.insert(0, f"but: {mixed}")
        if mixed is not None or (absent and (gone or self._job.trimmed)):
            certainty = Certainty.LIKELY if certainty is Certainty.SURE else Certainty.UNDECIDED
        evidence = (*cause.evidence, *self._finding.evidence, *doubts)
        return replace(cause, certainty=certainty, evidence=evidence)


def make_cause(
    what: tuple[HangClass, Certainty],
    ranks: Iterable[int],
    evidence: Iterable[str],
    next_steps: Iterable[str],
    *,
    flows: tuple[Stuck, ...] = (),
    lasts_ns: int = 0,
) -> Cause:
    """Return a cause whose ranks are in order."""
    hang_class, certainty = what
    return Cause(
        hang_class=hang_class, certainty=certainty, ranks=tuple(sorted(ranks)),
        evidence=tuple(evidence), next_steps=tuple(next_steps), flows=flows, lasts_ns=lasts_ns,
    )  # fmt: skip


def process_text(state: RankState) -> str:
    """Return how people are told of a rank's process."""
    pid = state.batch.pid
    return f"the process of rank {state.rank}" + ("" if pid is None else f" (pid {pid})")


def idle_texts(ranks: Sequence[int], job: JobState, what: str) -> list[str]:
    """Return how people are told of the first processes that take nothing in, and what lies there.

    `what` says why they do not.
    """
    found = []
    for rank in ranks[:SHOWN_RANKS]:
        sockets = job.sockets.get(rank)
        unread = 0 if sockets is None else sockets.unread_bytes()
        text = f"{process_text(job.ranks[rank])} {what}"
        found.append(f"{text}; {unread:,} bytes lie there unread" if unread else text)
    return found


def _work_text(state: RankState) -> str:
    if state.process_state is ProcessState.DISK:
        return f"{process_text(state)} waits for a disk (state D)"
    share = state.cpu_share()
    if share is None:
        return ""
    does = "works" if state.is_busy() else "is alive and does next to nothing"
    return f"{process_text(state)} {does}: {share:.2f} cores since its last launch"


def flow_texts(flows: Sequence[Stuck]) -> list[str]:
    """Return how people are told of sockets that are stuck: of the first ones one by one."""
    evidence = [_flow_text(flow) for flow in flows[:SHOWN_FLOWS]]
    if len(flows) > SHOWN_FLOWS:
        evidence.append(f"and {len(flows) - SHOWN_FLOWS} sockets more")
    return evidence


def _flow_text(flow: Stuck) -> str:
    """Return how people are told of bytes that are not acknowledged."""
    other = f"rank {flow.dst_rank}" if flow.dst_rank is not None else flow.peer
    text = (
        f"rank {flow.src_rank} → {other}: {flow.unacked_bytes:,} bytes not acknowledged for "
        f"{flow.stalled_ns / SECOND_NS:.1f} s"
    )
    return f"{text}, sent again in vain" if flow.repeats else text
