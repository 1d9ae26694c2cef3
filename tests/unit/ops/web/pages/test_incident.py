"""One fault on one time line."""

from dataclasses import replace
from typing import Any

import pytest

from ops.log.decoding import SeenRecord
from ops.view.cluster import ClusterView
from ops.web.pages import incident
from ops.web.pages.incident import document
from ops.web.pages.page import UnknownItemError
from schemas import topics as t
from schemas.enums import AnomalyState
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import LINK, Log, anomaly, fault, story

NOW_MS = START_MS + 40_000


def view_of(records: list[SeenRecord]) -> ClusterView:
    """Return the view after records."""
    view = ClusterView()
    for seen in records:
        view.apply(seen)
    return view


def line(view: ClusterView, **params: str) -> list[dict[str, Any]]:
    """Return the time line of the story's fault."""
    found = document(view, {"fault": "f-1", **params}, NOW_MS)["line"]
    return [one for _, one in sorted(found.items())]


def test_the_line_runs_from_the_first_symptom_to_the_end() -> None:
    """Symptom, trace, state, verdicts, end of the symptom, resolution: in that order."""
    found = line(view_of(story()))
    assert [(one["what"], (one["at_ms"] - START_MS) // 1_000) for one in found] == [
        ("symptom", 5),
        ("trace", 5),
        ("state", 5),
        ("verdict", 6),
        ("verdict", 7),
        ("verdict", 9),
        ("note", 12),
        ("symptom", 20),
        ("verdict", 25),
    ]
    assert LINK in found[1]["names"][0]
    assert found[2]["disorder"] == "port_down"
    assert (found[6]["text"], found[6]["action"]) == ("ada: on my way", "acknowledge")


def test_each_verdict_says_what_was_known_then() -> None:
    """Not what became known later."""
    first, second, *_ = (one for one in line(view_of(story())) if one["what"] == "verdict")
    assert not first["verdict"]["decided"]
    assert [c["component"] for c in first["verdict"]["candidates"]] == [LINK, "leaf:0"]
    assert "kind: packet_loss → connectivity" in second["changed"]
    assert "now decided" in second["changed"]


def test_anomalies_of_other_paths_are_elsewhere() -> None:
    """They may matter, and are no symptom of it: nothing of them crosses what is blamed."""
    log = Log()
    records = [*story()]
    far = anomaly("h7", "h8", at_ms=START_MS + 5_000)
    for _ in range(sum(s.topic is t.ANOMALY for s in records)):
        log.seen(t.ANOMALY, far)
    records.append(log.seen(t.ANOMALY, far, at_ms=START_MS + 30_000))
    found = document(view_of(records), {"fault": "f-1"}, NOW_MS)
    assert found["others"] == 1
    assert list(found["flows"]) == ["h0/r0 → h1/r0 #0"]
    assert "other" in {one["what"] for one in found["line"].values()}


def test_a_time_range_shows_a_part() -> None:
    """As in an address that was shared."""
    bounds = {"from": str(START_MS + 6_000), "to": str(START_MS + 7_000)}
    assert len(line(view_of(story()), **bounds)) == 2


def test_an_open_fault_reaches_to_now() -> None:
    """Its document changes every five seconds at most while nothing happens."""
    log = Log()
    view = view_of([log.seen(t.FAULT_EVENT, fault())])
    ends = {
        document(view, {"fault": "f-1"}, START_MS + ms)["span"]["to_ms"] - START_MS
        for ms in (20_000, 21_000, 24_999)
    }
    assert ends == {25_000}


def test_transitions_that_are_not_known_are_counted() -> None:
    """Where only the state was read, the rest is older than what was."""
    log = Log()
    view = view_of([log.seen(t.FAULT_EVENT, fault(4))])
    assert document(view, {"fault": "f-1"}, NOW_MS)["missing"] == 3


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "no fault is named"),
        ({"fault": "f-9"}, "no fault 'f-9' is known"),
        ({"fault": "f-1", "from": "noon"}, "no times"),
        ({"fault": "f-1", "from": "5", "to": "4"}, "is after"),
    ],
)
def test_what_is_not_there_is_said(params: dict[str, str], words: str) -> None:
    """With what to do."""
    with pytest.raises(UnknownItemError, match=words) as told:
        document(view_of(story()), params, NOW_MS)
    assert told.value.todo


def test_a_storm_stays_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anomalies of one second are one line; lines and 5-tuples are bounded, the rest counted."""
    monkeypatch.setattr(incident, "MAX_LINES", 5)
    monkeypatch.setattr(incident, "MAX_FLOWS", 10)
    log = Log()
    records = [log.seen(t.FAULT_EVENT, fault(component_id="h0/r0"))]
    for flow in range(50):
        onset = anomaly(flow=flow, at_ms=START_MS + flow // 10 * 1_000)
        records.append(log.seen(t.ANOMALY, onset))
        end = replace(onset, state=AnomalyState.CLEARED)
        records.append(log.seen(t.ANOMALY, end))
    found = document(view_of(records), {"fault": "f-1"}, NOW_MS)
    assert (len(found["line"]), found["lines_left"]) == (5, 6)
    # What says most of it stays.
    assert "verdict" in {one["what"] for one in found["line"].values()}
    assert (len(found["flows"]), found["flows_left"]) == (10, 40)
    assert max(found["symptoms"]["bad"]) <= 50
