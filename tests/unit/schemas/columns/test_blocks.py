"""Messages of a topic become blocks, whatever framings and versions of its schema are mixed."""

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas import avro
from schemas.columns.blocks import Blocks
from schemas.framing import ConfluentFramer, FramingError, SingleObjectFramer
from schemas.topics import PROBE_ROUND
from streams.columns.round_kernel import ROUNDS
from tests.unit.schemas.golden import example

VERSIONS = avro.versions(PROBE_ROUND.name)
GARBAGE = (
    b"",
    b"\x00",
    b"\xc3\x01",
    b"\xc3\x01" + bytes(20),
    b"\x00\x00\x00\x00\x63" + bytes(9),
    b"x",
)


class Ids:
    """Each version of the schema has its number as id."""

    def id_of(self, schema: avro.SchemaVersion) -> int:
        """Return the id."""
        return schema.version

    def schema_of(self, topic: str, schema_id: int) -> avro.SchemaVersion:
        """Return the version with that id."""
        for version in avro.versions(topic):
            if version.version == schema_id:
                return version
        raise FramingError(f"unknown schema id {schema_id} for {topic}")


DATA = [avro.write_datum(v, example(v.parsed, "full", PROBE_ROUND.name)) for v in VERSIONS]
FRAMERS = (SingleObjectFramer(Ids()), ConfluentFramer(Ids()))


@given(
    st.lists(
        st.tuples(st.integers(0, len(VERSIONS) - 1), st.sampled_from(FRAMERS))
        | st.sampled_from(GARBAGE),
        max_size=12,
    ),
    st.sampled_from(FRAMERS),
)
def test_blocks_hold_every_datum_in_order(chosen: list[Any], framer: Any) -> None:
    """Each message of a known schema is found without its header, by a plan of its version."""
    values: list[bytes] = []
    wanted: list[bytes | None] = []
    for one in chosen:
        if isinstance(one, bytes):
            values.append(one)
            wanted.append(None)
            continue
        number, writer = one
        values.append(writer.header(VERSIONS[number]) + DATA[number])
        wanted.append(DATA[number])
    blocks = Blocks(framer, ROUNDS)
    for _ in range(2):  # what it has learned changes nothing
        found: list[bytes | None] = []
        for block in blocks.make(values):
            assert block.first == len(found)
            for start, end in zip(block.starts, block.ends, strict=True):
                found.append(None if block.plan is None else block.data[start:end].tobytes())
        planned = [w for w, f in zip(wanted, found, strict=True) if f is not None]
        assert [f for f in found if f is not None] == planned
        # Of the current version all have a plan, in both framings.
        for value, f in zip(values, found, strict=True):
            headers = [w.header(VERSIONS[-1]) for w in FRAMERS]
            if any(value.startswith(h) for h in headers):
                assert f is not None


def test_one_framing_in_a_row_is_one_block() -> None:
    """The rule while nothing changes; a change of framing costs a block, not a message."""
    single, confluent = (w.header(VERSIONS[-1]) + DATA[-1] for w in FRAMERS)
    blocks = Blocks(FRAMERS[1], ROUNDS)
    for values, sizes in (
        ([single] * 3, [3]),
        ([confluent] * 3, [3]),
        ([single, single, confluent, confluent, confluent], [2, 3]),
    ):
        assert [len(block) for block in blocks.make(values)] == sizes
    assert struct.unpack(">bI", confluent[:5]) == (0, VERSIONS[-1].version)
