"""A problem that comes again is not solved again, and one that differs in anything is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.inference import explainer
from localizer.inference.causes import Cause, Columns, Reason
from localizer.inference.detection_lag import Shown
from localizer.inference.explainer import Explainer
from localizer.inference.good_flows import GoodFlows
from localizer.inference.search import Explanation, Problem, explain
from localizer.inference.tables import Table
from localizer.network.flow_index import FlowIndex
from tests.property.test_localizer_search import CHANCE, COLUMNS, Row, block, rows

NAMES = ("agent-a", "link-0", "link-1", "link-2", "link-3", "agent-b")
CAUSES = Columns.of(tuple(Cause.of(Reason.COMPONENT, name) for name in NAMES))


def problem(index: FlowIndex, bad: list[Row], prior: float, lag: float) -> Problem:
    """Return the problem of bad observations among the 5-tuples of an index."""
    good = GoodFlows.of(index, (), ())
    table = Table.of(block(bad, 1.0, 0.5), COLUMNS)
    table.unlisted = good.columns(CAUSES, COLUMNS, Shown(lag, {}))
    return Problem(
        names=NAMES, log_prior=np.full(COLUMNS, prior), blamable=np.ones(COLUMNS, np.bool_),
        flows=table, hops=block(bad[::2], 1.0), chance=CHANCE, hop_chance=0.02,
    )  # fmt: skip


def index_of(flows: list[frozenset[int]]) -> FlowIndex:
    """Return an index of 5-tuples that cross some of the links."""
    index = FlowIndex()
    for number, crossed in enumerate(flows):
        index.set_flow(
            (f"a{number}", "b", 0), [NAMES[1 + c % 4] for c in sorted(crossed)], NAMES[0], NAMES[5]
        )
    return index


crossings = st.lists(st.frozensets(st.integers(0, 3), min_size=1, max_size=3), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    flows=crossings,
    steps=st.lists(
        st.tuples(
            rows, st.sampled_from([-5.0, -7.0]), st.sampled_from([0.5, 1.0]), crossings,
            st.integers(1, 3),
        ),
        max_size=5,
    ),
)  # fmt: skip
def test_a_sequence_of_problems_is_explained_as_each_by_itself(
    flows: list[frozenset[int]],
    steps: list[tuple[list[Row], float, float, list[frozenset[int]], int]],
) -> None:
    """Of any observations, while 5-tuples change their paths; most problems come again."""
    index, kept = index_of(flows), Explainer()
    for bad, prior, lag, moved, times in steps:
        for number, crossed in enumerate(moved):
            index.set_flow(
                (f"a{number}", "b", 0), [NAMES[1 + c % 4] for c in sorted(crossed)], NAMES[0], None
            )
        for _ in range(times):
            found = kept.explain(problem(index, bad, prior, lag))
            assert found == explain(problem(index, bad, prior, lag))


def test_only_what_differs_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a problem is compared, and the index of the good 5-tuples as well."""
    solved: list[Problem] = []

    def counted(one: Problem) -> Explanation:
        solved.append(one)
        return explain(one)

    monkeypatch.setattr(explainer, "explain", counted)
    index = index_of([frozenset({0}), frozenset({1}), frozenset({2, 3})])
    bad = [(True, frozenset({1, 2})), (True, frozenset({1}))]
    kept = Explainer()

    def again() -> Problem:
        return problem(index, bad, -7.0, 1.0)

    first = kept.explain(again())
    assert kept.explain(again()) is first
    assert len(solved) == 1
    for other in (
        replace(again(), log_prior=np.full(COLUMNS, -6.0)),
        replace(again(), hops=block(bad, 1.0)),
        replace(again(), hop_chance=0.1),
        replace(again(), chance=CHANCE[:1]),
        problem(index, bad, -7.0, 0.5),
        problem(index, bad[:1], -7.0, 1.0),
    ):
        before = len(solved)
        kept.explain(other)
        kept.explain(again())
        assert len(solved) == before + 2
    index.set_flow(("a0", "b", 0), [NAMES[4]], NAMES[0], None)
    kept.explain(again())
    kept.forget()
    kept.explain(again())
    assert len(solved) == before + 4
