"""Operations of a batch, where they stand among those of many batches that were read together.

Most are needed once only, to learn how long they took: they are not copied for that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import lt
from typing import Final, Self

import numpy as np

from localizer.collectives.operation_columns import ROW, TABLE, OperationColumns
from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled
from schemas.columns.interpreter import NULL
from schemas.records import CollectiveBatch, CollectiveOp
from schemas.records.batches import BatchError, Tables

_REFERENCES: Final = ("communicator", "signature", "stack", "missing_reason")
_REFERRED: Final = ("communicators", "signatures", "stacks", "reasons")
_ROWS: Final = np.array([ROW[name] for name in _REFERENCES])


@dataclass(slots=True, eq=False)
class BatchOperations:
    """Operations of one batch. Nobody changes them: frozen they would take twice as long to make.

    Attributes
    ----------
    numbers : (17 or 18, n) int64
        Those of many batches; rows as of `OperationColumns`, whose last one does not matter.
    begin, end
        Which of them are those of this batch.
    communicators
        Their names, by index.
    tables
        To what they refer.
    """

    numbers: Int64s
    begin: int
    end: int
    communicators: Sequence[str]
    tables: Tables

    def __len__(self) -> int:
        return self.end - self.begin

    @classmethod
    def of_columns(cls, columns: OperationColumns) -> Self:
        """Return operations that refer to one table."""
        (tables,) = columns.tables
        return cls(columns.numbers, 0, len(columns), columns.communicators, tables)

    @classmethod
    def of_records(cls, operations: Iterable[CollectiveOp]) -> Self:
        """Return records as a batch would hold them."""
        return cls.of_columns(OperationColumns.of_records(operations))

    @classmethod
    def of_batch(cls, batch: CollectiveBatch) -> Self:
        """Return the operations of a batch.

        Raises
        ------
        BatchError
            If one refers to what the batch does not hold.
        """
        found = cls.of_columns(OperationColumns.of_batch(batch))
        references = found.numbers[_ROWS]
        if ((references < 0) & (references != NULL)).any():
            raise BatchError("an index of an operation is negative")
        greatest = references.max(axis=1, initial=NULL).tolist()
        check_references(greatest, found.communicators, found.tables)
        return found

    def columns(self) -> OperationColumns:
        """Return a copy of them."""
        numbers = np.zeros((TABLE + 1, len(self)), np.int64)
        numbers[:TABLE] = self.numbers[:TABLE, self.begin : self.end]
        return OperationColumns(numbers, (self.tables,), self.communicators)

    def in_order(self) -> Self:
        """Return a copy of them in order of their record ids; equal ones stay as they are."""
        columns = self.columns()
        order = np.argsort(columns.column("record_id"), kind="stable")
        return self.of_columns(columns.take(order))


NO_BATCH_OPERATIONS: Final = BatchOperations.of_records(())


def check_references(greatest: Sequence[int], communicators: Sequence[str], tables: Tables) -> None:
    """Compare indices with what a batch holds.

    Parameters
    ----------
    greatest
        The greatest index of communicators, signatures, stacks and reasons; none is negative.

    Raises
    ------
    BatchError
        If one refers to what the batch does not hold.
    """
    sizes = len(communicators), len(tables.signatures), len(tables.stacks), len(tables.reasons)
    if all(map(lt, greatest, sizes)):
        return
    for what, most, size in zip(_REFERRED, greatest, sizes, strict=True):
        if most >= size:
            raise BatchError(f"an index beyond the {size} {what} of the batch")


def greatest_references(numbers: Int64s, ends: Int64s) -> Int64s:
    """Return the greatest index of each batch, shape (batches, 4); `NULL`: there is none.

    Parameters
    ----------
    numbers
        As of `BatchOperations`.
    ends
        Where the operations of each batch end, which begin where those of the one before end.
    """
    found = np.full((len(ends), len(_ROWS)), NULL, np.int64)
    _note_greatest(numbers, ends, _ROWS, found)
    return found


@compiled
def _note_greatest(numbers: Int64s, ends: Int64s, rows: Int64s, found: Int64s) -> None:
    for place in range(len(rows)):
        i = 0
        for batch in range(len(ends)):
            most = NULL
            while i < ends[batch]:
                most = max(most, numbers[rows[place], i])
                i += 1
            found[batch, place] = most
