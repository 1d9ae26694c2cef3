"""Operations of a rank as columns; records are made of those that are asked for.

A large job launches hundreds of thousands of operations a second. Of nearly all it only matters how
long they took: columns tell that for a fraction of what a Python object takes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Any, Final, Self

import numpy as np

from schemas.columns.arrays import Bools, Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import numbers_or_none
from schemas.enums import CollectiveState
from schemas.records import BatchOperation, CollectiveBatch, CollectiveOp
from schemas.records.batches import Signature, Tables, tables_of

_NAMES: Final = tuple(each.name for each in fields(BatchOperation))
ROW: Final = {name: row for row, name in enumerate(_NAMES)}
# Beside the fields of an operation: to which of the tables its indices refer.
TABLE: Final = len(_NAMES)
ROWS: Final = TABLE + 1
_NULLABLE: Final = {each.name for each in fields(BatchOperation) if each.default is None}
_STATES: Final = tuple(CollectiveState)
_CODES: Final = {state: code for code, state in enumerate(_STATES)}
# As kernels read the byte of a boolean.
_BOOLEANS: Final = {None: NULL, False: 0, True: -1}
# What `state` is of one that has ended.
COMPLETED: Final = _CODES[CollectiveState.COMPLETED]


@dataclass(slots=True, eq=False)
class OperationColumns:
    """Operations of one rank. Nobody changes them: frozen they would take twice as long to make.

    Attributes
    ----------
    numbers : (18, n) int64
        Fields of `BatchOperation` in their order: `NULL` for null, states and booleans as
        `schemas.columns.records` reads them. Then which of the tables each operation refers to.
    tables
        To what their signatures, stacks and reasons refer.
    communicators
        Their names, by index.
    """

    numbers: Int64s
    tables: Sequence[Tables]
    communicators: Sequence[str]

    def __len__(self) -> int:
        count: int = self.numbers.shape[1]
        return count

    @classmethod
    def of_batch(cls, batch: CollectiveBatch) -> Self:
        """Return the operations of a batch, whose indices are taken as they are."""
        rows = [
            [_number(getattr(each, name)) for each in batch.operations] for name in _NAMES
        ]  # fmt: skip
        rows.append([0] * len(batch.operations))
        numbers = np.array(rows, np.int64).reshape(ROWS, len(batch.operations))
        return cls(numbers, (tables_of(batch),), batch.communicators)

    @classmethod
    def of_records(cls, operations: Iterable[CollectiveOp]) -> Self:
        """Return columns of records."""
        communicators: dict[str, int] = {}
        signatures: dict[Signature, int] = {}
        stacks: dict[tuple[str, ...], int] = {}
        reasons: dict[str, int] = {}
        rows = []
        for o in operations:
            signature = Signature(
                o.operation, o.input_sizes, o.output_sizes, o.input_dtypes, o.output_dtypes
            )
            what: dict[str, Any] = o._asdict() | {
                "communicator": communicators.setdefault(o.communicator, len(communicators)),
                "signature": signatures.setdefault(signature, len(signatures)),
                "stack": stacks.setdefault(o.stack, len(stacks)) if o.stack else None,
            }
            if (reason := o.missing_reason) is not None:
                what["missing_reason"] = reasons.setdefault(reason, len(reasons))
            rows.append([*(_number(what[name]) for name in _NAMES), 0])
        numbers = np.array(rows, np.int64).reshape(len(rows), ROWS).T
        tables = Tables(tuple(signatures), tuple(stacks), tuple(reasons))
        return cls(np.ascontiguousarray(numbers), (tables,), tuple(communicators))

    def column(self, name: str) -> Int64s:
        """Return a field of `BatchOperation`, shape (n,)."""
        found: Int64s = self.numbers[ROW[name]]
        return found

    @property
    def finished(self) -> Bools:
        """Which of them have ended; see `groups.is_finished`."""
        ended: Bools = self.numbers[ROW["state"]] == COMPLETED
        return ended

    def take(self, where: Bools | Int64s) -> Self:
        """Return some of them: those of a mask, or at some places."""
        places = np.flatnonzero(where) if where.dtype == np.bool_ else where
        # In C's order, as kernels are compiled for.
        numbers = self.numbers.take(places, axis=1)
        return type(self)(numbers, self.tables, self.communicators)

    def with_codes(self, codes: Int64s, communicators: Sequence[str]) -> Self:
        """Return the same operations with other indices of their communicators."""
        numbers = self.numbers.copy()
        numbers[ROW["communicator"]] = codes
        return type(self)(numbers, self.tables, communicators)

    def with_used_tables(self) -> Self:
        """Return the same operations, with those tables alone to which any of them refers."""
        used, places = np.unique(self.numbers[TABLE], return_inverse=True)
        if len(used) == len(self.tables):
            return self
        numbers = self.numbers.copy()
        numbers[TABLE] = places
        return type(self)(numbers, [self.tables[at] for at in used.tolist()], self.communicators)

    def kinds(self) -> set[tuple[str, str, tuple[tuple[int, ...], ...]]]:
        """Return the kinds of them: by communicator, what they do, and the shapes of inputs."""
        found = set()
        rows = self.numbers[[ROW["communicator"], TABLE, ROW["signature"]]]
        for code, table, place in np.unique(rows, axis=1).T.tolist():
            signature = self.tables[table].signatures[place]
            found.add((self.communicators[code], signature.operation, signature.input_sizes))
        return found

    def records(self) -> list[CollectiveOp]:
        """Return them as records."""
        return records_of([self])[0]


def records_of(parts: Sequence[OperationColumns]) -> list[list[CollectiveOp]]:
    """Return the operations of each part as records; of many at once it takes a third as long."""
    if not any(map(len, parts)):
        return [[] for _ in parts]
    numbers = np.concatenate([part.numbers for part in parts], axis=1)
    row: dict[str, list[Any]] = {
        name: numbers_or_none(values) if name in _NULLABLE else values.tolist()
        for name, values in zip(_NAMES, numbers[:TABLE], strict=True)
    }
    tables = list(
        chain.from_iterable(
            map(part.tables.__getitem__, part.numbers[TABLE].tolist()) for part in parts
        )
    )
    names = chain.from_iterable(
        map(part.communicators.__getitem__, part.column("communicator").tolist()) for part in parts
    )
    operation, input_sizes, output_sizes, input_dtypes, output_dtypes = zip(
        *(t.signatures[at] for t, at in zip(tables, row["signature"], strict=True)), strict=True
    )
    reasons, stacks = row["missing_reason"], row["stack"]
    fields_of = zip(
        names,
        operation,
        row["sequence"],
        map(bool, row["is_p2p"]),
        row["record_id"],
        row["op_id"],
        row["sender"],
        row["receiver"],
        input_sizes,
        output_sizes,
        input_dtypes,
        output_dtypes,
        row["n_bytes"],
        row["launched_at"],
        row["started_at"],
        row["completed_at"],
        [None if at is None else t.reasons[at] for t, at in zip(tables, reasons, strict=True)],
        map(_STATES.__getitem__, row["state"]),
        [None if value is None else bool(value) for value in row["retired"]],
        row["timeout_ms"],
        [() if at is None else t.stacks[at] for t, at in zip(tables, stacks, strict=True)],
        strict=True,
    )
    made = map(CollectiveOp._make, fields_of)
    return [list(islice(made, len(part))) for part in parts]


NO_OPERATIONS: Final = OperationColumns.of_records(())


def _number(value: int | CollectiveState | None) -> int:
    if isinstance(value, CollectiveState):
        return _CODES[value]
    if value is None or isinstance(value, bool):
        return _BOOLEANS[value]
    return value
