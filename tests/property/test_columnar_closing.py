"""What kernels compute of closed windows is what numpy does, to the last bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from streams.columnar import closing
from streams.columnar import levels as kernels
from streams.detectors import levels
from streams.statistics import window_values
from streams.table import NO_ROW, Column, Links, Table


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 400),
    rows=st.integers(1, 60),
    largest=st.sampled_from([3, 10**6, 6 * 10**10, 2**50]),
    lost=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_statistics_of_a_window(
    seed: int, count: int, rows: int, largest: int, lost: float
) -> None:
    """Any number of results of a row, ties, lost and unmeasured ones, minutes and nanoseconds."""
    rng = np.random.default_rng(seed)

    def column() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.where(rng.random(count) < lost, -1, rng.integers(0, largest, count))

    of = rng.integers(0, rows, count) * rng.integers(1, 4)
    columns = column(), column(), column()
    for wanted, found in zip(
        window_values(of, *columns), closing.window_values(of, *columns), strict=True
    ):
        assert_array_equal(found, wanted)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 40),
    windows=st.integers(1, 22),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    largest=st.sampled_from([3, 10**7, 6 * 10**10]),
)
def test_levels_of_the_look_back(
    seed: int, rows: int, windows: int, share: float, largest: int
) -> None:
    """No window, one, all of them; each feature; rows in any order, and unknown ones."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, largest, (rows, windows, 7))
    asked = rng.integers(-1, rows, 30)
    valid = (rng.random((30, windows)) < share) & (asked >= 0)[:, None]
    for column in range(7):
        for wanted, found in zip(
            levels.levels(features, asked, valid, column),
            kernels.levels(features, asked, valid, column),
            strict=True,
        ):
            assert_array_equal(found, wanted)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 4)), max_size=120))
def test_links_are_what_the_keys_say(steps: list[tuple[str, int]]) -> None:
    """Rows come, go and are used again in both tables; a link is never one of another key."""
    source, target = (Table[str]({"n": Column(np.int64, 0)}) for _ in range(2))
    links = Links(source, target)
    for key, step in steps:
        if step == 0:
            source.row(key)
        elif step == 1:
            target.row(key)
        elif step == 2 and source.find(key) is not None:
            source.remove(key)
        elif step == 3 and target.find(key) is not None:
            target.remove(key)
        elif step == 4 and (row := source.find(key)) is not None:
            assert links.make(np.array([row])).tolist() == [target.find(key)]
        rows = source.rows()
        wanted = [target.find(source.key(row)) for row in rows.tolist()]
        assert links.find(rows).tolist() == [NO_ROW if w is None else w for w in wanted]
