"""First traces as rows of arrays: how long they stay, and what is left of them."""

import numpy as np
import pytest

from localizer.network import first_traces
from localizer.network.first_traces import FirstTraces
from localizer.network.paths import PathBook
from localizer.network.traces import trace_of
from schemas.records import PathTrace
from schemas.units import SECOND_NS
from tests.unit.localizer.batched import batch_of
from tests.unit.localizer.made import START, small_fabric, trace

KEY = ("e0", "e1", 0)


def first(flow: int = 0, at: int = START) -> PathTrace:
    """Return a whole trace of a 5-tuple."""
    return trace("l0 s0 l1 e1", flow=flow, at=at)


def test_rows_hold_the_traces_until_they_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are used again, and addresses of what has gone are forgotten."""
    monkeypatch.setattr(first_traces, "SPARE_ADDRESSES", 0)
    kept = FirstTraces()
    made = [trace(f"l0 x{n} e{n}", flow=n, rtts={1: n}) for n in range(3_000)]
    rows = kept.add_traces(batch_of(made), START)
    assert [kept.trace(row)[0] for row in rows] == [trace_of(one) for one in made]
    for row in rows[1:]:
        kept.drop(row)
    kept._clean_at = 0
    kept.forget_addresses()
    assert kept._addresses == ["@l0", "@x0", "@e0"]
    assert kept.trace(rows[0])[0] == trace_of(made[0])
    again = kept.add_traces(batch_of(made[:7]), START)
    assert len(kept) == 8
    assert set(again) < set(rows)
    assert [kept.trace(row)[0] for row in again] == [trace_of(one) for one in made[:7]]


def test_a_path_that_is_not_asked_for_costs_no_objects() -> None:
    """What it crosses is known all the same; a second trace, or its hops, make objects."""
    book = PathBook(small_fabric())
    book.add_batch(batch_of([first(flow) for flow in range(3)]), START)
    assert book.is_traced(KEY)
    assert book.traced_ns(KEY) == START
    crossed, found = book.plain_rows([KEY, ("e1", "e0", 0)])
    assert found.tolist() == [True, False]
    assert [book.component_names[one] for one in crossed[0].tolist()] == list(book.components(KEY))
    assert len(book._first) == 3
    book.add_batch(batch_of([first(at=START + SECOND_NS)]), START)
    assert book.hop_probes(("e0", "e1", 1), 0, START)
    assert len(book._first) == 1
    assert len(book) == 3


def test_of_more_than_may_be_known_the_first_come_first_served() -> None:
    """Also within a batch, and where a 5-tuple stands in it twice."""
    book = PathBook(small_fabric(), max_flows=2)
    book.add_batch(batch_of([first(0), first(0, START + 1), first(1), first(2)]), START)
    assert len(book) == 2
    assert book.refused == 1


def test_rows_are_forgotten_unless_they_are_probed() -> None:
    """By when they were last seen; of ends that are forgotten at once."""
    book = PathBook(small_fabric())
    book.add_batch(batch_of([first(flow) for flow in range(3)]), START)
    book.forget_untraced(START + 1, START + 5, {KEY})
    assert len(book) == len(book._first) == 1
    book.forget_untraced(START + 4, START + 9)
    assert len(book) == 1
    book.forget_ends({"e1"})
    assert len(book) == len(book._first) == 0
    assert set(book.pop_changes()) == {("e0", "e1", flow) for flow in range(3)}
    crossed, found = book.plain_rows([KEY])
    assert not len(crossed)
    assert not found.any()
    assert np.array_equal(book._first._live, np.zeros_like(book._first._live))
