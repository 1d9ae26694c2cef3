"""Numbers of distinct texts are those that a dict gives them; arrays of texts are read whole."""

from io import BytesIO

import fastavro
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.columns.texts import distinct_texts, texts_of

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


def encoded(schema: object, value: object) -> bytes:
    """Return a value in Avro's binary encoding."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)  # type: ignore[arg-type]
    return out.getvalue()


@given(
    blocks=st.lists(
        st.tuples(st.lists(st.text("a/0~", max_size=200), min_size=1), st.booleans()), max_size=3
    )
)
def test_texts_of_an_array_are_those_that_were_written(
    blocks: list[tuple[list[str], bool]],
) -> None:
    """In one block or several, each with its size or without."""
    array = b""
    for texts, sized in blocks:
        items = encoded({"type": "array", "items": "string"}, texts)
        count = encoded("long", len(texts))
        items = items.removeprefix(count)[:-1]
        size = encoded("long", len(items))
        array += encoded("long", -len(texts)) + size + items if sized else count + items
    array += b"\0"
    written = tuple(text for texts, _ in blocks for text in texts)
    assert texts_of(array, len(written)) == written
    assert not written or texts_of(array, len(written) - 1) is None


def test_of_too_many_texts_none_is_read() -> None:
    """A block says how many it has; what follows is not looked at."""
    assert texts_of(encoded("long", 8 * 2**20), 65_536) is None
    assert texts_of(encoded("long", -(8 * 2**20)) + encoded("long", 0), 65_536) is None
