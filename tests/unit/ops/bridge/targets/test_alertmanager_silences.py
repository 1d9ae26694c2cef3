"""The mirror of silences: nothing twice, nothing of others, and no page that is told is hidden."""

import json
from typing import Any

import pytest

from ops.bridge.paging.page import Page
from ops.bridge.paging.pager import Pager, PagerConfig
from ops.bridge.targets.alertmanager_silences import body, changes
from schemas.records import Silence
from tests.unit.ops.bridge.made import BEGIN, CLUSTER, silence, transition

QUIET = silence("s-1", 0, 3_600, component="link:f[1]?*")


def pages(*fault_ids: str, tasks: tuple[str, ...] = ("job1",)) -> list[Page]:
    """Return the pages of faults."""
    pager = Pager(PagerConfig(storm_faults=100))
    for name in fault_ids:
        pager.apply_fault(transition(name, 1, tasks=tasks), BEGIN)
    return pager.firing()


def listed(made: bytes, name: str, state: str = "active", **changed: Any) -> dict[str, Any]:
    """Return a silence as Alertmanager lists it, with its times in milliseconds."""
    found = json.loads(made)
    ends = found["endsAt"][:-4] + "Z"
    return {**found, "id": name, "endsAt": ends, "status": {"state": state}, **changed}


def change(there: list[Any], *wanted: Silence, told: list[Page] | None = None) -> tuple[Any, Any]:
    """Return what is made and ended."""
    return changes(wanted, told or [], there, CLUSTER, BEGIN)


def test_a_silence_is_confined_to_alerts_of_the_bridge_and_its_cluster() -> None:
    """Else one of `severity=critical` would hide the critical alerts of everybody."""
    found = body(QUIET, [])
    assert [(m["name"], m["value"], m["isRegex"]) for m in found["matchers"]] == [
        ("alertname", "SkeletonHunterFault", False),
        ("cluster", CLUSTER, False),
        ("component", r"(?s:link:f\[1\]..*)", True),
    ]
    assert found["comment"] == "maintenance [skeletonhunter lab s-1]"
    assert [m["name"] for m in body(silence("s-2", 0, 9), [])["matchers"]] == [
        "alertname",
        "cluster",
    ]


@pytest.mark.parametrize(
    ("pattern", "tasks", "fits"),
    [("b", ("a", "b"), True), ("b*", ("a", "bc"), True), ("b", ("bc",), False), ("*", (), True)],
)
def test_pages_that_are_told_are_left_out(
    pattern: str, tasks: tuple[str, ...], *, fits: bool
) -> None:
    """Alertmanager would swallow their end; a page that no condition fits is not named."""
    found = body(silence("s-1", 0, 9, task=pattern), pages("a", "b.c", tasks=tasks))
    out = [m["value"] for m in found["matchers"] if not m["isEqual"]]
    assert out == ([r"a|b\.c"] if fits else [])


def test_what_is_there_is_made_once_and_what_is_over_is_ended() -> None:
    """A restart changes nothing; one that others made, or of another cluster, stays."""
    (made,), _ = change([], QUIET)
    ours = listed(made, "1")
    assert change([ours], QUIET) == ([], [])
    assert change([listed(made, "2"), ours], QUIET) == ([], ["2"])
    assert change([listed(made, "1", "expired")], QUIET) == ([made], [])
    assert change([ours]) == ([], ["1"])
    others = [
        listed(made, "1", createdBy="eve"),
        listed(made, "2", comment="maintenance"),
        listed(made, "3", comment="x [skeletonhunter other s-1]"),
    ]
    assert change(others) == ([], [])
    assert change([], silence("s-9", -9, 0, task="a")) == ([], [])


def test_one_that_lets_more_pages_through_is_kept_and_one_that_hides_one_is_not() -> None:
    """A page that began under other labels makes a new one; its end changes nothing."""
    everything = silence("s-1", 0, 3_600)
    (first,), _ = change([], everything)
    (second,), ended = change([listed(first, "1")], everything, told=pages("a"))
    assert ended == ["1"]
    assert change([listed(second, "2")], everything) == ([], [])
    longer = silence("s-1", 0, 3_600 + 60, component=QUIET.matchers[0].pattern)
    assert change([listed(change([], QUIET)[0][0], "1")], longer)[1] == ["1"]
