"""Who holds a job up that is slow and does not stop: a rank that computes or reads, or the way."""

from typing import Final

from localizer.collectives.hang_causes import LOOK_AT_NETWORK, Cause
from localizer.collectives.job_state import JobState
from localizer.collectives.pace import STRETCH_NS
from localizer.collectives.sockets import common_ranks, queued_flows
from schemas.enums import Certainty, HangClass
from schemas.units import US_NS

SHOWN_FLOWS: Final = 8
LOOK_AT_RANK: Final = (
    "py-spy record --pid PID of that rank: what does it do between its operations?",
    "clocks and heat of its CPU and GPU, its memory, its data loading, beside another host's",
)


def slow_cause(job: JobState) -> Cause | None:
    """Return who holds the others up; None: nobody is seen to."""
    return _straggler(job) or _reader(job) or (_slow_way(job) if job.pace.slow else None)


def _straggler(job: JobState) -> Cause | None:
    """Return the rank that the others wait for since lately."""
    found = job.stragglers.found
    if found is None:
        return None
    evidence = (
        f"while all others wait, rank {found.rank} works for {found.share:.0%} of the time; before "
        f"for {found.usual_share:.0%}",
        f"so it does in each of {found.blocks} times {found.operations} operations, for "
        f"{found.least_us / 1e6:.1f} s at least",
    )
    return Cause(
        hang_class=HangClass.SLOW_COMPUTE, certainty=Certainty.LIKELY, ranks=(found.rank,),
        evidence=evidence, next_steps=LOOK_AT_RANK, lasts_ns=found.lasts_us * US_NS,
    )  # fmt: skip


def _reader(job: JobState) -> Cause | None:
    """Return the rank for which bytes wait since lately."""
    found = job.readers.found
    if found is None:
        return None
    evidence = (
        f"bytes lay unread at rank {found.rank}, or there was no room for more, in {found.held_up} "
        f"of its last {found.readings} readings in which some had come; before in "
        f"{found.usual:.0%}, at the others now in {found.others:.0%}",
        f"it launches at {found.pace:.0%} of its pace before",
    )
    return Cause(
        hang_class=HangClass.SLOW_RECEIVER, certainty=Certainty.LIKELY, ranks=(found.rank,),
        evidence=evidence, next_steps=LOOK_AT_RANK, lasts_ns=found.lasts_us * US_NS,
    )  # fmt: skip


def _slow_way(job: JobState) -> Cause | None:
    """Return the one rank to or from which all that waits to be sent goes."""
    flows = queued_flows(job.sockets)
    ranks = common_ranks(flows)
    if len(flows) < 2 or len(ranks) != 1:
        return None
    (rank,) = ranks
    sockets = job.sockets.get(rank)
    unread = 0 if sockets is None else sockets.unread_bytes()
    evidence = [
        f"rank {f.src_rank} → rank {f.dst_rank}: {f.unacked_bytes:,} bytes wait to be sent"
        for f in flows[:SHOWN_FLOWS]
    ]
    hang_class = HangClass.NETWORK
    if unread:
        hang_class = HangClass.SLOW_RECEIVER
        evidence.append(f"{unread:,} bytes lie unread at rank {rank}")
    return Cause(
        hang_class=hang_class, certainty=Certainty.LIKELY, ranks=ranks, evidence=tuple(evidence),
        next_steps=LOOK_AT_RANK if unread else LOOK_AT_NETWORK, flows=tuple(flows),
        lasts_ns=len(job.pace.low) * STRETCH_NS,
    )  # fmt: skip
