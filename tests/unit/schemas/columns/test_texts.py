"""Numbers of distinct texts are those that a dict gives them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.columns.texts import distinct_texts

TEXTS = st.lists(st.text("ab", max_size=20) | st.sampled_from(["10.0.0.1", "10.0.0.11", ""]))
# As much as a kernel reads behind a text.
PAD = b"\xff" * 16


@given(TEXTS)
def test_equal_texts_have_one_number(texts: list[str]) -> None:
    """In the order in which they first come, whatever stands behind them."""
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(lengths) - lengths
    numbers, first = distinct_texts("".join(texts).encode() + PAD, starts, lengths)
    known: dict[str, int] = {}
    assert numbers.tolist() == [known.setdefault(text, len(known)) for text in texts]
    assert [texts[place] for place in first.tolist()] == list(known)
