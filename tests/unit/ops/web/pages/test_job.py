"""A job: its skeleton over hosts and rails, and who probes whom."""

from dataclasses import replace
from typing import Any

import pytest

from ops.view.cluster import ClusterView
from ops.web.pages.job import document
from ops.web.pages.page import UnknownItemError
from schemas import topics as t
from schemas.topics import Topic
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, fault, skeleton, small_cluster, task


def view_of(*more: tuple[Topic, Any]) -> ClusterView:
    """Return the small cluster with its skeleton, and what more was said."""
    view, log = ClusterView(), Log()
    for seen in log.all([*small_cluster(), (t.SKELETON_TOPIC, skeleton()), *more]):
        view.apply(seen)
    return view


def test_each_endpoint_has_its_place() -> None:
    """Stage, group and partners, by host and rail."""
    found = document(view_of(), {}, START_MS)
    assert found["grid"]["h1"]["0"] == {
        "endpoint": "h1/r0",
        "stage": 1,
        "group": 1,
        "partners": 1,
        "registered": True,
    }
    assert found["skeleton"]["degrees"] == {"dp": 1, "pp": 2, "tp": 1}
    assert found["skeleton"]["reason"] == "bursts of 24 windows agree"
    assert found["probing"] == {
        "pairs": 2,
        "origins": {"skeleton": 2},
        "phases": {"runtime": 2},
    }


def test_who_probes_an_endpoint_is_listed() -> None:
    """In both directions."""
    targets = document(view_of(), {"endpoint": "h0/r0"}, START_MS)["targets"]
    assert {name: one["out"] for name, one in targets.items()} == {
        "h0/r0 → h1/r0": True,
        "h1/r0 → h0/r0": False,
    }


def test_a_fault_of_its_host_stands_in_the_cell() -> None:
    """And in the list of the job's faults."""
    found = document(view_of((t.FAULT_EVENT, fault(component_id="h1"))), {}, START_MS)
    assert found["grid"]["h1"]["0"]["fault"] == "f-1"
    assert "fault" not in found["grid"]["h0"]["0"]
    assert list(found["faults"]) == ["f-1"]


def test_the_running_job_that_came_last_is_shown_first() -> None:
    """Others are found by their ids; an unknown one is said."""
    later = replace(task(), task_id="job-2", submitted_at=START_MS * 1_000)
    over = replace(later, task_id="job-3", submitted_at=later.submitted_at + 1, ended_at=1)
    view = view_of((t.TASK, later), (t.TASK, over))
    assert document(view, {}, START_MS)["task"]["id"] == "job-2"
    assert document(view, {"task": "job-1"}, START_MS)["task"]["id"] == "job-1"
    assert document(view, {"task": "job-2"}, START_MS)["skeleton"] == {"known": False}
    with pytest.raises(UnknownItemError, match="no task 'job-9'"):
        document(view, {"task": "job-9"}, START_MS)
    with pytest.raises(UnknownItemError, match="no task is known"):
        document(ClusterView(), {}, START_MS)
