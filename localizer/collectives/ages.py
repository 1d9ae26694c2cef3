"""How long a rank has waited, and whether that is longer than it ever did: by its own clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from localizer.collectives.groups import is_finished
from localizer.collectives.operation_fold import NEXT
from localizer.collectives.waiting import Wait
from schemas.records import CollectiveOp, CollectiveSnapshot

MS_US: Final = 1_000
# Waits scatter: what is within half as much again as the longest before is not unusual. Of many
# waits without a fault the longest so far is the longest again once in as many.
UNUSUAL: Final = 1.5


@dataclass(frozen=True, slots=True)
class Age:
    """Of the longest of some waits.

    Attributes
    ----------
    rank
        By whose clock.
    since
        Microseconds since the epoch, at which the operation was launched.
    waited
        Microseconds until the dump was taken; None if that time is not known.
    longest_before
        Longest time between two launches of that rank before, in microseconds; None without two.
    timed_out
        The framework gave some of these operations up.
    """

    rank: int
    since: int | None
    waited: int | None
    longest_before: int | None
    timed_out: bool

    @property
    def is_usual(self) -> bool:
        """Whether the rank has waited as long before."""
        if self.timed_out or self.waited is None or self.longest_before is None:
            return False
        return self.waited <= UNUSUAL * self.longest_before


def age_of(waits: Sequence[Wait], snapshots: dict[int, CollectiveSnapshot]) -> Age:
    """Return the age of the longest wait, each measured by the waiting rank's own clock."""
    # A rank waits in one operation for many.
    told = {(wait.waiter, wait.operation.record_id): wait for wait in waits}
    waited = [
        (_waited(snapshots[wait.waiter], wait.operation), wait.waiter, wait.operation)
        for wait in told.values()
    ]
    longest, rank, operation = max(waited, key=lambda w: (w[0] is not None, w[0] or 0, -w[1]))
    # What was usual before is asked of one rank alone: of ten thousand that wait it takes long.
    before = _longest_gap(snapshots[rank], operation)
    timed_out = any(_timed_out(o) for _, _, o in waited)
    return Age(rank, operation.launched_at, longest, before, timed_out)


def idle_age(snapshot: CollectiveSnapshot) -> Age:
    """Return for how long a rank has launched nothing."""
    last = max(snapshot.operations, key=lambda o: o.record_id, default=None)
    if last is None:
        return Age(snapshot.rank, None, None, None, timed_out=False)
    waited = None
    if snapshot.taken_at is not None and last.launched_at is not None:
        waited = snapshot.taken_at - last.launched_at
    return Age(
        snapshot.rank, last.launched_at, waited, _longest_gap(snapshot, None), timed_out=False
    )


def _timed_out(operation: CollectiveOp) -> bool:
    return operation.retired is True and not is_finished(operation)


def _waited(snapshot: CollectiveSnapshot, operation: CollectiveOp) -> int | None:
    """Return how long an operation has waited, in microseconds; None: not known."""
    if snapshot.taken_at is None or operation.launched_at is None:
        return None
    waited = snapshot.taken_at - operation.launched_at
    limit = operation.timeout_ms
    if limit and waited > limit * MS_US and not operation.retired:
        # It would have been given up: the file has the time at which it was copied.
        return None
    return waited


def _longest_gap(snapshot: CollectiveSnapshot, until: CollectiveOp | None) -> int | None:
    """Return the longest time between two launches of a rank, those from `until` on left out.

    Where operations were lost between two, nobody knows which of them took how long.
    """
    warm = _warm_up(snapshot)
    known = [
        (o.record_id, o.launched_at)
        for o in snapshot.operations[warm:]
        if o.launched_at is not None and (until is None or o.record_id <= until.record_id)
    ]
    return max(
        (
            after - before
            for (earlier, before), (later, after) in pairwise(known)
            if later - earlier <= NEXT
        ),
        default=None,
    )


def _warm_up(snapshot: CollectiveSnapshot) -> int:
    """Return how many operations to leave out: the first iteration, if the ring still holds it.

    In it connections are made and code is compiled, which takes seconds to minutes once. It ends
    where the first operation comes again after others.
    """
    kinds = [(o.communicator, o.operation, o.input_sizes) for o in snapshot.operations]
    if snapshot.dropped_before:
        return 0
    other = next((place for place, kind in enumerate(kinds) if kind != kinds[0]), len(kinds))
    again = (place for place in range(other, len(kinds)) if kinds[place] == kinds[0])
    return next(again, 0)
