"""Operations of a rank as columns; records are made of those that are asked for.

A large job launches hundreds of thousands of operations a second. Of nearly all it only matters how
long they took: columns tell that for a fraction of what a Python object takes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import numbers_or_none
from schemas.enums import CollectiveState
from schemas.records import BatchOperation, CollectiveBatch, CollectiveOp
from schemas.records.batches import BatchError, Signature, Tables, tables_of

_NAMES: Final = tuple(each.name for each in fields(BatchOperation))
ROW: Final = {name: row for row, name in enumerate(_NAMES)}
_NULLABLE: Final = {each.name for each in fields(BatchOperation) if each.default is None}
_STATES: Final = tuple(CollectiveState)
_CODES: Final = {state: code for code, state in enumerate(_STATES)}
# An index of a batch has sixteen bits.
INDEX_BITS: Final = 16
# As kernels read the byte of a boolean.
_BOOLEANS: Final = {None: NULL, False: 0, True: -1}
# What `state` is of one that has ended.
COMPLETED: Final = _CODES[CollectiveState.COMPLETED]
_REFERENCES: Final = [ROW[n] for n in ("communicator", "signature", "stack", "missing_reason")]
_REFERRED: Final = ("communicators", "signatures", "stacks", "reasons")


@dataclass(frozen=True, slots=True, eq=False)
class OperationColumns:
    """Operations of one rank.

    Attributes
    ----------
    numbers : (17, n) int64
        Fields of `BatchOperation` in their order: `NULL` for null, states and booleans as
        `schemas.columns.records` reads them.
    tables : (n,) object
        The `Tables` to which signature, stack and reason of each operation refer.
    communicators
        Their names, by index.
    """

    numbers: Int64s
    tables: NDArray[np.object_]
    communicators: Sequence[str]

    def __len__(self) -> int:
        return len(self.tables)

    @classmethod
    def checked(cls, numbers: Int64s, communicators: Sequence[str], tables: Tables) -> Self:
        """Return the operations of a batch, none of whose indices is negative.

        Raises
        ------
        BatchError
            If one refers to what the batch does not hold.
        """
        count = numbers.shape[1]
        if count:
            sizes = map(len, (communicators, tables.signatures, tables.stacks, tables.reasons))
            greatest = numbers[_REFERENCES].max(axis=1).tolist()
            for what, most, size in zip(_REFERRED, greatest, sizes, strict=True):
                if most >= size:
                    raise BatchError(f"an index beyond the {size} {what} of the batch")
        held = np.empty(count, np.object_)
        held.fill(tables)
        return cls(np.ascontiguousarray(numbers), held, communicators)

    @classmethod
    def of_batch(cls, batch: CollectiveBatch) -> Self:
        """Return the operations of a batch; raises BatchError as `checked`."""
        rows = [
            [_number(getattr(each, name)) for each in batch.operations] for name in _NAMES
        ]  # fmt: skip
        numbers = np.array(rows, np.int64).reshape(len(_NAMES), len(batch.operations))
        references = numbers[_REFERENCES]
        if ((references < 0) & (references != NULL)).any():
            raise BatchError("an index of an operation is negative")
        return cls.checked(numbers, batch.communicators, tables_of(batch))

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
            rows.append([_number(what[name]) for name in _NAMES])
        numbers = np.array(rows, np.int64).reshape(len(rows), len(_NAMES)).T
        tables = Tables(tuple(signatures), tuple(stacks), tuple(reasons))
        return cls.checked(numbers, tuple(communicators), tables)

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
        return type(self)(numbers, self.tables[places], self.communicators)

    def with_codes(self, codes: Int64s, communicators: Sequence[str]) -> Self:
        """Return the same operations with other indices of their communicators."""
        numbers = self.numbers.copy()
        numbers[ROW["communicator"]] = codes
        return type(self)(numbers, self.tables, communicators)

    def followed_by(self, later: Self) -> Self:
        """Return these and others, which name communicators by the same indices."""
        return type(self)(
            np.concatenate([self.numbers, later.numbers], axis=1),
            np.concatenate([self.tables, later.tables]),
            later.communicators,
        )

    def one_of_each_kind(self, places: Int64s | None = None) -> Iterable[int]:
        """Return places at which there is each kind at least once, and few more.

        `places`: of operations at these alone.
        """
        if places is None:
            places = np.arange(len(self))
        codes, signatures = self.column("communicator")[places], self.column("signature")[places]
        kinds: list[int] = (codes << INDEX_BITS | signatures).tolist()
        # What names a kind depends on the tables; these are few objects, and one of a batch.
        tables = list(map(id, self.tables[places].tolist()))
        if len(set(tables)) <= 1:
            return dict(zip(kinds, places.tolist(), strict=True)).values()
        named = zip(tables, kinds, strict=True)
        return dict(zip(named, places.tolist(), strict=True)).values()

    def kind(self, place: int) -> tuple[object, ...]:
        """Return of one its communicator, what it does, and the shapes of its inputs."""
        signature = self.tables[place].signatures[self.numbers[ROW["signature"], place]]
        communicator = self.communicators[self.numbers[ROW["communicator"], place]]
        return communicator, signature.operation, signature.input_sizes

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
        for name, values in zip(_NAMES, numbers, strict=True)
    }
    tables: list[Tables] = np.concatenate([part.tables for part in parts]).tolist()
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
