"""5-tuples and their traces as rows of arrays: how long they stay, and what is left of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.network import flow_rows
from localizer.network.flow_rows import MOST_TRACES, SPARE_TRACES, FlowRows
from localizer.network.paths import PathBook
from localizer.network.traces import FlowTraces, flow_trace_of, trace_of
from schemas.enums import TraceCause
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
    monkeypatch.setattr(flow_rows, "SPARE_ADDRESSES", 0)
    kept = FlowRows()
    made = [trace(f"l0 x{n} e{n}", flow=n, rtts={1: n}) for n in range(3_000)]
    rows = kept.add_flows(batch_of(made), START)
    assert [kept.traces(row) for row in rows] == [[(trace_of(one), True)] for one in made]
    for row in rows[1:]:
        kept.drop(row)
    kept._clean_at = 0
    kept.forget_addresses()
    assert kept._addresses == ["@l0", "@x0", "@e0"]
    assert kept.traces(rows[0]) == [(trace_of(made[0]), True)]
    again = kept.add_flows(batch_of(made[:7]), START)
    assert len(kept) == len(kept._traces) == 8
    assert set(again) < set(rows)
    assert [kept.traces(row) for row in again] == [[(trace_of(one), True)] for one in made[:7]]


OFF = ("l0 -", "l0 s0", "l0 s0 -", "- s0 -", "-", "l0 - - - -")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("l0 s0 l1 e1", *OFF)), st.integers(0, 200) | st.just(9), st.booleans()
        ),
        max_size=60,
    )
)
def test_of_the_traces_of_a_row_those_are_kept_that_count(
    more: list[tuple[str, int, bool]],
) -> None:
    """As of objects, in whatever order they come, and some twice; no more than a few others."""
    book, twin = PathBook(small_fabric()), FlowTraces(START)
    one_by_one = PathBook(small_fabric())
    traces = [first()] + [
        trace(
            hops,
            at=START + after_s * SECOND_NS,
            complete=hops not in OFF,
            cause=TraceCause.DISCOVERY if discovery else TraceCause.LOSS,
            rtts={1: number},
        )
        for number, (hops, after_s, discovery) in enumerate(more)
    ]
    for one in traces:
        book.add_batch(batch_of([one]), START)
        made = flow_trace_of(one)
        twin.insert(made.trace, discovery=made.discovery)
        one_by_one.add_trace(one)
    for since_s in (0, 9, 100):
        since_ns = START + since_s * SECOND_NS
        book.look_up_findings([(KEY, since_ns)])
        assert book.findings_since(KEY, since_ns) == one_by_one.findings_since(KEY, since_ns)
    assert len(book._rows._traces) <= MOST_TRACES + SPARE_TRACES
    assert book.traced_ns(KEY) == twin.recent[-1].traced_ns
    flow = book._flow(KEY)
    assert flow is not None
    for kept in flow.complete:
        kept.path = None
    assert flow == twin
    assert len(book._rows) == len(book._rows._traces) == 0


def test_a_path_that_is_not_asked_for_costs_no_objects() -> None:
    """What it crosses is known all the same; another path, or single hops, make objects."""
    book = PathBook(small_fabric())
    book.add_batch(batch_of([first(flow) for flow in range(3)]), START)
    assert book.is_traced(KEY)
    assert book.traced_ns(KEY) == START
    crossed, found = book.plain_rows([KEY, ("e1", "e0", 0)])
    assert found.tolist() == [True, False]
    assert [book.component_names[one] for one in crossed[0].tolist()] == list(book.components(KEY))
    assert len(book._rows) == 3
    broken = trace("l0 s0 -", at=START + SECOND_NS, complete=False)
    book.add_batch(batch_of([broken, first(at=START + 2 * SECOND_NS)]), START)
    book.look_up_findings([(KEY, START + 1)])
    assert set(book._findings) == {KEY}
    assert book.findings_since(KEY, START + 1).passed
    assert len(book._rows) == 3
    book.add_batch(batch_of([trace("l0 s1 l1 e1", at=START + 3 * SECOND_NS)]), START)
    assert book.hop_probes(("e0", "e1", 1), 0, START)
    assert len(book._rows) == 1
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
    assert len(book) == len(book._rows) == 1
    book.forget_untraced(START + 4, START + 9)
    assert len(book) == 1
    book.forget_ends({"e1"})
    assert len(book) == len(book._rows) == len(book._rows._traces) == 0
    assert set(book.pop_changes()) == {("e0", "e1", flow) for flow in range(3)}
    crossed, found = book.plain_rows([KEY])
    assert not len(crossed)
    assert not found.any()
    assert np.array_equal(book._rows._live, np.zeros_like(book._rows._live))
