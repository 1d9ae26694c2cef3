"""Batches read as columns say what the codec reads, or are left to it."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import Codec, DecodeError
from schemas.records import CounterBatch, CounterSample
from schemas.topics import RNIC_COUNTERS
from skeleton_job.series.columns import CounterColumns, counter_columns
from skeleton_job.series.counters import CounterStore
from tests.unit.skeleton_job.series.test_counters import batch, sample

CODEC = Codec()
SECOND = batch(
    "agent-é",
    3,
    [sample(f"w1/r{r}", 10**8 * t + r, 10**14 + t) for t in range(10) for r in range(8)],
)


def columns(record: CounterBatch) -> CounterColumns | None:
    """Return what is read from a record's bytes."""
    payload = CODEC.payload(RNIC_COUNTERS, CODEC.encode(RNIC_COUNTERS, record))
    assert payload is not None
    return counter_columns(payload)


def held(store: CounterStore, record: CounterBatch) -> list[Any]:
    """Return what a store holds of a record's agent."""
    names = sorted({s.endpoint_id for s in record.samples})
    found = store.readings([record.agent_id], names, -(2**62), 2**62)
    return [
        found.begin.tolist(), found.end.tolist(), found.time_ns.tolist(),
        found.tx_bytes.tolist(), found.rx_bytes.tolist(), found.bits.tolist(),
    ]  # fmt: skip


def both(record: CounterBatch, found: CounterColumns) -> None:
    """Hold a store of columns to one of records."""
    one, other = CounterStore(10**13), CounterStore(10**13)
    for _ in range(2):
        assert one.add_batch(record) == 0
        other.add_columns(found)
    assert held(one, record) == held(other, record)
    assert (found.cluster, found.agent_id) == (record.cluster, record.agent_id)
    assert found.started_at == record.started_at


def test_a_usual_batch_is_read_as_columns() -> None:
    """Eight RNICs, ten ticks."""
    found = columns(SECOND)
    assert found is not None
    assert found.endpoints() == [s.endpoint_id for s in SECOND.samples]
    both(SECOND, found)


names = st.sampled_from(["a", "b", "long-name/r1", "long-name/r2", "é", "n" * 70, "m" * 70])
numbers = st.one_of(
    st.none(), st.sampled_from([-1, 0, 1, 63, 64, 2**31, 2**61 - 1, 2**62, 2**63 - 1]),
    st.integers(0, 2**50),
)  # fmt: skip
samples = st.builds(
    CounterSample,
    endpoint_id=names,
    rail=st.integers(0, 9),
    tick_offset_ns=st.one_of(st.integers(0, 10**9), st.sampled_from([-1, 10**12])),
    read_delay_ns=st.one_of(st.integers(0, 10**6), st.none()),
    tx_bytes=numbers,
    rx_bytes=numbers,
    counter_bits=st.sampled_from([0, 32, 34, 64, 65]),
    missing_reason=st.sampled_from([None, None, "gone"]),
)


@settings(max_examples=300)
@given(
    some=st.one_of(
        st.lists(samples, max_size=6),
        # Mostly alike: this is what is read as columns.
        st.lists(
            st.builds(
                sample, st.sampled_from(["e/0", "e/1"]), st.integers(0, 10**9),
                st.integers(0, 2**62 - 2), st.sampled_from([32, 64]),
            ),
            min_size=1, max_size=8,
        ),
    ),
    version=st.sampled_from([None, "1.2.3"]),
)  # fmt: skip
def test_columns_say_what_records_say(some: list[CounterSample], version: str | None) -> None:
    """Nulls, negatives, odd widths and other alphabets are left to the codec."""
    record = replace(batch("x", 5, some), producer_version=version)
    found = columns(record)
    if found is not None:
        both(record, found)
    usual = len({len(s.endpoint_id) for s in some}) == 1 and all(
        s.endpoint_id.isascii() and s.missing_reason is None and s.counter_bits in {32, 34, 64}
        and s.read_delay_ns is not None and 0 <= s.tick_offset_ns <= 10**9
        and all(v is not None and 0 <= v < 2**61 for v in (s.tx_bytes, s.rx_bytes))
        for s in some
    )  # fmt: skip
    assert found is not None or not usual


@settings(max_examples=400)
@given(data=st.data())
def test_mutated_bytes_are_read_as_the_codec_reads_them_or_not_at_all(data: st.DataObject) -> None:
    """A byte changed, a piece lost, a piece doubled: never another reading than the codec's."""
    value = bytearray(CODEC.encode(RNIC_COUNTERS, SECOND))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(10, len(value) - 1))
        match data.draw(st.sampled_from(["byte", "lose", "double"])):
            case "byte":
                value[at] = data.draw(st.integers(0, 255))
            case "lose":
                del value[at : at + data.draw(st.integers(1, 60))]
            case _:
                value[at:at] = value[at : at + data.draw(st.integers(1, 60))]
        if len(value) < 12:
            break
    payload = CODEC.payload(RNIC_COUNTERS, bytes(value))
    found = None if payload is None else counter_columns(payload)
    if found is None:
        return
    try:
        record = CODEC.decode(RNIC_COUNTERS, bytes(value))
    except DecodeError:
        record = None
    assert record is not None
    both(record, found)


def test_the_next_batch_of_an_agent_is_not_looked_up_again() -> None:
    """One with other endpoints is, and so is the first of a new page."""
    store = CounterStore(10**13)
    for second in range(60):
        record = replace(SECOND, started_at=SECOND.started_at + second * 10**6)
        if second == 30:
            record = batch("agent-é", 33, [sample("w2/r0", 5, 7)])
        found = columns(record)
        assert found is not None
        store.add_columns(found)
    readings = store.readings(["agent-é"], ["w1/r0", "w2/r0"], 0, 2**62)
    assert (readings.end - readings.begin).tolist() == [590, 1]
    assert np.all(np.diff(readings.time_ns[:590]) > 0)
