"""Many messages read by a kernel are what the codec reads one by one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.columns.records import NO_ARRIVAL, RecordReader
from schemas.enums import AgentState, ProbingState, TraceCause
from schemas.records import Heartbeat, PathTrace, TraceHop
from schemas.units import SECOND_NS
from tests.unit.schemas.valid import valid_datum

CODEC = Codec()
AT_US = 1_790_000_000 * 10**6
BEAT = Heartbeat(
    cluster="c", agent_id="a", host_id="h", incarnation=AT_US * 1_000, seq=0, sent_at=AT_US,
    interval_ns=SECOND_NS, state=AgentState.RUNNING, endpoints=1, targets_active=1,
    targets_waiting=0, rounds_sent=0, results_sent=0, rounds_dropped=0, replies_duplicate=0,
    replies_late=0, replies_foreign=0, packets_malformed=0, records_undecodable=0,
    broker_away=False,
)  # fmt: skip
TEXTS = st.none() | st.text(max_size=20) | st.just("x" * 5_000)
NUMBERS = st.sampled_from([0, 1, 63, 64, 10**6, 2**31 - 1, 2**40, 2**62, -1])
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "agent_id": st.sampled_from(["", "agent", "ä", "x" * 300]),
        "state": st.sampled_from(AgentState),
        "probing": st.sampled_from(ProbingState),
        "state_reason": TEXTS,
        "list_refusal": TEXTS,
        "producer_version": TEXTS,
        "seq": NUMBERS,
        "rounds_sent": NUMBERS,
        "sent_at": st.sampled_from([0, AT_US, AT_US + 10**10, 2**62, -1]),
        "interval_ns": NUMBERS,
        "host_delay_ns": st.none() | NUMBERS,
        "clock_offset_ns": st.none() | NUMBERS,
        "broker_away": st.booleans(),
    },
)


def by_codec(value: bytes, arrival_ns: int) -> Any:
    """Return what the codec says, None for an error."""
    try:
        return CODEC.decode(
            topics.HEARTBEAT, value, arrival_ns=None if arrival_ns == NO_ARRIVAL else arrival_ns
        )
    except DecodeError:
        return None


@settings(max_examples=200)
@given(
    changes=st.lists(CHANGES, max_size=8),
    arrival_ns=st.sampled_from([NO_ARRIVAL, AT_US * 1_000, 0]),
    damage=st.none() | st.tuples(st.integers(0, 7), st.integers(0, 200), st.integers(0, 255)),
)
def test_it_reads_what_the_codec_reads(
    changes: list[dict[str, Any]], arrival_ns: int, damage: tuple[int, int, int] | None
) -> None:
    """Texts of any length and script, numbers in and out of bounds, and damaged bytes."""
    values = [CODEC.encode(topics.HEARTBEAT, replace(BEAT, **change)) for change in changes]
    if damage is not None and damage[0] < len(values):
        number, at, byte = damage
        broken = bytearray(values[number])
        broken[at % len(broken)] = byte
        values[number] = bytes(broken)
    found = RecordReader(CODEC, topics.HEARTBEAT).read(
        values, np.full(len(values), arrival_ns, np.int64)
    )
    assert len(found) == len(values)
    for record, value in zip(found, values, strict=True):
        # What it does not read, the codec may still accept; it accepts nothing else.
        assert record is None or record == by_codec(value, arrival_ns)


def test_plain_records_are_read() -> None:
    """Also beside ones that are not, and with every kind of field."""
    full = replace(
        BEAT, state_reason="slow", pinglist_version=3, host_delay_ns=5, broker_away=True,
        probing=ProbingState.PROBING, flows_active=7, producer_version="0.1.0",
    )  # fmt: skip
    beats = [BEAT, replace(BEAT, agent_id=""), full, replace(BEAT, seq=2)]
    values = [CODEC.encode(topics.HEARTBEAT, beat) for beat in beats]
    values.append(b"nothing")
    found = RecordReader(CODEC, topics.HEARTBEAT).read(values, np.full(5, NO_ARRIVAL))
    assert found == [beats[0], None, beats[2], beats[3], None]


HOPS = st.lists(
    st.builds(
        TraceHop,
        ttl=st.sampled_from([0, 1, 2, 255, 256]),
        address=st.none() | st.sampled_from(["", "10.0.0.1", "ä", "x" * 1_100]),
        rtt_ns=st.none() | st.sampled_from([0, -5, 10**6, 10**15]),
    ),
    max_size=70,
).map(tuple)
PLAIN_HOPS = tuple(TraceHop(ttl=n, address=f"10.0.0.{n}", rtt_ns=n) for n in range(1, 5))
TRACE = PathTrace(
    cluster="c", path_id="a>b", src="a", dst="b", flow=0, agent_id="a", traced_at=AT_US,
    cause=TraceCause.DISCOVERY, complete=True, hops=PLAIN_HOPS,
)  # fmt: skip


@settings(max_examples=200)
@given(
    hops=st.lists(HOPS | st.just(PLAIN_HOPS), max_size=6),
    flow=st.sampled_from([0, 65_535, 65_536]),
    damage=st.none() | st.tuples(st.integers(0, 7), st.integers(0, 200), st.integers(0, 255)),
)
def test_arrays_are_read_as_the_codec_reads_them(
    hops: list[tuple[TraceHop, ...]], flow: int, damage: tuple[int, int, int] | None
) -> None:
    """Any number of items, in and out of bounds; one that cannot be read moves no other's items."""
    traces = [replace(TRACE, hops=one, flow=flow * (n % 2)) for n, one in enumerate(hops)]
    values = [CODEC.encode(topics.PATH_TRACE, one) for one in traces]
    if damage is not None and damage[0] < len(values):
        number, at, byte = damage
        broken = bytearray(values[number])
        broken[at % len(broken)] = byte
        values[number] = bytes(broken)
    found = RecordReader(CODEC, topics.PATH_TRACE).read(values, np.full(len(values), NO_ARRIVAL))
    assert len(found) == len(values)
    for number, (record, value) in enumerate(zip(found, values, strict=True)):
        try:
            slow = CODEC.decode(topics.PATH_TRACE, value)
        except DecodeError:
            slow = None
        assert record is None or record == slow
        whole = hops[number] == PLAIN_HOPS and flow * (number % 2) <= 65_535
        if whole and (damage is None or damage[0] != number):
            assert record == slow


@given(
    doubles=st.lists(
        st.tuples(st.floats(), st.none() | st.floats(), st.booleans()), min_size=1, max_size=8
    )
)
def test_doubles_are_read_as_the_codec_reads_them(
    doubles: list[tuple[float, float | None, bool]],
) -> None:
    """Every number that there is, missing ones, and messages that end within one."""
    values = [
        CODEC.encode_datum(
            topics.ANOMALY,
            valid_datum(topics.ANOMALY.name) | {"value": value, "reference": reference},
        )
        for value, reference, _ in doubles
    ]
    values = [v[:-4] if cut else v for v, (*_, cut) in zip(values, doubles, strict=True)]
    found = RecordReader(CODEC, topics.ANOMALY).read(values, np.full(len(values), NO_ARRIVAL))
    for record, value, (*numbers, cut) in zip(found, values, doubles, strict=True):
        if cut:
            assert record is None
            continue
        try:
            slow = CODEC.decode(topics.ANOMALY, value)
        except DecodeError:
            slow = None
        # -0.0 stands for null in a column.
        odd = any(number == 0.0 and np.signbit(number) for number in numbers if number is not None)
        assert record == (None if odd else slow)


def test_two_arrays_are_refused() -> None:
    """Items of one array fill the columns."""
    with pytest.raises(TypeError, match="no kernel"):
        RecordReader(CODEC, topics.FAULT_EVENT)
