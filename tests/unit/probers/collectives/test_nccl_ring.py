"""Rings that a job's user damaged, or wrote to harm: told as such, and read in bounded time."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.collectives.nccl_ring import (
    MAX_CHANNELS,
    MAX_COMMUNICATORS,
    MAX_OPERATIONS,
    Read,
    RingError,
    RingReading,
)
from schemas.enums import CollectiveState
from tests.nccl_rings import BEGIN_NS, NOW_US, header, operation, reader, ring

# A layout's largest: all parts once, and the sequences twice.
MOST_READ = 4096 + MAX_OPERATIONS * (192 + 16) + MAX_COMMUNICATORS * 128 + MAX_CHANNELS * 136
OPERATIONS_AT = 4096 + 8 * 8


def reads(content: bytes) -> Read:
    """Return what reads a file of that content."""
    return lambda at, length: content[at : at + length]


def look(content: bytes) -> RingReading:
    """Read a ring once."""
    return reader().look(reads(content), now_us=NOW_US)


def test_a_ring_is_read() -> None:
    """The first operation is done, the second not; of the channel's chunks one waits each."""
    reading = look(ring())
    first, second = reading.dump.snapshot.operations
    assert (first.state, first.completed_at) == (
        CollectiveState.COMPLETED, (BEGIN_NS + 3) // 1_000,
    )  # fmt: skip
    assert (second.state, second.completed_at) == (CollectiveState.STARTED, None)
    (flow,) = reading.flows
    assert (flow.queued_bytes, flow.unacked_bytes, flow.unread_bytes) == (500, 400, 300)
    assert flow.stalled_ns == 10**9


def test_one_that_is_being_written_is_read_later() -> None:
    """Neither it nor what is behind it is taken for read."""
    held = reader()
    writing = held.look(reads(ring(sequences=[1, 4])), now_us=NOW_US)
    assert (writing.dump.snapshot.operations, writing.dump.highest_record_id) == ((), -1)
    both = held.look(reads(ring()), now_us=NOW_US)
    assert [o.record_id for o in both.dump.snapshot.operations] == [0, 1]


def test_one_that_is_overwritten_meanwhile_is_lost() -> None:
    """Its sequence is another one after than before; what stands behind it is used."""
    old, new = ring(), ring(sequences=[18, 4])
    looks = 0

    def read(at: int, length: int) -> bytes:
        nonlocal looks
        looks += 1
        # Header, communicators, sequences, operations: the writer comes before the sequences
        # are read again.
        return (old if looks <= 4 else new)[at : at + length]

    reading = reader().look(read, now_us=NOW_US)
    assert [o.record_id for o in reading.dump.snapshot.operations] == [1]
    assert reading.dump.snapshot.dropped_before == 1


def test_a_ring_that_goes_on_is_another_one_when_it_was_made_anew() -> None:
    """The file of a process that comes again is read from its beginning."""
    held = reader()
    held.look(reads(ring()), now_us=NOW_US)
    anew = ring(header(created_ns=BEGIN_NS + 1))
    assert len(held.look(reads(anew), now_us=NOW_US).dump.snapshot.operations) == 2
    # Read again, the one that is done is left out.
    (left,) = held.look(reads(anew), now_us=NOW_US).dump.snapshot.operations
    assert left.record_id == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "too short"),
        (b"\0" * 8_192, "not written yet"),
        (ring(header(version=2)), "a ring of layout 2"),
        (ring(header(operation_bytes=128)), "header's numbers"),
        (ring(header(operations=0)), "header's numbers"),
        (ring(header(operations=2**31)), "header's numbers"),
        (ring(header(channels=2**32 - 1)), "header's numbers"),
        (ring(header(used_communicators=3)), "header's numbers"),
        (ring(header(next_operation=2**63)), "header's numbers"),
        (ring(header(used_communicators=0)), "of no communicator"),
        (ring()[: OPERATIONS_AT + 100], "ends too early"),
        (ring()[: -2 * 128 - 1], "ends too early"),
        (ring().replace(operation(1), operation(1, hash_=0xDEF)), "of no communicator"),
        (ring().replace((800).to_bytes(8, "little"), b"\xff" * 8), "beyond all bounds"),
        (ring().replace(b"\x02\0\0\0\0\0\0\0\x01\0\0\0", b"\x02\0\0\0\x09\0\0\0\x01\0\0\0"),
         "a communicator's ranks"),
    ],
)  # fmt: skip
def test_what_is_no_ring_is_refused(content: bytes, why: str) -> None:
    """With a reason for people."""
    with pytest.raises(RingError, match=why):
        look(content)


def test_names_cannot_steer_a_terminal() -> None:
    """A job names its communicators and operations."""
    content = ring().replace(b"default_pg", b"\x1b[2Jlt_\xff\x00\x00")
    (group,) = look(content).dump.snapshot.communicators
    assert group.description == "?[2Jlt_\ufffd"


def damaged(content: bytes) -> Callable[[list[tuple[int, bytes]]], bytes]:
    """Return what writes pieces into a ring."""

    def write(pieces: list[tuple[int, bytes]]) -> bytes:
        held = bytearray(content)
        for at, piece in pieces:
            held[at : at + len(piece)] = piece
        return bytes(held[: len(content)])

    return write


WORDS = st.integers(0, 2**64 - 1).map(lambda n: n.to_bytes(8, "little"))
PIECES = st.one_of(WORDS, st.integers(0, 255).map(lambda n: bytes([n])), st.binary(max_size=24))
PLACES = st.one_of(st.integers(0, 136), st.integers(4_096, len(ring()) - 1))
RINGS = st.lists(st.tuples(PLACES, PIECES), max_size=6).map(damaged(ring()))


@given(st.lists(st.one_of(RINGS, st.binary(max_size=9_000)), min_size=1, max_size=4))
def test_no_ring_harms_its_reader(contents: list[bytes]) -> None:
    """It is refused, or read, in bounded work; what comes of it fits a record."""
    held = reader()
    for content in contents:
        amount = 0

        def read(at: int, length: int, content: bytes = content) -> bytes:
            nonlocal amount
            assert at >= 0
            assert length >= 0
            amount += length
            return content[at : at + length]

        try:
            reading = held.look(read, now_us=NOW_US)
        except RingError:
            continue
        finally:
            assert amount <= MOST_READ
        for one in reading.dump.snapshot.operations:
            assert 0 <= one.sequence < 2**60
            assert 0 <= (one.n_bytes or 0) < 2**63
        for flow in reading.flows:
            numbers = (flow.queued_bytes, flow.unacked_bytes, flow.unread_bytes, flow.stalled_ns)
            assert all(0 <= (n or 0) < 2**63 for n in numbers)


@given(st.integers(0, 40), st.data())
def test_a_ring_read_while_it_is_written_gives_no_mixture(
    written: int, data: st.DataObject
) -> None:
    """Whatever moment each part is read at, an operation is its own: number, sequence, time."""

    def at_time(now: int) -> bytes:
        held = bytearray(ring(header(next_operation=now), sequences=[0]))
        held[OPERATIONS_AT : OPERATIONS_AT + 8 * 192] = b"\0" * 8 * 192
        for number in range(now):
            place = number % 8
            held[4096 + 8 * place : 4104 + 8 * place] = (2 * number + 2).to_bytes(8, "little")
            begin = OPERATIONS_AT + 192 * place
            held[begin : begin + 192] = operation(number, ended=2)
        return bytes(held)

    now = written

    def read(at: int, length: int) -> bytes:
        nonlocal now
        now += data.draw(st.integers(0, 3))
        return at_time(now)[at : at + length]

    found = reader().look(read, now_us=NOW_US).dump.snapshot.operations
    for one in found:
        assert (one.sequence, one.op_id) == (one.record_id, one.record_id)
    assert [o.record_id for o in found] == sorted({o.record_id for o in found})
