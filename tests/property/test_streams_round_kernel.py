"""The kernel reads what fastavro reads, and refuses what it is not sure of."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from schemas import avro
from schemas.avro import SchemaVersion
from schemas.columns.interpreter import NULL, PAD_BYTES
from schemas.columns.wire import BAD, read_number
from schemas.framing import SINGLE_OBJECT_HEADER_BYTES
from streams.columns.index import FlowIndex, Names, find_flow, find_name
from streams.columns.round_kernel import UNKNOWN
from tests.unit.streams.columns.rounds_read import TOPIC, Datum, Reader, expected, framed
from tests.unit.streams.worlds import result, round_datum

VERSIONS = avro.versions(TOPIC)
LONGS = st.integers(-(2**63) + 1, 2**63 - 1)
TEXTS = st.text(min_size=0, max_size=40)


def symbols(name: str) -> list[str]:
    """Return the symbols of a result's enum, those of the first version."""
    results = next(f for f in VERSIONS[0].parsed["fields"] if f["name"] == "results")
    field = next(f for f in results["type"]["items"]["fields"] if f["name"] == name)
    return list(field["type"]["symbols"])


RESULTS = st.fixed_dictionaries(
    {
        "src": TEXTS,
        "dst": TEXTS,
        "flow": st.integers(-(2**31), 2**31 - 1),
        "sent_offset_ns": LONGS,
        "transport": st.sampled_from(symbols("transport")),
        "status": st.sampled_from(symbols("status")),
        "rtt_ns": st.none() | LONGS,
        "prober_delay_ns": st.none() | LONGS,
        "responder_delay_ns": st.none() | LONGS,
        "clock": st.sampled_from(symbols("clock")),
    }
)
ROUNDS = st.fixed_dictionaries(
    {
        "cluster": TEXTS,
        "agent_id": TEXTS,
        # What the kernel passes over has to be ASCII for it.
        "host_id": st.text(st.characters(max_codepoint=127), max_size=40),
        "incarnation": LONGS,
        "round_seq": LONGS,
        "started_at": LONGS,
        "interval_ns": LONGS,
        "pinglist_version": st.none() | LONGS,
        "producer_version": st.none() | st.text(st.characters(max_codepoint=127), max_size=9),
        "results": st.lists(RESULTS, max_size=12),
    }
)


@settings(max_examples=200)
@given(
    st.sampled_from(VERSIONS), st.lists(ROUNDS, min_size=1, max_size=3), st.integers(0, 2**64 - 1)
)
def test_rounds_that_are_known_read_as_fastavro_reads_them(
    schema: SchemaVersion, data: list[Datum], seed: int
) -> None:
    """Whatever is in them, in any order, once their names and 5-tuples were met."""
    reader = Reader(seed)
    values = [framed(datum, schema) for datum in data]
    for value, datum in zip(values, data, strict=True):
        reader.learn(value, datum)
    for value in values[::-1] + values:
        decoded = avro.read_datum(schema, avro.current(TOPIC), value[SINGLE_OBJECT_HEADER_BYTES:])
        assert reader.read(value) == expected(decoded)


@settings(max_examples=100)
@given(ROUNDS, ROUNDS)
def test_what_is_not_known_is_said_to_be(met: Datum, other: Datum) -> None:
    """A round with another name or 5-tuple is not read as if it were a known one."""
    reader = Reader()
    reader.learn(framed(met), met)
    told = {(met["agent_id"], r["src"], r["dst"], r["flow"]) for r in met["results"]}
    named = {other["cluster"], other["agent_id"]} <= set(reader.texts)
    known = named and all(
        (other["agent_id"], r["src"], r["dst"], r["flow"]) in told for r in other["results"]
    )
    assume(not known)
    assert reader.read(framed(other)) == UNKNOWN


@settings(max_examples=300)
@given(ROUNDS, st.data())
def test_hostile_bytes_are_refused_or_read_as_fastavro_reads_them(
    datum: Datum, data: st.DataObject
) -> None:
    """Truncated, changed, lengthened: nothing is accepted that fastavro would not accept alike."""
    reader = Reader()
    value = framed(datum)
    reader.learn(value, datum)
    changed = bytearray(value)
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(SINGLE_OBJECT_HEADER_BYTES, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(SINGLE_OBJECT_HEADER_BYTES, len(changed)))
    hostile = bytes(changed[:cut]) + data.draw(st.binary(max_size=12))
    found = reader.read(hostile)
    try:
        decoded = avro.read_datum(
            avro.current(TOPIC), avro.current(TOPIC), hostile[SINGLE_OBJECT_HEADER_BYTES:]
        )
    except ValueError:
        assert isinstance(found, int)
        return
    if not isinstance(found, int):
        assert found == expected(decoded)


def test_items_may_come_in_blocks_with_their_size() -> None:
    """Avro lets a writer split an array, and tell a block's bytes."""
    one, other = result("a", "b", 1, 5, 10), result("a", "c", 2, 6, None)
    whole = framed(round_datum([one, other], 10**18))
    reader = Reader()
    reader.learn(whole, round_datum([one, other], 10**18))
    bodies = []
    for r in (one, other):
        single = framed(round_datum([r], 10**18))
        nothing = framed(round_datum([], 10**18))
        bodies.append(single[len(nothing) : -1])
    head = framed(round_datum([], 10**18))[:-1]
    size = bodies[1]
    blocks = b"\x02" + bodies[0] + b"\x01" + bytes([2 * len(size)]) + size + b"\x00"
    assert len(size) < 64
    assert reader.read(head + blocks) == reader.read(whole)
    assert not isinstance(reader.read(whole), int)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(min_size=16, max_size=16))
@example(NULL, b"\xff" * 16)
@example(2**63 - 1, b"\x80" * 16)
def test_numbers_are_read_whatever_follows(number: int, behind: bytes) -> None:
    """Zigzag varints of one to ten bytes."""
    raw = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    assert read_varint(bytes(encoded) + behind) == (number, len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff" * 11, b"\xff" * 9 + b"\x02"])
def test_numbers_beyond_64_bits_are_refused(encoded: bytes) -> None:
    """Eleven bytes, or ten with more than a bit in the last."""
    assert read_varint(encoded + bytes(16))[1] == BAD


def read_varint(data: bytes) -> tuple[int, int]:
    """Return what the kernel reads."""
    return read_number(np.frombuffer(data, np.uint8), 0)


@settings(max_examples=60)
@given(
    st.lists(st.binary(min_size=1, max_size=60), unique=True, min_size=1, max_size=300),
    st.integers(0, 2**64 - 1),
    st.randoms(use_true_random=False),
)
def test_the_index_finds_what_was_entered_and_not_removed(
    keys: list[bytes], seed: int, random: Any
) -> None:
    """Through growth, removal and reuse of rows, against a dict."""
    flows = FlowIndex(seed)
    held: dict[tuple[int, bytes], int] = {}
    for _ in range(3 * len(keys)):
        key = random.choice(keys)
        agent = random.randrange(3)
        if (agent, key) in held and random.random() < 0.6:
            flows.forget(held.pop((agent, key)))
        elif (agent, key) not in held:
            # Some at once, one of them twice.
            fresh = [key, *(k for k in keys[:3] if k != key and (agent, k) not in held)]
            free = set(range(len(held) + len(fresh))) - set(held.values())
            chosen = sorted(free)[: len(fresh)]
            rows = np.array([*chosen, chosen[0]], np.int64)
            data = b"".join([*fresh, key])
            ends = np.cumsum([*map(len, fresh), len(key)])
            spans = np.stack([np.r_[0, ends[:-1]], ends], axis=1)
            held |= {(agent, k): n for k, n in zip(fresh, chosen, strict=True)}
            flows.enter(rows, agent, np.frombuffer(data, np.uint8), spans)
    for agent in range(3):
        for key in keys:
            padded = np.frombuffer(key + bytes(PAD_BYTES), np.uint8)
            found = find_flow(flows.arrays, padded, 0, len(key), agent, flows.seed)
            assert found == held.get((agent, key), -1)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=70), unique=True, min_size=1, max_size=200), st.integers(0, 99))
def test_names_are_found_by_their_bytes(texts: list[str], seed: int) -> None:
    """Each by its number, the others not at all."""
    names = Names(seed)
    entered = texts[: len(texts) // 2 + 1]
    for number, text in enumerate(entered):
        names.enter(number, text)
        names.enter(number, text)
    for place, text in enumerate(texts):
        raw = text.encode()
        padded = np.frombuffer(raw + bytes(PAD_BYTES), np.uint8)
        found = find_name(names.arrays, padded, 0, len(raw))
        assert found == (place if place < len(entered) else -1)
