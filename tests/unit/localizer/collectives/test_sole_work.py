"""How long a rank worked while all others waited, against counting instant by instant."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.sole_work import alone

INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12)


@given(INTERVALS)
def test_equals_counting_each_instant(intervals: list[tuple[int, int]]) -> None:
    """An instant in which one interval alone is open belongs to it."""
    starts = np.array([begin for begin, _ in intervals], np.int64)
    ends = np.array([begin + length for begin, length in intervals], np.int64)
    expected = np.zeros(len(intervals), np.int64)
    for instant in range(45):
        held = np.flatnonzero((starts <= instant) & (instant < ends))
        if len(held) == 1:
            expected[held[0]] += 1
    assert alone(starts, ends).tolist() == expected.tolist()
