"""Tells the dumps of one run of a job from those that an earlier attempt left behind."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from schemas.records import CollectiveSnapshot

# PyTorch gives up a collective of NCCL after ten minutes; an attempt ends at least that long after
# its last launch. Clocks of hosts are off by seconds, at worst minutes.
APART_US: Final = 600_000_000


def of_earlier_attempts(snapshots: Sequence[CollectiveSnapshot]) -> list[int]:
    """Return the ranks whose last launch was long before those of the others.

    In a job that hangs all stop within a few operations of each other.
    """
    last = {
        s.rank: max(times)
        for s in snapshots
        if (times := [o.launched_at for o in s.operations if o.launched_at is not None])
    }
    if len(last) < 3:
        return []
    middle = median(last.values())
    return sorted(rank for rank, time in last.items() if time < middle - APART_US)
