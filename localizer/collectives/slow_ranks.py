"""Finds the rank that others wait for again and again in a job that goes on.

A rank's own work is the time from the end of one operation to its next launch; the end is when
the last rank launched it. So a rank that only waits for a slow one has little work of its own.

Clocks of two ranks are brought together by causality, as NTP does: what a rank launches after an
operation, it launches after every other rank launched that one. Each such pair bounds how far
one clock is ahead of the other, and the bounds of a chain of pairs add up.

Launches say this only where the program waits for each operation, as mostly with gloo. Where it
does not, bounds contradict each other, and nothing is said. With NCCL the host runs ahead of the
GPU, and its launches do not tell.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from localizer.collectives.groups import Group, is_synchronising
from schemas.records import CollectiveSnapshot

# The ring is cut into so many stretches, and one rank must have most work in all but one of them.
# By chance that happens to four equal ranks once in 600 times: 4 · (8 · ¼⁷ · ¾ + ¼⁸); to more
# ranks more rarely. Ranks on one busy host are not equal: the rank must stand apart as well.
STRETCHES: Final = 8
MOST: Final = 7
# What takes less of a job's time than this is not worth a search, and clocks and launches scatter.
LEAST_SHARE: Final = 0.1
# Of larger groups each rank is held against so many beside it: fewer bounds, and wider ones.
NEIGHBOURS: Final = 8


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that the others wait for.

    `share` is the part of the time that it works longer than the middle one of the others;
    `stretches` says in how many of `STRETCHES` it worked longest.
    """

    rank: int
    share: float
    stretches: int


def find_slow_rank(
    snapshots: Sequence[CollectiveSnapshot], groups: Sequence[Group]
) -> SlowRank | None:
    """Return the rank that works longest again and again; None if there is none, or no telling."""
    if len(snapshots) < 2 or any(s.library != "gloo" for s in snapshots):
        return None
    offsets = clock_offsets(snapshots, groups)
    if any(snapshot.rank not in offsets for snapshot in snapshots):
        return None
    ends = operation_ends(groups, offsets)
    works = {s.rank: _work(s, offsets[s.rank], ends) for s in snapshots}
    begin = max((work[0][0] for work in works.values() if work), default=0)
    end = min((work[-1][0] for work in works.values() if work), default=0)
    inside = {r: [w for at, w in work if begin <= at <= end] for r, work in works.items()}
    if end <= begin or any(len(work) < STRETCHES for work in inside.values()):
        return None
    sums = {rank: _by_stretch(work) for rank, work in inside.items()}
    most = [_apart({rank: held[k] for rank, held in sums.items()}) for k in range(STRETCHES)]
    rank = max(sums, key=lambda r: (most.count(r), -r))
    others = median(sum(held) for other, held in sums.items() if other != rank)
    share = (sum(sums[rank]) - others) / (end - begin)
    if most.count(rank) < MOST or share < LEAST_SHARE:
        return None
    return SlowRank(rank, share, most.count(rank))


def clock_offsets(
    snapshots: Sequence[CollectiveSnapshot], groups: Sequence[Group]
) -> dict[int, float]:
    """Return how far each rank's clock is ahead of the first one's, in microseconds.

    Ranks of which that is not known are left out; all are where bounds contradict each other.
    """
    times = [(group.name, launches_of(group)) for group in groups]
    return _offsets(times, {s.rank: _next_launches(s) for s in snapshots})


def launches_of(group: Group) -> dict[int, dict[int, int]]:
    """Return by rank and sequence when a group's operations were launched."""
    return {
        rank: {s: o.launched_at for s, o in held.items() if o.launched_at is not None}
        for rank, held in group.operations.items()
    }


def _apart(work: Mapping[int, float]) -> int | None:
    """Return the rank that works longer than the next by more than all others differ."""
    *others, most = sorted(work.values())
    # Of two ranks the other's own work says what is much.
    spread = others[-1] - (others[0] if len(others) > 1 else 0)
    if most - others[-1] <= spread:
        return None
    return max(work, key=lambda rank: work[rank])


def _next_launches(snapshot: CollectiveSnapshot) -> dict[str, dict[int, int]]:
    """Return when a rank launched anything after each operation that no rank ends alone."""
    known = [o for o in snapshot.operations if not o.is_p2p and o.launched_at is not None]
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for operation, after in pairwise(known):
        if is_synchronising(operation.operation) and after.launched_at is not None:
            found[operation.communicator][operation.sequence] = after.launched_at
    return found


def _offsets(
    times: Sequence[tuple[str, Mapping[int, Mapping[int, int]]]],
    following: Mapping[int, Mapping[str, Mapping[int, int]]],
) -> dict[int, float]:
    """Return how far each rank's clock is ahead of the first one's, in microseconds.

    The middle between the bounds; nothing where bounds contradict each other. Ranks that no
    group connects are left out.
    """
    bounds: dict[tuple[int, int], int] = {}
    for name, group in times:
        ranks = sorted(group)
        for place, rank in enumerate(ranks):
            for step in range(1, min(NEIGHBOURS, len(ranks) - 1) + 1):
                other = ranks[(place + step) % len(ranks)]
                for a, b in ((rank, other), (other, rank)):
                    common = (
                        after - group[b][s]
                        for s, after in following[a].get(name, {}).items()
                        if s in group[b]
                    )
                    least = min(common, default=None)
                    if least is not None:
                        bounds[b, a] = min(bounds.get((b, a), least), least)
    if not bounds:
        return {}
    start = min(rank for pair in bounds for rank in pair)
    most = _shortest(start, bounds)
    least_ahead = _shortest(start, {(a, b): bound for (b, a), bound in bounds.items()})
    if most is None or least_ahead is None:
        return {}
    return {r: (most[r] - least_ahead[r]) / 2 for r in most.keys() & least_ahead.keys()}


def _shortest(start: int, bounds: Mapping[tuple[int, int], int]) -> dict[int, int] | None:
    """Return the least sum of bounds to each rank (Bellman and Ford); None if they contradict."""
    found = {start: 0}
    for _ in range(len({rank for pair in bounds for rank in pair}) + 1):
        changed = False
        for (before, rank), bound in bounds.items():
            if before in found and found[before] + bound < found.get(
                rank, found[before] + bound + 1
            ):
                found[rank] = found[before] + bound
                changed = True
        if not changed:
            return found
    return None


def operation_ends(
    groups: Sequence[Group], offsets: Mapping[int, float]
) -> dict[tuple[str, int], float]:
    """Return when the last rank launched each operation, by the first rank's clock (µs)."""
    found: dict[tuple[str, int], float] = {}
    for group in groups:
        for rank, held in launches_of(group).items():
            for sequence, time in held.items():
                key = (group.name, sequence)
                found[key] = max(found.get(key, time - offsets[rank]), time - offsets[rank])
    return found


def _work(
    snapshot: CollectiveSnapshot, offset: float, ends: Mapping[tuple[str, int], float]
) -> list[tuple[float, float]]:
    """Return when each launch was and how long the rank had worked, by the first rank's clock."""
    found = []
    ended: float | None = None
    for operation in snapshot.operations:
        if operation.is_p2p or operation.launched_at is None:
            continue
        launched = operation.launched_at - offset
        if ended is not None:
            found.append((launched, max(0.0, launched - ended)))
        ended = max(launched, ends[operation.communicator, operation.sequence])
    return found


def _by_stretch(work: Sequence[float]) -> list[float]:
    """Return the work in each of as many operations: a single pause is in one stretch only."""
    cuts = [k * len(work) // STRETCHES for k in range(STRETCHES + 1)]
    return [sum(work[a:b]) for a, b in pairwise(cuts)]
