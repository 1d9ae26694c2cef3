"""Parts of a batch of traces name what they say, and no more."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localizer.network.trace_batches import TraceBatch, joined
from schemas.records import PathTrace
from tests.unit.localizer.batched import batch_of
from tests.unit.localizer.made import trace

ends = st.lists(st.sampled_from("abcde"), min_size=2, max_size=2, unique=True)
hops = st.lists(st.sampled_from(["-", "s0", "s1", "s2", "s3", "s4", "s5"]), min_size=1, max_size=4)


@st.composite
def traces(draw: st.DrawFn) -> PathTrace:
    """Draw a trace that may stand in a batch."""
    src, dst = draw(ends)
    route = draw(hops)
    return trace(" ".join(route), ends=(src, dst), complete="-" not in route)


def told(batch: TraceBatch) -> list[object]:
    """Return what a batch says of each trace, names for numbers."""
    ends = [(batch.ends[a], batch.ends[b]) for a, b in zip(batch.src, batch.dst, strict=True)]
    return list(zip(batch.flow_traces(range(len(batch))), ends, strict=True))


@given(st.lists(traces(), min_size=1, max_size=12), st.data())
def test_some_of_a_batch_are_the_same_traces(made: list[PathTrace], data: st.DataObject) -> None:
    """Whatever is taken from it, one after the other, and put together again."""
    whole = batch_of(made)
    numbers = st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=4)
    picked = [data.draw(numbers) for _ in range(3)]
    parts = [whole.select(np.array(rows, np.int64)) for rows in picked]
    for part, rows in zip(parts, picked, strict=True):
        assert told(part) == [told(whole)[row] for row in rows]
        assert len(part.ends) <= 2 * len(part)
    assert told(joined(parts)) == [told(whole)[row] for rows in picked for row in rows]
