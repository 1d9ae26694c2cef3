"""Who waits for whom in transfers from one rank to another.

Each rank counts its transfers for itself, so that the two ends of one are matched by how many of
the pair each launched. Where a ring, or whoever keeps histories, lost the first of them, they are
counted from the last collective operation before it that both have. If that does not tell either
whether the other end was launched, who waits for it is taken to wait for the other rank, unless
that leads to ranks that wait for each other in a circle: there collective operations tell who is
ahead.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from localizer.collectives.groups import Group, is_finished
from localizer.collectives.histories import transfers_of
from localizer.collectives.waiting import Edge, Node, Place, Wait
from schemas.records import CollectiveOp, CollectiveSnapshot

NONE: Final[Mapping[int, Sequence[CollectiveOp]]] = {}
# The name of a group, and sender and receiver as ranks of the job.
Pair = tuple[str, tuple[int, int]]


def waits_of_pairs(
    snapshots: Sequence[CollectiveSnapshot], groups: Mapping[str, Group]
) -> list[Wait]:
    """Return who waits for whom in point-to-point operations.

    Where one end has finished all of its own, as a send that was buffered, the transfers of the
    pair are counted.
    """
    whole = {snapshot.rank: not snapshot.dropped_before for snapshot in snapshots}
    # Record ids of what each rank launched, in order.
    ids: dict[Pair, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    pending: dict[Pair, dict[int, tuple[int, CollectiveOp]]]
    pending = defaultdict(dict)
    for snapshot in snapshots:
        for operation in transfers_of(snapshot.operations):
            ends = _ends(snapshot.rank, operation, groups)
            if ends is None:
                continue
            pair = operation.communicator, ends
            own = ids[pair][snapshot.rank]
            own.append(operation.record_id)
            if not is_finished(operation):
                # Only the first that is unfinished: what follows waits for it.
                pending[pair].setdefault(snapshot.rank, (len(own), operation))
    found = []
    progress = _Progress(groups, {snapshot.rank: snapshot.operations for snapshot in snapshots})
    for pair, held in pending.items():
        name, ends = pair
        place = Place(name, 0, *ends)
        for rank, (number, operation) in held.items():
            other = ends[1] if rank == ends[0] else ends[0]
            theirs = ids[pair][other]
            launched = other in held or (whole[rank] and len(theirs) >= number)
            sure = launched or (whole[rank] and whole.get(other, False))
            if not sure:
                own = ids[pair][rank][:number]
                launched = other in whole and progress.as_many_since(rank, other, own, theirs)
            found.append(Wait(rank, place if launched else other, place, operation, sure=sure))
    return found


def transfers_in_doubt(waits: Sequence[Edge]) -> list[tuple[Wait, int]]:
    """Return the waits in transfers whose other end may have been launched or not, and its rank."""
    return [
        (wait, wait.target)
        for wait in waits
        if isinstance(wait, Wait) and not wait.sure and wait.place.sender is not None
        if isinstance(wait.target, int)
    ]


def past_false_circles(
    waits: Sequence[Edge], circle: Mapping[Node, int], groups: Mapping[str, Group]
) -> list[Edge]:
    """Lead transfers in circles on to the transfer itself where its other end is ahead.

    A program that waits for each other in a circle is rare; a history that lost some transfers is
    not. Outside of circles progress tells too little: a send may be launched before a collective
    operation, and received after it.

    Parameters
    ----------
    circle
        By rank, gate and operation, a number that those have in common that wait for each other.
    groups
        The job's, by name.
    """
    progress = _Progress(groups)
    led: dict[int, Edge] = {
        id(wait): replace(wait, target=wait.place)
        for wait, other in transfers_in_doubt(waits)
        if wait.waiter in circle and circle[wait.waiter] == circle.get(other)
        if progress.launched_too(wait.waiter, other, wait.operation)
    }
    return [led.get(id(wait), wait) for wait in waits]


class _Progress:
    """How far two ranks came, beside each other.

    As a rule a program launches a transfer on both sides of it before the same collective operation
    of a group of both, or after it. So a rank that has launched such an operation has launched the
    transfers that the other launched before.
    """

    def __init__(
        self, groups: Mapping[str, Group], operations: Mapping[int, Sequence[CollectiveOp]] = NONE
    ) -> None:
        self._groups = groups
        self._operations = operations
        # Of a large job few ranks are asked for: their groups are looked for then.
        self._groups_of: dict[int, set[str]] | None = None

    def launched_too(self, rank: int, other: int, operation: CollectiveOp) -> bool:
        """Return whether another rank is known to have launched its end of a rank's transfer."""
        for name in self._shared(rank, other):
            group = self._groups[name]
            mine, its = group.launched[rank], group.launched[other]
            if mine is None or its is None:
                continue
            own = group.operations[rank].get(its)
            if its > mine or (own is not None and own.record_id > operation.record_id):
                return True
        return False

    def as_many_since(
        self, rank: int, other: int, own: Sequence[int], theirs: Sequence[int]
    ) -> bool:
        """Return whether another rank launched as many transfers since an operation of both.

        That is the last such collective operation before the last of a rank's transfers. False if
        there is none, or if it is not sure that both may be counted from there on: of a rank that
        some operation since then is not known, and of the first whose earlier transfers had not
        ended when it launched the collective operation. It launches transfers ahead of what they
        meet then, so that its first one since may be the other's second.

        Parameters
        ----------
        own, theirs
            Record ids of the two ranks' transfers of a pair, in order.
        """
        found: tuple[CollectiveOp, CollectiveOp] | None = None
        for name in self._shared(rank, other):
            here, there = (self._groups[name].operations.get(r, {}) for r in (rank, other))
            common = (n for n, o in here.items() if o.record_id < own[-1] and n in there)
            sequence = max(common, default=None)
            if sequence is not None and (
                found is None or here[sequence].record_id > found[0].record_id
            ):
                found = here[sequence], there[sequence]
        if found is None:
            return False
        after, since = found[0].record_id, found[1].record_id
        if not (self._knows_all(rank, after, own[-1]) and self._knows_all(other, since)):
            return False
        if self._was_ahead(rank, found[0], own):
            return False
        return sum(n > since for n in theirs) >= sum(n > after for n in own)

    def _knows_all(self, rank: int, after: int, until: int | None = None) -> bool:
        """Return whether all that a rank launched after a record id is known; ids have no gaps."""
        ids = [o.record_id for o in self._operations[rank] if o.record_id > after]
        if until is not None:
            ids = [n for n in ids if n <= until]
        return len(set(ids)) == max(ids, default=after) - after

    def _was_ahead(self, rank: int, collective: CollectiveOp, own: Sequence[int]) -> bool:
        """Return whether a transfer before a collective operation ended after its launch."""
        launched_at = collective.launched_at
        before = {n for n in own if n < collective.record_id}
        return launched_at is not None and any(
            o.completed_at is not None and o.completed_at > launched_at
            for o in self._operations[rank]
            if o.record_id in before
        )

    def _shared(self, rank: int, other: int) -> list[str]:
        """Return the groups of two ranks, by name."""
        if self._groups_of is None:
            self._groups_of = defaultdict(set)
            for name, group in self._groups.items():
                for member in group.launched:
                    self._groups_of[member].add(name)
        return sorted(self._groups_of[rank] & self._groups_of[other])


def unresolved_transfer(
    snapshot: CollectiveSnapshot, groups: Mapping[str, Group]
) -> CollectiveOp | None:
    """Return the first unfinished point-to-point operation whose other end is not known."""
    return next(
        (
            operation
            for operation in transfers_of(snapshot.operations)
            if not is_finished(operation) and _ends(snapshot.rank, operation, groups) is None
        ),
        None,
    )


def _ends(
    rank: int, operation: CollectiveOp, groups: Mapping[str, Group]
) -> tuple[int, int] | None:
    """Return sender and receiver as ranks of the job.

    None where places in the group cannot be turned into ranks: its members are not all known, or
    the rank's own place is not where its members say.
    """
    group = groups.get(operation.communicator)
    if group is None or operation.sender is None or operation.receiver is None:
        return None
    if max(operation.sender, operation.receiver) >= len(group.members) or group.possible:
        return None
    sender, receiver = group.members[operation.sender], group.members[operation.receiver]
    return (sender, receiver) if rank in {sender, receiver} else None
