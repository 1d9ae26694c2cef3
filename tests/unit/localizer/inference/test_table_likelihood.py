"""Numbers of states and groups, counted instead of sorted."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.table_likelihood import distinct


@given(st.lists(st.integers(0, 5_000), max_size=200))
def test_distinct_is_numpys_unique(numbers: list[int]) -> None:
    """The slow, obvious twin sorts."""
    given_ = np.array(numbers, np.int64)
    values, places = distinct(given_)
    wanted, wanted_places = np.unique(given_, return_inverse=True)
    np.testing.assert_array_equal(values, wanted)
    np.testing.assert_array_equal(places, wanted_places)
