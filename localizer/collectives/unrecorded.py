"""Why a job stands still whose ranks record no operations, as those of JAX do.

There is no graph of who waits for whom. What the kernel says of processes and connections tells a
process that is stopped or gone, and bytes that nobody acknowledges. That all stand still and none
of this is seen is told late, and of nobody: a rank that does not launch what the others wait for
looks as they do. Stillness is that of bytes over TCP, and means something only where these moved
all the time before.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from localizer.collectives.diagnosis import LOOK_AT_PROCESS
from localizer.collectives.hang_causes import (
    LOOK_AT_NETWORK,
    LOOK_AT_STOPPED,
    SHOWN_RANKS,
    Cause,
    flow_texts,
    idle_texts,
    make_cause,
    process_text,
)
from localizer.collectives.job_state import RESTART_NS, JobState
from localizer.collectives.ranges import rank_text
from localizer.collectives.rank_state import SILENT_NS, RankState
from localizer.collectives.sockets import common_ranks, stuck_flows
from localizer.collectives.usual_waits import READ_TWICE_US, patience
from schemas.enums import Certainty, HangClass, ProcessState
from schemas.units import SECOND_NS, US_NS, us_to_ns

# What two readings of each rank show, as where operations are recorded.
READ_TWICE_NS: Final = us_to_ns(READ_TWICE_US)
# How long the program lets an operation wait is not known.
PATIENCE_NS: Final = us_to_ns(patience(None))
NOT_RECORDED: Final = "but: its ranks record no operations: who waits for whom is not known"
LOOK_AT_STACKS: Final = (
    "py-spy dump --pid PID of each rank: which of them is elsewhere than the others?",
    "of PyTorch: have the Flight Recorder write dumps (torch_dump.py); JAX has none",
)


def unrecorded_cause(job: JobState, now_ns: int) -> Cause | None:
    """Return why a job stands still; None: it does not, or not yet for long enough.

    Parameters
    ----------
    now_ns
        Event time.
    """
    alive = [s for s in job.ranks.values() if not s.ended]
    if not alive or any(s.arrived_ns < job.restarted_ns for s in alive):
        return None
    found = _stopped(alive, job, now_ns)
    if found is None and (still_ns := _still_ns(alive, job, now_ns)) is not None:
        gone = [
            s for s in job.ranks.values()
            if s.ended and us_to_ns(job.attempt - s.attempt) < RESTART_NS
        ]  # fmt: skip
        busy = sorted(s.rank for s in alive if s.is_busy())
        found = None if busy else _network(job, now_ns, still_ns)
        if found is None and still_ns > _least_ns(job):
            # Who waits for a disk does not spin, but writes a checkpoint.
            writes = any(job.ranks[rank].process_state is ProcessState.DISK for rank in busy)
            if gone and not writes:
                found = _ended(gone, len(alive) - len(busy), busy, now_ns, still_ns)
            elif not gone and not busy:
                found = _still(job, still_ns)
    if found is None:
        return None
    doubts = [NOT_RECORDED]
    if (mixed := job.mixed(now_ns)) is not None:
        doubts.append(f"but: {mixed}")
        less = Certainty.LIKELY if found.certainty is Certainty.SURE else Certainty.UNDECIDED
        found = replace(found, certainty=less)
    return replace(found, evidence=(*found.evidence, *doubts))


def _stopped(alive: Sequence[RankState], job: JobState, now_ns: int) -> Cause | None:
    """Return whose process the kernel called stopped in two readings, and who is still read."""
    ranks = [
        s.rank
        for s in alive
        if s.process_state is ProcessState.STOPPED
        and s.arrived_ns - s.state_ns >= READ_TWICE_NS
        and not s.is_silent(now_ns)
    ]
    if not ranks:
        return None
    evidence = idle_texts(sorted(ranks), job, "is stopped (state T)")
    since_ns = min(job.ranks[rank].state_ns for rank in ranks)
    return make_cause(
        (HangClass.PROCESS_STOPPED, Certainty.SURE), ranks, evidence, LOOK_AT_STOPPED,
        lasts_ns=now_ns - since_ns,
    )  # fmt: skip


def _least_ns(job: JobState) -> int:
    """Return how long nothing may move.

    A pause in which all take part, such as an evaluation, looks like a hang: where nothing is
    recorded nothing shorter than what one rank may let the others wait is one.
    """
    usual_us = job.stillness.usual.limit(1)
    return max(0 if usual_us is None else us_to_ns(usual_us), PATIENCE_NS)


def _ended(
    gone: Sequence[RankState], idle: int, busy: Sequence[int], now_ns: int, still_ns: int
) -> Cause | None:
    """Return whose process is no more, while most of the job's ranks do nothing.

    Processes of a job that is over end one after another: the last may finish what is left to do.
    But a rank that waits for one that is gone may spin, as gloo does.
    """
    if idle <= len(gone) + len(busy) or now_ns - max(s.state_ns for s in gone) < PATIENCE_NS:
        return None
    others = "the others" if not busy else f"all others but {rank_text(busy)}"
    evidence = [
        *(f"{process_text(s)} has ended" for s in gone[:SHOWN_RANKS]),
        f"{others} do nothing, and no byte has moved between ranks for "
        f"{still_ns / SECOND_NS:.0f} s",
    ]
    return make_cause(
        (HangClass.RANK_MISSING, Certainty.LIKELY), [s.rank for s in gone], evidence,
        LOOK_AT_PROCESS[1:], lasts_ns=now_ns - min(s.state_ns for s in gone),
    )  # fmt: skip


def _network(job: JobState, now_ns: int, still_ns: int) -> Cause | None:
    """Return bytes between ranks that were sent again, and not acknowledged in two readings.

    Only while nothing moves: of a job that goes on they are a connection that nobody needs.
    """
    if still_ns < READ_TWICE_NS:
        return None
    fresh = {r: s for r, s in job.sockets.items() if now_ns - s.arrived_ns <= SILENT_NS}
    flows = [
        # No longer than was seen here: what a host tells may be any number.
        replace(flow, stalled_ns=min(flow.stalled_ns, still_ns))
        for flow in stuck_flows(fresh, job.ranks)
        if flow.repeats and {flow.src_rank, flow.dst_rank} <= job.ranks.keys()
        and flow.stalled_ns >= READ_TWICE_NS
    ]  # fmt: skip
    if not flows:
        return None
    hosts = {rank: state.batch.host_id for rank, state in job.ranks.items()}
    return make_cause(
        (HangClass.NETWORK, Certainty.SURE), common_ranks(flows, hosts), flow_texts(flows),
        LOOK_AT_NETWORK, flows=tuple(flows), lasts_ns=max(flow.stalled_ns for flow in flows),
    )  # fmt: skip


def _still(job: JobState, still_ns: int) -> Cause | None:
    """Say that nothing moves and nobody works, for longer than ever: of nobody."""
    longest_s = job.stillness.usual.longest * US_NS / SECOND_NS
    evidence = [
        f"no byte has moved between its ranks for {still_ns / SECOND_NS:.0f} s, before never for "
        f"more than {longest_s:.0f} s; none of them is stopped, none has ended, none works"
    ]
    return make_cause(
        (HangClass.UNDECIDED, Certainty.UNDECIDED), (), evidence, LOOK_AT_STACKS, lasts_ns=still_ns
    )


def _still_ns(alive: Sequence[RankState], job: JobState, now_ns: int) -> int | None:
    """Return for how long nothing has moved between ranks; None: not known.

    Nor is it where bytes did not move in most readings before: then stillness means nothing.
    """
    if not job.stillness.steady:
        return None
    until_ns = now_ns
    for state in alive:
        sockets = job.sockets.get(state.rank)
        if sockets is None or not sockets.known:
            return None
        if now_ns - min(sockets.arrived_ns, state.arrived_ns) > SILENT_NS:
            return None
        until_ns = min(until_ns, sockets.arrived_ns)
    return max(0, until_ns - job.stillness.moved_ns)
