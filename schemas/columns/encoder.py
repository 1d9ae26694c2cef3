"""Encodes records of a topic from columns, many at a time.

Three parts make a record: a prefix of bytes that the caller has (the header and the fields that
name what the record is of), numbers from columns, and a suffix that all records share. Which
columns there are, and in what order, the schema says.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.avro import SchemaVersion
from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled
from schemas.columns.plan import PlanError
from schemas.columns.wire import MAX_NUMBER_BYTES, WORD_BYTES, copy_bytes, write_number

NOT_NULLABLE: Final = -1


class Layout(NamedTuple):
    """The numbers of a record, in the order of the schema.

    Attributes
    ----------
    names : of the columns
    nulls : (len(names),) int8; which branch is null, NOT_NULLABLE for a field that is no union
    """

    names: tuple[str, ...]
    nulls: NDArray[np.int8]

    @property
    def max_bytes(self) -> int:
        """Most bytes of a record's numbers."""
        return (1 + MAX_NUMBER_BYTES) * len(self.names)


def make_layout(schema: SchemaVersion, prefix: tuple[str, ...], suffix: tuple[str, ...]) -> Layout:
    """Return the layout of a schema's records between the fields of prefix and suffix.

    Enums are among the numbers: their columns hold places in the schema's symbols.

    Raises
    ------
    PlanError
        If the schema does not begin and end with these fields, or has others than numbers between.
    """
    fields = schema.parsed["fields"]
    names = tuple(field["name"] for field in fields)
    inner = slice(len(prefix), len(names) - len(suffix))
    if names != (*prefix, *names[inner], *suffix):
        raise PlanError(f"fields of {schema.topic} in another order: {names}")
    nulls = [_null_branch(field["name"], field["type"]) for field in fields[inner]]
    return Layout(names[inner], np.array(nulls, np.int8))


def _null_branch(name: str, node: object) -> int:
    branches = node if isinstance(node, list) else [node]
    kinds = [branch["type"] if isinstance(branch, dict) else branch for branch in branches]
    if len(kinds) == 2 and "null" in kinds and {"int", "long"} & set(kinds):
        return kinds.index("null")
    if len(kinds) != 1 or kinds[0] not in ("int", "long", "enum"):
        raise PlanError(f"{name} is of type {kinds}")
    return NOT_NULLABLE


@compiled
def encode_records(
    prefixes: NDArray[np.uint8],
    begins: Int64s,
    lengths: Int64s,
    nulls: NDArray[np.int8],
    values: Int64s,
    null: int,
    suffix: NDArray[np.uint8],
    out: NDArray[np.uint8],
    ends: Int64s,
) -> None:
    """Write records one after the other.

    Parameters
    ----------
    prefixes : uint8, padded by a word
    begins, lengths : (n,) int64; where the prefix of each record is in `prefixes`
    nulls : of the layout
    values : (columns, n) int64
    null : stands for null in a nullable column
    suffix : uint8, and a word that is not of it
    out : uint8, written; has room for all, and a word more
    ends : (n,) int64, written: where each record ends
    """
    at = 0
    for number in range(len(lengths)):
        begin = begins[number]
        at = copy_bytes(prefixes, begin, begin + lengths[number], out, at)
        for column in range(len(nulls)):
            value = values[column, number]
            branch = nulls[column]
            if branch >= 0:
                is_null = value == null
                out[at] = np.uint8(2 * branch if is_null else 2 * (1 - branch))
                at += 1
                if is_null:
                    continue
            at = write_number(out, at, value)
        at = copy_bytes(suffix, 0, len(suffix) - WORD_BYTES, out, at)
        ends[number] = at
