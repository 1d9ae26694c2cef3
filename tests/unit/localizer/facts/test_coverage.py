"""Coverage of tasks by agent."""

from localizer.facts.coverage import Coverage, coverage_by_task, total
from tests.unit.localizer.made import pinglist


def test_what_is_listed_and_registered_is_expected() -> None:
    """An agent that says nothing is left out; one that probes half covers half."""
    lists = [
        pinglist("a", [("e0", "e1"), ("e0", "gone")], flows=4),
        pinglist("b", [("e1", "e0")], flows=4),
        pinglist("c", [("e2", "e0")], flows=4),
    ]
    found = coverage_by_task(lists, {"a": 4, "b": 2}, {"e0", "e1", "e2"}.__contains__)
    assert found == {"t": {"a": Coverage(4, 4.0), "b": Coverage(4, 2.0)}}
    assert total(found["t"].values()).share == 0.75
    assert total([]).share == 1.0
