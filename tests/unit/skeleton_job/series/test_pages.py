"""Counters in fewer bytes: nothing is lost, and usual ones take five bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skeleton_job.series.pages import narrow

numbers = st.one_of(
    st.integers(0, 2**64 - 1), st.integers(0, 10), st.sampled_from([2**32, 2**40 - 1, 2**64 - 1])
)


@given(st.lists(st.tuples(numbers, st.integers(0, 5))))
def test_nothing_is_lost(pairs: list[tuple[int, int]]) -> None:
    """Also of counters that wrap, are reset or are garbage."""
    values = np.array([value for value, _ in pairs], np.uint64)
    group = np.array([of for _, of in pairs], np.uint8)
    assert narrow(values, group).widened(group).tolist() == values.tolist()


def test_what_grows_by_little_takes_little() -> None:
    """Five bytes each for 20 s at 400 Gbit/s, from wherever each counter stands; idle ones four."""
    group = np.tile(np.arange(8, dtype=np.uint8), 200)
    base = np.random.default_rng(1).integers(0, 2**63, 8, dtype=np.uint64)
    tick = np.repeat(np.arange(200, dtype=np.uint64), 8)
    busy = narrow(base[group] + tick * np.uint64(5 * 10**9), group)
    assert busy.high is not None
    assert busy.low.nbytes + busy.high.nbytes == 5 * group.size
    assert narrow(base[group] + tick, group).high is None
