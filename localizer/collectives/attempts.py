"""Tells the dumps of one run of a job from those that an earlier attempt left behind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from schemas.records import CollectiveSnapshot

# PyTorch gives up a collective of NCCL after ten minutes; an attempt ends at least that long after
# its last launch. Clocks of hosts are most often off by seconds, but some by hours.
APART_US: Final = 600_000_000


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """Ranks whose last launch was long before those of the others.

    Attributes
    ----------
    left_out
        Those that share no operation with the others: their dumps say nothing of this run.
    doubtful
        Those that do. A clock may be wrong, and a rank may compute for longer than that.
    """

    left_out: tuple[int, ...]
    doubtful: tuple[int, ...]


def of_earlier_attempts(snapshots: Sequence[CollectiveSnapshot]) -> EarlierAttempts:
    """Return the ranks whose dumps may be those of an earlier attempt.

    In a job that hangs all stop within a few operations of each other.
    """
    last = {
        s.rank: max(times)
        for s in snapshots
        if (times := [o.launched_at for o in s.operations if o.launched_at is not None])
    }
    if len(last) < 3:
        return EarlierAttempts((), ())
    middle = median(last.values())
    early = {rank for rank, time in last.items() if time < middle - APART_US}
    if not early:
        return EarlierAttempts((), ())
    others = {key for s in snapshots if s.rank not in early for key in _keys(s)}
    doubtful = {s.rank for s in snapshots if s.rank in early and not others.isdisjoint(_keys(s))}
    return EarlierAttempts(tuple(sorted(early - doubtful)), tuple(sorted(doubtful)))


def _keys(snapshot: CollectiveSnapshot) -> Iterator[tuple[str, int]]:
    """Return which operations of which groups a rank recorded; each rank counts transfers alone."""
    return ((o.communicator, o.sequence) for o in snapshot.operations if not o.is_p2p)
