"""A hang as a record: what is told of it when it opens, changes and ends."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from localizer.collectives.diagnosis import Finding
from localizer.collectives.hang_causes import Cause
from localizer.collectives.job_state import JobState, Overdue, endpoints_of
from localizer.collectives.pace import STRETCH_NS
from localizer.collectives.ranges import rank_text
from schemas.enums import Certainty, FaultLifecycle, HangClass
from schemas.records import Hang, StuckFlow
from schemas.units import SECOND_NS, US_NS, ns_to_us
from schemas.version import VERSION

# Bounds of collective.hang.v1.
MAX_RANKS: Final = 65_536
MAX_ENDPOINTS: Final = 65_536
MAX_EVIDENCE: Final = 64
MAX_STEPS: Final = 16
MAX_FLOWS: Final = 64
MAX_TEXT: Final = 1_000
MAX_NAME: Final = 1_024
SHOWN_STACKS: Final = 4
# Stands for the communicator in the id of what is slow.
SLOW: Final = "slow"
STILL: Final = "still"


def hang_id(
    cluster: str, task_id: str, communicator: str, sequence: int | None, attempt: int
) -> str:
    """Return the id of a hang; equal inputs give the same id on every machine.

    >>> hang_id("lab", "job1", "0", 49, 1_700_000_000_000_000)
    'h-22dc99dbecf24b53'
    """
    text = "\x00".join((cluster, task_id, communicator, str(sequence), str(attempt)))
    return "h-" + hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What an analysis found of a job.

    Attributes
    ----------
    communicator
        Name of the group that the finding is about.
    overdue
        What has waited too long, longest first.
    notes
        What else a reader should know.
    """

    finding: Finding
    communicator: str
    cause: Cause
    overdue: Sequence[Overdue]
    notes: Sequence[str]


def hang_of(cluster: str, job: JobState, seen: Seen, now_ns: int) -> Hang:
    """Return the first transition of a hang."""
    finding, cause = seen.finding, seen.cause
    longest = next(o for o in seen.overdue if o.rank in finding.waiting)
    waited_ns = longest.waited * US_NS
    # A time of launch may be any, such as 0.
    onset_ns = max(0, min(now_ns, job.ranks[longest.rank].arrived_ns - waited_ns))
    endpoints = endpoints_of(job.ranks, _blamed(cause, finding))
    evidence = (
        f"rank {longest.rank} has waited {longest.waited / 1e6:.1f} s in "
        f"{finding.operation}; usual is less than {longest.limit / 1e6:.1f} s",
        *cause.evidence,
        *(f"{text}: {rank_text(held)}" for text, held in finding.stacks[:SHOWN_STACKS]),
        *seen.notes,
    )
    return Hang(
        cluster=cluster,
        hang_id=hang_id(cluster, job.task_id, seen.communicator, finding.sequence, job.attempt),
        task_id=job.task_id,
        seq=1,
        state=FaultLifecycle.OPEN,
        event_at=ns_to_us(now_ns),
        onset_at=ns_to_us(onset_ns),
        resolved_at=None,
        hang_class=cause.hang_class,
        certainty=cause.certainty,
        ranks=cause.ranks[:MAX_RANKS],
        waiting_ranks=finding.waiting[:MAX_RANKS],
        endpoint_ids=endpoints[:MAX_ENDPOINTS],
        stuck_flows=_stuck(job, cause),
        communicator=seen.communicator,
        sequence=finding.sequence,
        operation=finding.operation[:MAX_NAME],
        waited_ns=waited_ns,
        summary=_summary(job.task_id, finding, cause)[:MAX_TEXT],
        evidence=tuple(text[:MAX_TEXT] for text in evidence[:MAX_EVIDENCE]),
        next_steps=tuple(text[:MAX_TEXT] for text in cause.next_steps[:MAX_STEPS]),
        producer_version=VERSION,
    )


def slow_hang_of(cluster: str, job: JobState, cause: Cause, now_ns: int) -> Hang:
    """Return the first transition of a job that is slow: it waits in no one operation."""
    who = rank_text(cause.ranks)
    what = _what(cause)
    if cause.hang_class is HangClass.NETWORK:
        what = f"the network: what goes to and from {who} waits to be sent"
    waiting = tuple(rank for rank in sorted(job.ranks) if rank not in cause.ranks)
    low = (f"the job goes at {job.pace.share():.0%} of its usual pace",) if job.pace.low else ()
    return Hang(
        cluster=cluster,
        hang_id=hang_id(cluster, job.task_id, SLOW, now_ns // STRETCH_NS, job.attempt),
        task_id=job.task_id,
        seq=1,
        state=FaultLifecycle.OPEN,
        event_at=ns_to_us(now_ns),
        onset_at=ns_to_us(now_ns - cause.lasts_ns),
        hang_class=cause.hang_class,
        certainty=cause.certainty,
        ranks=cause.ranks,
        waiting_ranks=waiting[:MAX_RANKS],
        endpoint_ids=endpoints_of(job.ranks, cause.ranks)[:MAX_ENDPOINTS],
        stuck_flows=(),
        waited_ns=cause.lasts_ns,
        summary=f"{job.task_id} is slow: {what}"[:MAX_TEXT],
        evidence=(*low, *cause.evidence)[:MAX_EVIDENCE],
        next_steps=cause.next_steps[:MAX_STEPS],
        producer_version=VERSION,
    )


def unrecorded_hang_of(cluster: str, job: JobState, cause: Cause, now_ns: int) -> Hang:
    """Return the first transition of a job that stands still and records no operations."""
    onset_ns = max(0, now_ns - cause.lasts_ns)
    blamed = {r for f in cause.flows for r in (f.src_rank, f.dst_rank) if r is not None}
    waiting = tuple(
        rank for rank, state in sorted(job.ranks.items())
        if rank not in cause.ranks and not state.ended
    )  # fmt: skip
    ends = blamed.union(cause.ranks) or waiting
    # By arrivals, which each process that reads the log finds alike.
    identity = hang_id(
        cluster, job.task_id, STILL, job.stillness.moved_ns // SECOND_NS, job.attempt
    )
    return Hang(
        cluster=cluster,
        hang_id=identity,
        task_id=job.task_id,
        seq=1,
        state=FaultLifecycle.OPEN,
        event_at=ns_to_us(now_ns),
        onset_at=ns_to_us(onset_ns),
        hang_class=cause.hang_class,
        certainty=cause.certainty,
        ranks=cause.ranks[:MAX_RANKS],
        waiting_ranks=waiting[:MAX_RANKS],
        endpoint_ids=endpoints_of(job.ranks, ends)[:MAX_ENDPOINTS],
        stuck_flows=_stuck(job, cause),
        waited_ns=cause.lasts_ns,
        summary=f"{job.task_id} stands still: {_what(cause, UNRECORDED, gone=True)}"[:MAX_TEXT],
        evidence=tuple(text[:MAX_TEXT] for text in cause.evidence[:MAX_EVIDENCE]),
        next_steps=cause.next_steps[:MAX_STEPS],
        producer_version=VERSION,
    )


def _stuck(job: JobState, cause: Cause) -> tuple[StuckFlow, ...]:
    return tuple(
        StuckFlow(
            src_rank=f.src_rank, dst_rank=f.dst_rank,
            src_endpoint_id=_endpoint(job, f.src_rank),
            dst_endpoint_id=_endpoint(job, f.dst_rank),
            unacked_bytes=f.unacked_bytes, stalled_ns=f.stalled_ns,
        )
        for f in cause.flows
        if f.dst_rank is not None
    )[:MAX_FLOWS]  # fmt: skip


def _blamed(cause: Cause, finding: Finding) -> tuple[int, ...]:
    """Return the ranks whose endpoints matter: culprits, both ends of what is stuck, else all."""
    ends = {r for f in cause.flows for r in (f.src_rank, f.dst_rank) if r is not None}
    return tuple(sorted({*cause.ranks, *ends})) or finding.waiting


def _endpoint(job: JobState, rank: int | None) -> str | None:
    """Return the endpoint of a rank, if it has one only."""
    state = None if rank is None else job.ranks.get(rank)
    ids = () if state is None else state.batch.endpoint_ids
    return ids[0] if len(ids) == 1 else None


SUMMARIES: Final = {
    HangClass.NETWORK: "the network: bytes of {who} are not acknowledged",
    HangClass.PROCESS_STOPPED: "the process of {who} is stopped",
    HangClass.GPU_STOPPED: "a GPU does not go on; network and processes do",
    HangClass.NEVER_LAUNCHED: "{who} {has} not launched it",
    HangClass.DESYNCHRONISED: "{who} {does} something else than the others",
    HangClass.RANK_MISSING: "{who} {is_} gone",
    HangClass.SLOW_COMPUTE: "{who} {computes} longer than the others",
    HangClass.SLOW_SENDER: "{who} {sends} slowly",
    HangClass.SLOW_RECEIVER: "{who} {receives} slowly",
}
PERHAPS_GONE: Final = "{who} {is_} gone, or nothing is heard of {it}"
# Verbs of the texts: of one rank, and of several.
VERBS: Final = {
    "has": ("has", "have"), "does": ("does", "do"), "is_": ("is", "are"), "it": ("it", "them"),
    "computes": ("computes", "compute"), "sends": ("sends", "send"),
    "receives": ("receives", "receive"),
}  # fmt: skip
UNRECORDED: Final = "what was seen does not tell why, and its ranks record no operations"
UNDECIDED: Final = "all launched it, and what was seen does not tell why it does not end"


def _summary(task_id: str, finding: Finding, cause: Cause) -> str:
    what = _what(cause)
    count = len(finding.waiting)
    wait = "1 rank waits" if count == 1 else f"{count} ranks wait"
    at = "" if finding.sequence is None else f" {finding.sequence}"
    return f"{task_id} hangs in {finding.operation}{at} of group {finding.group}; {wait}: {what}"


def _what(cause: Cause, undecided: str = UNDECIDED, *, gone: bool = False) -> str:
    """Return in words what is wrong with whom; `gone`: the kernel says of who is missing that."""
    who = rank_text(cause.ranks) if cause.ranks else "some rank"
    text = SUMMARIES.get(cause.hang_class, undecided)
    missing = cause.hang_class is HangClass.RANK_MISSING
    if missing and cause.certainty is not Certainty.SURE and not gone:
        # Its collector may be gone, and not the rank.
        text = PERHAPS_GONE
    several = len(cause.ranks) > 1
    return text.format(who=who, **{name: forms[several] for name, forms in VERBS.items()})


def followed(known: Hang, found: Hang, *, network_lately: bool = False) -> Hang | None:
    """Return the next transition of a hang that goes on; None: nothing that is worth telling.

    Parameters
    ----------
    network_lately
        Whether a look has said within the last minute that it is the network.
    """
    back = known.state is FaultLifecycle.RESOLVED
    same = (known.hang_class, known.certainty, known.ranks) == (
        found.hang_class, found.certainty, found.ranks,
    )  # fmt: skip
    if not back and (same or _is_worse(known, found, network_lately=network_lately)):
        return None
    return replace(
        found,
        hang_id=known.hang_id,
        seq=known.seq + 1,
        state=FaultLifecycle.UPDATED,
        onset_at=min(known.onset_at, found.onset_at),
        communicator=known.communicator,
        sequence=known.sequence,
    )


def _is_worse(known: Hang, found: Hang, *, network_lately: bool) -> bool:
    """Return whether a later look decides less: what was seen has gone with the sockets.

    Between two gaps of a cable that flaps nothing lies at any socket, which looks like a GPU that
    stands still somewhere.
    """
    if known.certainty is not Certainty.SURE:
        return False
    by_absence = found.hang_class is HangClass.GPU_STOPPED and not found.ranks
    return found.hang_class is HangClass.UNDECIDED or (
        network_lately and by_absence and known.hang_class is HangClass.NETWORK
    )


def resolved(hang: Hang, now_ns: int, why: str) -> Hang:
    """Return the last transition of a hang."""
    return replace(
        hang,
        seq=hang.seq + 1,
        state=FaultLifecycle.RESOLVED,
        event_at=ns_to_us(now_ns),
        resolved_at=ns_to_us(now_ns),
        summary=f"resolved: {hang.task_id}: {why}",
    )
