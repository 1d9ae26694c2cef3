"""How long each rank worked while all others of a group waited for it.

A rank waits from a launch to the end of the operation, and works from there to its next launch. Of
the ranks that meet in an operation the last one is waited for: from when all others have launched
it. Before that two worked, and each would have been waited for without the other. What made a rank
late before it began to work is another's, or the network's: nobody is held against the others for
the time until the first of those that it met before has gone on, for that operation may have taken
so long. Ranks that do not meet, as stages of a pipeline, work side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from localizer.collectives.groups import Group, is_finished
from localizer.collectives.slow_ranks import clock_offsets, launches_of
from schemas.records import CollectiveSnapshot

# A group's name, and a sequence.
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Worked:
    """What a rank did before one of its launches.

    Attributes
    ----------
    record_id
        Of the operation that it launched.
    lasted, sole
        Microseconds since its launch before, and those of them in which it worked and all others
        of the operation waited.
    """

    record_id: int
    lasted: int
    sole: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """An operation that all ranks of a group launched.

    Attributes
    ----------
    rank
        The last to launch it.
    at, others_at
        When it did, and when the last of the others did; microseconds by the first rank's clock.
    """

    rank: int
    at: float
    others_at: float


def sole_work(
    snapshots: Sequence[CollectiveSnapshot], groups: Sequence[Group]
) -> dict[int, list[Worked]]:
    """Return by rank, in order, the launches of which it is known what all ranks did before.

    Empty where clocks cannot be brought together, or no time is known of all ranks. Transfers
    between two ranks are not among them: when one ends is not known, so nobody is known to have
    worked between one and the next launch.

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
    meetings = meetings_of(groups, offsets)
    over = over_at(snapshots, offsets)
    done: dict[int, list[tuple[float, float, Worked]]] = {}
    begins, reaches = [], []
    for snapshot in snapshots:
        held = [o for o in snapshot.operations if o.launched_at is not None]
        if not held:
            return {}
        offset = offsets[snapshot.rank]
        done[snapshot.rank] = _worked(snapshot, offset, meetings, over)
        begins.append((held[0].launched_at or 0) - offset)
        reach = (held[-1].launched_at or 0) - offset
        # One that waits does so until its recorder was read; what others do is known so far, too.
        waits = not is_finished(held[-1]) and snapshot.taken_at is not None
        reaches.append(max(reach, (snapshot.taken_at or 0) - offset) if waits else reach)
    begin, end = max(begins), min(reaches)
    return {
        rank: [work for since, at, work in held if since >= begin and at <= end]
        for rank, held in done.items()
    }


def _worked(
    snapshot: CollectiveSnapshot,
    offset: float,
    meetings: Mapping[Key, Meeting],
    over: Mapping[Key, float],
) -> list[tuple[float, float, Worked]]:
    """Return when the launch before each launch was, when it was itself, and what was between."""
    found = []
    # The launch before, and when its operation was surely over, if known.
    since: float | None = None
    ended: float | None = None
    number = -1
    for operation in snapshot.operations:
        if operation.launched_at is None:
            continue
        at = operation.launched_at - offset
        if operation.record_id != number + 1:
            since = ended = None
        number = operation.record_id
        if operation.is_p2p:
            ended = None
            continue
        key = operation.communicator, operation.sequence
        if since is not None:
            sole, meeting = 0.0, meetings.get(key)
            if ended is not None and meeting is not None and meeting.rank == snapshot.rank:
                sole = max(0.0, at - max(ended, meeting.others_at))
            found.append((since, at, Worked(number, round(at - since), round(sole))))
        since, ended = at, over.get(key)
    return found


def meetings_of(groups: Sequence[Group], offsets: Mapping[int, float]) -> dict[Key, Meeting]:
    """Return by group and sequence the operations that all members are known to have launched."""
    found: dict[Key, Meeting] = {}
    for group in groups:
        # Ranks as they launched it: how many, the last, and when it and the one before it did.
        held: dict[int, tuple[int, int, float, float]] = {}
        for rank, times in launches_of(group).items():
            offset = offsets[rank]
            for sequence, time in times.items():
                at = time - offset
                known = held.get(sequence)
                if known is None:
                    held[sequence] = 1, rank, at, float("-inf")
                elif at > known[2]:
                    held[sequence] = known[0] + 1, rank, at, known[2]
                else:
                    held[sequence] = known[0] + 1, known[1], known[2], max(known[3], at)
        for sequence, (count, rank, at, others_at) in held.items():
            if count == len(group.members):
                found[group.name, sequence] = Meeting(rank, at, others_at)
    return found


def over_at(
    snapshots: Sequence[CollectiveSnapshot], offsets: Mapping[int, float]
) -> dict[Key, float]:
    """Return by group and sequence when the first rank that took part launched something else."""
    found: dict[Key, float] = {}
    for snapshot in snapshots:
        offset = offsets[snapshot.rank]
        known = (o for o in snapshot.operations if o.launched_at is not None)
        for operation, after in pairwise(known):
            if operation.is_p2p or after.launched_at is None:
                continue
            key, at = (operation.communicator, operation.sequence), after.launched_at - offset
            if at < found.get(key, at + 1.0):
                found[key] = at
    return found
