"""Where the waiting ends, against the plain definition."""

from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.waiting import Node, Place, Wait, ends_of
from probers.collectives.flight_recorder import read_dump
from tests.flight_recorder import WORLD, Rank

(OPERATION,) = read_dump(Rank(0, WORLD).launch("0").pickled(), "d0").snapshot.operations
RANKS = st.integers(0, 6)
TARGETS = st.one_of(RANKS, st.builds(Place, st.just("0"), st.integers(1, 2)))


@given(st.lists(st.tuples(RANKS, TARGETS), max_size=14))
def test_ends_are_what_reaches_nothing_beyond_itself(edges: list[tuple[int, Node]]) -> None:
    """Nodes that reach each other and nothing else; those before them wait."""
    waits = [
        Wait(waiter, target, Place("0", 1), OPERATION, sure=True)
        for waiter, target in edges
        if waiter != target
    ]
    nodes = {w.waiter for w in waits} | {w.target for w in waits}
    reached = {node: {w.target for w in waits if w.waiter == node} for node in nodes}
    for _ in nodes:
        reached = {
            n: {*held, *(r for h in held for r in reached[h])} for n, held in reached.items()
        }
    expected = set()
    for node in nodes:
        alike = {node} | {n for n in reached[node] if node in reached[n]}
        if reached[node] <= alike:
            before = {n for n in nodes if isinstance(n, int) and reached[n] & alike}
            expected.add((frozenset(alike), frozenset(before)))
    found = ends_of(waits)
    assert {(frozenset(e.nodes), frozenset(e.waiters)) for e in found} == expected
    assert len(found) == len(expected)
    for end in found:
        assert end.waits
        assert all(wait.target in end.nodes for wait in end.waits)
