"""The collector passes between decisions only, and then it does."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from localizer.edge import collector


class Knot:
    """Holds itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def settled() -> Iterator[None]:
    """Begin and settle for a test; things are as they were afterwards."""
    gc.collect()
    collector.begin()
    collector.settle()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("settled")
def test_a_pass_is_made_when_it_is_asked_for_and_much_is_new() -> None:
    """Not by itself, however much is new, and not while little is."""
    knot = weakref.ref(Knot())
    collector.tend()
    assert knot() is not None
    new = [[place] for place in range(collector.YOUNG)]
    assert knot() is not None
    collector.tend()
    assert knot() is None
    assert len(new) == collector.YOUNG


@pytest.mark.usefixtures("settled")
def test_what_outlived_a_pass_is_looked_at_again_after_some() -> None:
    """A knot that is tied later, of things that were there before, goes as well."""
    kept = [Knot()]
    knot = weakref.ref(kept[0])
    for number in range(collector.OLDER + 1):
        if number == 1:
            kept.clear()
        # Some lists are kept by Python itself for those to come, which then do not count.
        new = [[place] for place in range(collector.YOUNG + 1_000)]
        collector.tend()
        # What goes is taken off what came.
        del new
    assert knot() is None
