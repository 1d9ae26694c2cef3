"""How long each rank worked while all others waited for it.

A rank works from the end of one operation to its next launch, and waits from a launch to its end.
While exactly one rank works, the job waits for that one. Time in which two work is nobody's: each
would be waited for without the other, and a transfer, which all of a group take part in, is no
rank's work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localizer.collectives.groups import Group, is_finished
from localizer.collectives.slow_ranks import clock_offsets, operation_ends
from schemas.columns.arrays import Int64s
from schemas.records import CollectiveSnapshot


@dataclass(frozen=True, slots=True)
class Worked:
    """What a rank did before one of its launches.

    Attributes
    ----------
    record_id
        Of the operation that it launched.
    lasted, sole
        Microseconds since its launch before, and those of them in which it alone worked.
    """

    record_id: int
    lasted: int
    sole: int


def sole_work(
    snapshots: Sequence[CollectiveSnapshot], groups: Sequence[Group]
) -> dict[int, list[Worked]]:
    """Return by rank, in order, the launches of which it is known what all ranks did before.

    Empty where clocks cannot be brought together, or no time is known of all ranks.

    Parameters
    ----------
    snapshots
        One of each rank, of a library that waits for each operation.
    groups
        The same operations, lined up.
    """
    offsets = clock_offsets(snapshots, groups)
    if len(snapshots) < 2 or any(s.rank not in offsets for s in snapshots):
        return {}
    finished = operation_ends(groups, offsets)
    rows = []
    begins, reaches = [], []
    for place, snapshot in enumerate(snapshots):
        held = [o for o in snapshot.operations if not o.is_p2p and o.launched_at is not None]
        if not held:
            return {}
        offset, before = offsets[snapshot.rank], None
        reach = 0.0
        for operation in held:
            at = (operation.launched_at or 0) - offset
            if before is not None and before[0] == operation.record_id - 1:
                rows.append((place, operation.record_id, before[1], min(at, before[2]), at))
            # Of an operation that was told twice, differently, the end may not be known.
            end = finished.get((operation.communicator, operation.sequence))
            before = None if end is None else (operation.record_id, at, end)
            reach = at
        begins.append((held[0].launched_at or 0) - offset)
        # One that waits does so until its recorder was read; what others do is known so far, too.
        waits = not is_finished(held[-1]) and snapshot.taken_at is not None
        reaches.append(max(reach, (snapshot.taken_at or 0) - offset) if waits else reach)
    begin, end = max(begins), min(reaches)
    if not rows:
        return {}
    table = np.array(rows, np.float64)
    owners, numbers = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    launched_before, started, launched = (np.rint(table[:, k]).astype(np.int64) for k in (2, 3, 4))
    sole = alone(started, launched)
    found: dict[int, list[Worked]] = {s.rank: [] for s in snapshots}
    for k in np.flatnonzero((launched_before >= begin) & (launched <= end)).tolist():
        lasted = int(launched[k] - launched_before[k])
        found[snapshots[owners[k]].rank].append(Worked(int(numbers[k]), lasted, int(sole[k])))
    return found


def alone(starts: Int64s, ends: Int64s) -> Int64s:
    """Return how much of each interval no other interval covers.

    Parameters
    ----------
    starts, ends
        Shape (n,); no interval ends before it starts.
    """
    count = len(starts)
    number = np.arange(count, dtype=np.int64)
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    step = np.repeat(np.array([1, -1], np.int64), count)[order]
    # Where one interval is open, the sum of the numbers of all that are is its own.
    open_now = np.cumsum(step)[:-1]
    whose = np.cumsum(step * np.concatenate([number, number])[order])[:-1]
    lengths = np.diff(times[order])
    # Before equal times are sorted out, sums are of no interval; they last no time.
    single = (open_now == 1) & (lengths > 0)
    found = np.zeros(count, np.int64)
    np.add.at(found, whose[single], lengths[single])
    return found
