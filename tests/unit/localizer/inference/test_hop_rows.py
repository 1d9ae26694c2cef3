"""Silences of one switch are one observation, not as many as there are probes."""

from math import isclose, prod

import numpy as np

from localizer.inference.causes import Cause, Columns, Reason
from localizer.inference.hop_rows import SILENCED_CHANCE, Row, crossing, silenced_chances
from localizer.network.flow_index import FlowIndex


def test_all_silences_before_the_same_cable_are_as_likely_as_one() -> None:
    """Thirteen probes in two rows, and one probe before another cable."""
    rows: list[Row] = [(True, (0,), (), (5, 6)), (True, (1,), (), (5, 6)), (True, (2,), (), (7,))]
    weight = np.array([12.0, 1.0, 1.0])
    chances = silenced_chances(rows, weight)
    together = prod(chance**count for chance, count in zip(chances[:2], weight[:2], strict=True))
    assert isclose(together, SILENCED_CHANCE)
    assert isclose(chances[2], SILENCED_CHANCE)


def test_of_many_traces_those_of_5_tuples_that_cross_a_candidate_count() -> None:
    """A component, or the agent at either end; of what the index does not know nothing is known."""
    index = FlowIndex()
    for number, (crossed, prober, responder) in enumerate(
        [("l0 s0", "a", "b"), ("l1 s1", "a", "c"), ("l1 s1", "d", "b"), ("l1 s1", "d", "c")]
    ):
        index.set_flow(("e0", "e1", number), crossed.split(), prober, responder)
    causes = [Cause.of(Reason.COMPONENT, "s0"), Cause.of(Reason.PROBER, "d")]
    causes.append(Cause.of(Reason.RESPONDER, "b"))
    keys = [("e0", "e1", number) for number in range(5)]
    assert [*map(crossing(Columns.of(tuple(causes[:1])), index), keys)] == [
        True,
        *[False] * 3,
        True,
    ]
    assert [*map(crossing(Columns.of(tuple(causes)), index), keys)] == [True, False, *[True] * 3]
    every = Columns.of((*causes, Cause.of(Reason.GLOBAL)))
    assert all(map(crossing(every, index), keys))
