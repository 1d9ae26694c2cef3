"""Numbers that kernels write are those that kernels read, and those of Avro."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.avro import current, load_version, write_datum
from schemas.columns.encoder import encode_records, make_layout
from schemas.columns.plan import PlanError
from schemas.columns.wire import MAX_NUMBER_BYTES, WORD_BYTES, read_number, write_number

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 62).map(lambda bits: 2**bits)
NULL = -(2**40)
SCHEMA = load_version(
    current("probe.window.v1").topic,
    1,
    """{"type": "record", "name": "Numbers", "fields": [
        {"name": "id", "type": "string"},
        {"name": "plain", "type": "long"},
        {"name": "first", "type": ["null", "long"]},
        {"name": "last", "type": ["long", "null"]},
        {"name": "end", "type": "string"}]}""",
)


@settings(max_examples=300, deadline=None)
@given(LONGS)
@example(-(2**63))
@example(2**63 - 1)
def test_numbers_are_read_as_they_were_written(number: int) -> None:
    """As short as Avro has them, one to ten bytes."""
    out = np.zeros(MAX_NUMBER_BYTES + WORD_BYTES, np.uint8)
    end = write_number(out, 0, number)
    raw = (number << 1) ^ (number >> 63)
    assert end == max(1, -(-raw.bit_length() // 7))
    assert read_number(out, 0) == (number, end)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), LONGS, st.none() | LONGS, st.none() | LONGS)))
def test_records_are_those_of_fastavro(said: list[tuple[str, int, int | None, int | None]]) -> None:
    """Null is the first branch of a union, or the second."""
    layout = make_layout(SCHEMA, ("id",), ("end",))
    assert layout.names == ("plain", "first", "last")
    wanted = [
        write_datum(SCHEMA, {"id": i, "plain": p, "first": f, "last": g, "end": "z"})
        for i, p, f, g in said
    ]
    nothing = {"plain": 0, "first": None, "last": None, "end": ""}
    prefixes = [write_datum(SCHEMA, {"id": i, **nothing})[:-4] for i, *_ in said]
    ends = np.cumsum([0, *map(len, prefixes)])
    columns = np.array([[NULL if v is None else v for v in row[1:]] for row in said], np.int64)
    suffix = b"\x02z"
    out = np.zeros(sum(map(len, wanted)) + 99, np.uint8)
    behind = np.zeros(len(said), np.int64)
    encode_records(
        np.frombuffer(b"".join([*prefixes, bytes(WORD_BYTES)]), np.uint8), ends[:-1], np.diff(ends),
        layout.nulls, np.ascontiguousarray(columns.reshape(-1, 3).T), NULL,
        np.frombuffer(suffix + bytes(WORD_BYTES), np.uint8), out, behind,
    )  # fmt: skip
    assert out[: behind[-1] if said else 0].tobytes() == b"".join(wanted)


@pytest.mark.parametrize(
    ("prefix", "suffix"), [(("plain",), ("end",)), (("id",), ()), ((), ("end",))]
)
def test_a_schema_of_another_order_has_no_layout(
    prefix: tuple[str, ...], suffix: tuple[str, ...]
) -> None:
    """Nor has one with texts among the numbers."""
    with pytest.raises(PlanError):
        make_layout(SCHEMA, prefix, suffix)
