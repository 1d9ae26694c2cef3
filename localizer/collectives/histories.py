"""Operations of ranks as an analysis reads them: records are made of those that it asks for.

Of a large job a hang is told from what waits, and from the last that ended on each communicator;
the rest says what was usual, and is asked of few ranks. Making a record takes longer than all that
is asked of most.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import overload

import numpy as np

from localizer.collectives.operation_columns import ROW, TABLE, OperationColumns
from localizer.collectives.operation_fold import choose
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.interpreter import NULL
from schemas.records import CollectiveOp

# By communicator, then by sequence, the collective operations of a rank; by sequence in order.
BySequence = Mapping[str, Mapping[int, CollectiveOp]]


@dataclass(slots=True, eq=False)
class History(Sequence[CollectiveOp]):
    """Operations of one rank, in order of their record ids.

    Attributes
    ----------
    columns
        The same.
    made
        Place -> record.
    transfers
        Places of those from one rank to another; their records are made.
    timed
        Whether it is recorded of any when its GPU began it.
    places
        Communicator -> sequence -> place, in order of sequences, of all others; a communicator on
        which there are transfers alone has none.
    """

    columns: OperationColumns
    made: dict[int, CollectiveOp] = field(default_factory=dict)
    transfers: list[int] = field(default_factory=list)
    timed: bool = False
    places: dict[str, dict[int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, place: int) -> CollectiveOp: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[CollectiveOp]: ...
    def __getitem__(self, place: int | slice) -> CollectiveOp | Sequence[CollectiveOp]:
        if isinstance(place, slice):
            return self._every()[place]
        known = self.made.get(place)
        if known is None:
            place = range(len(self))[place]
            if (known := self.made.get(place)) is None:
                (known,) = self.columns.take(np.array([place])).records()
                self.made[place] = known
        return known

    def __iter__(self) -> Iterator[CollectiveOp]:
        return iter(self._every())

    def _every(self) -> list[CollectiveOp]:
        if len(self.made) < len(self):
            self.made = dict(enumerate(self.columns.records()))
        return [self.made[place] for place in range(len(self))]


@dataclass(frozen=True, slots=True, eq=False)
class _OfCommunicator(Mapping[int, CollectiveOp]):
    """A rank's operations of one communicator, by sequence."""

    history: History
    places: Mapping[int, int]

    def __getitem__(self, sequence: int) -> CollectiveOp:
        place = self.places[sequence]
        known = self.history.made.get(place)
        return self.history[place] if known is None else known

    def __iter__(self) -> Iterator[int]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self.places


def histories_of(ranks: Sequence[OperationColumns]) -> list[History]:
    """Return the history of each rank, with records of what waits and of the last that ended."""
    found = [History(rank) for rank in ranks]
    sizes = np.array([len(rank) for rank in ranks], np.int64)
    if not sizes.sum():
        return found
    numbers = np.concatenate([rank.numbers for rank in ranks], axis=1)
    owner = np.repeat(np.arange(len(ranks)), sizes)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Communicators of each rank are numbered anew, all of them together.
    code = numbers[ROW["communicator"]]
    most = int(code.max()) + 1
    keys, own = np.unique(owner * most + code, return_inverse=True)
    numbers[ROW["communicator"]] = own
    whose = (keys // most).tolist()
    names = [ranks[r].communicators[c] for r, c in zip(whose, (keys % most).tolist(), strict=True)]
    # And so are their tables.
    counts = np.array([len(rank.tables) for rank in ranks])
    numbers[TABLE] += np.repeat(np.cumsum(counts) - counts, sizes)
    everything = OperationColumns(
        numbers, list(chain.from_iterable(rank.tables for rank in ranks)), names
    )  # fmt: skip
    transfers = numbers[ROW["is_p2p"]] != 0
    wanted = transfers.copy()
    nothing = np.zeros(len(owner), np.bool_)
    choose(numbers, nothing, len(owner), 1, np.zeros(len(keys), np.int64), wanted)
    records = everything.take(wanted).records()
    for rank, at, record in zip(_of(owner, wanted), _of(place, wanted), records, strict=True):
        found[rank].made[at] = record
    for rank, at in zip(_of(owner, transfers), _of(place, transfers), strict=True):
        found[rank].transfers.append(at)
    for rank in np.unique(owner[numbers[ROW["started_at"]] != NULL]).tolist():
        found[rank].timed = True
    for rank, name, by_sequence in zip(
        whose, names, _by_sequence(numbers, place, ~transfers, len(keys)), strict=True
    ):
        found[rank].places[name] = by_sequence
    return found


def _of(values: Int64s, where: Bools) -> list[int]:
    chosen: list[int] = values[where].tolist()
    return chosen


def _by_sequence(
    numbers: Int64s, place: Int64s, wanted: Bools, count: int
) -> Iterable[dict[int, int]]:
    """Yield for each communicator of each rank its places by sequence; of two the later counts."""
    own, sequence = numbers[ROW["communicator"]], numbers[ROW["sequence"]]
    order = np.flatnonzero(wanted)
    order = order[np.lexsort((sequence[order], own[order]))]
    sequences, places = sequence[order].tolist(), place[order].tolist()
    ends = np.searchsorted(own[order], np.arange(count), side="right").tolist()
    begin = 0
    for end in ends:
        yield dict(zip(sequences[begin:end], places[begin:end], strict=True))
        begin = end


def by_sequence(operations: Sequence[CollectiveOp]) -> BySequence:
    """Return collective operations by communicator and sequence; of two the later counts."""
    if isinstance(operations, History):
        return {n: _OfCommunicator(operations, held) for n, held in operations.places.items()}
    # All operations of all ranks pass here: a dictionary at hand for each.
    found: dict[str, dict[int, CollectiveOp]] = {}
    for operation in operations:
        own = found.get(operation.communicator)
        if own is None:
            own = found[operation.communicator] = {}
        if not operation.is_p2p:
            own[operation.sequence] = operation
    return {name: dict(sorted(own.items())) for name, own in found.items()}


def transfers_of(operations: Sequence[CollectiveOp]) -> Iterable[CollectiveOp]:
    """Return the operations from one rank to another."""
    if isinstance(operations, History):
        return [operations.made[place] for place in operations.transfers]
    return [operation for operation in operations if operation.is_p2p]


def is_timed(operations: Sequence[CollectiveOp]) -> bool:
    """Say whether it is recorded of any when its GPU began it."""
    if isinstance(operations, History):
        return operations.timed
    return any(operation.started_at is not None for operation in operations)
