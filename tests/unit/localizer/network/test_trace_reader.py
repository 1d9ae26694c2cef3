"""Traces read together are what is kept of each record read by itself."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import compress

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localizer.network.trace_batches import joined
from localizer.network.trace_reader import Places, TraceReader
from localizer.network.traces import FlowTrace, flow_trace_of
from schemas import topics
from schemas.codec import Codec
from schemas.enums import TraceCause
from schemas.ids import path_id
from schemas.records import PathTrace, TraceHop
from tests.unit.localizer.batched import batch_of, is_regular

CODEC = Codec()
CLUSTER = "c"
TRACE = PathTrace(
    cluster=CLUSTER, path_id=path_id("a", "b"), src="a", dst="b", flow=3, agent_id="x",
    traced_at=1_790_000_000_000_000, cause=TraceCause.LOSS, complete=False, hops=(),
)  # fmt: skip
ADDRESSES = st.none() | st.sampled_from(["10.0.0.1", "10.0.0.2", "fe80::1"])


@st.composite
def traces(draw: st.DrawFn) -> PathTrace:
    """Draw a trace whose hops may be out of order, missing or doubled."""
    count = draw(st.integers(0, 6))
    ttls = list(range(1, count + 1)) if draw(st.booleans()) else draw(
        st.lists(st.integers(1, 70), max_size=6)
    )  # fmt: skip
    return replace(
        TRACE,
        flow=draw(st.integers(0, 5)),
        cause=draw(st.sampled_from(TraceCause)),
        complete=draw(st.booleans()),
        hops=tuple(
            TraceHop(ttl=t, address=draw(ADDRESSES), rtt_ns=draw(st.none() | st.just(t)))
            for t in ttls
        ),
    )


def read(records: list[PathTrace], keys: list[bytes] | None = None) -> list[FlowTrace | None]:
    """Return what the reader returns for records."""
    values = [CODEC.encode(topics.PATH_TRACE, record) for record in records]
    own = [record.path_id.encode() for record in records] if keys is None else keys
    arrivals_ns = np.array([record.traced_at * 1_000 for record in records], np.int64)
    return TraceReader(CODEC, CLUSTER).read(own, values, arrivals_ns)


@given(records=st.lists(traces(), max_size=8))
def test_what_is_kept_is_what_is_kept_of_the_record(records: list[PathTrace]) -> None:
    """Those with hops in order are read; of the others somebody decodes the record."""
    for record, found in zip(records, read(records), strict=True):
        plain = [hop.ttl for hop in record.hops] == list(range(1, len(record.hops) + 1))
        assert found == (flow_trace_of(record) if plain else None)


def read_batch(records: list[PathTrace], keys: list[bytes] | None = None) -> list[FlowTrace | None]:
    """Return the same by way of columns."""
    values = [CODEC.encode(topics.PATH_TRACE, record) for record in records]
    own = [record.path_id.encode() for record in records] if keys is None else keys
    numbers = np.arange(len(values))
    arrivals_ns = np.array([record.traced_at * 1_000 for record in records], np.int64)
    batch, taken, others = TraceReader(CODEC, CLUSTER).read_batch(
        own, values, arrivals_ns, Places(arrivals_ns + numbers, numbers, numbers + 7)
    )
    assert taken.sum() == (0 if batch is None else len(batch))
    left = zip(compress(records, ~taken), others, strict=True)
    assert not any(is_regular(record) for record, kept in left if kept is not None)
    there: Iterator[FlowTrace] = iter(())
    if batch is not None:
        assert batch.partition.tolist() == np.flatnonzero(taken).tolist()
        assert batch.offset.tolist() == (np.flatnonzero(taken) + 7).tolist()
        assert batch.at_ns.tolist() == (arrivals_ns + numbers)[taken].tolist()
        assert [(batch.ends[a], batch.ends[b]) for a, b in zip(batch.src, batch.dst, strict=True)
                ] == [key[:2] for key in batch.keys]  # fmt: skip
        there = batch.flow_traces(range(len(batch)))
    rest = iter(others)
    found = [next(there) if is_taken else next(rest) for is_taken in taken.tolist()]
    assert list(rest) == []
    return found


@given(
    records=st.lists(
        st.one_of(traces(), st.builds(replace, st.just(TRACE), cluster=st.just("other"))),
        max_size=8,
    ),
    odd=st.integers(0, 10),
)
def test_traces_are_columns_of_what_is_kept(records: list[PathTrace], odd: int) -> None:
    """Also between those of other clusters, and under other keys; equal texts are one number."""
    keys = [record.path_id.encode() for record in records]
    if odd < len(keys):
        keys[odd] = b"b>a"
    assert read_batch(records, keys) == read(records, keys)


@given(records=st.lists(traces(), min_size=1, max_size=8), rows=st.lists(st.integers(0, 30)))
def test_batches_are_selected_and_joined(records: list[PathTrace], rows: list[int]) -> None:
    """What is selected of several batches is what stands in them."""
    regular = [record for record in records if is_regular(record)]
    if not regular:
        return
    batch = batch_of(regular)
    parts = [batch.select(np.array([row % len(regular)])) for row in rows]
    both = joined([batch, *parts])
    expected = [*regular, *(regular[row % len(regular)] for row in rows)]
    found = list(both.flow_traces(range(len(both))))
    assert found == [flow_trace_of(record) for record in expected]
    assert [(both.ends[a], both.ends[b]) for a, b in zip(both.src, both.dst, strict=True)] == [
        (record.src, record.dst) for record in expected
    ]


def test_another_cluster_or_key_is_left_to_who_refuses_it() -> None:
    """Also what is too far ahead of its arrival."""
    found = read([TRACE, replace(TRACE, cluster="other"), TRACE], [b"a>b", b"a>b", b"b>a"])
    assert [one is not None for one in found] == [True, False, False]
