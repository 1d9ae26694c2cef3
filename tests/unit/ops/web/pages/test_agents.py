"""Agents: those with something wrong first, clusters side by side."""

from dataclasses import replace

from ops.view.cluster import ClusterView
from ops.web.pages.agents import document
from schemas import topics as t
from schemas.enums import AgentState
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, endpoint, heartbeat, small_cluster


def view_of_agents() -> ClusterView:
    """Return the small cluster, and agents with something wrong in another cluster."""
    view, log = ClusterView(), Log()
    for seen in log.all(small_cluster()):
        view.apply(seen)
    odd = [
        heartbeat("agent-h2", state=AgentState.DEGRADED, state_reason="no device", cluster="d"),
        heartbeat("agent-h3", clock_offset_ns=3 * 10**9, cluster="d"),
        heartbeat("agent-h4", state=AgentState.LEAVING, cluster="d"),
    ]
    for beat in odd:
        view.apply(log.seen(t.HEARTBEAT, beat))
    silent = heartbeat("agent-h5", cluster="d")
    view.apply(log.seen(t.HEARTBEAT, silent, at_ms=START_MS - 60_000))
    never = replace(endpoint("h6"), cluster="d")
    view.apply(log.seen(t.ENDPOINT, never))
    return view


def test_each_agent_says_what_is_wrong_with_it() -> None:
    """In words, with a status."""
    rows = document(view_of_agents(), {}, START_MS + 1_000)["rows"]
    told = {name.removeprefix("agent-"): (row["status"], row["why"]) for name, row in rows.items()}
    assert told == {
        "h0": ("good", ""),
        "h1": ("good", ""),
        "h2": ("odd", "degraded: no device"),
        "h3": ("odd", "its clock is 3.0 s ahead of the broker's"),
        "h4": ("unknown", "has left"),
        "h5": ("bad", "silent for 61 s"),
        "h6": ("bad", "registered, but no heartbeat is known"),
    }
    assert list(rows)[:2] == ["agent-h5", "agent-h6"]
    assert (rows["agent-h0"]["probed"], rows["agent-h0"]["expected"]) == (4, 4)


def test_clusters_stand_side_by_side() -> None:
    """Sums of each, whatever is filtered."""
    found = document(view_of_agents(), {"cluster": "c"}, START_MS + 1_000)
    assert {name: one["agents"] for name, one in found["clusters"].items()} == {"c": 2, "d": 5}
    assert (found["total"], found["found"]) == (7, 2)


def test_agents_are_found_by_name_host_and_task() -> None:
    """And by having something wrong."""
    view = view_of_agents()
    assert list(document(view, {"find": "H3"}, START_MS)["rows"]) == ["agent-h3"]
    assert document(view, {"find": "job-1"}, START_MS)["found"] == 2
    assert document(view, {"wrong": "1"}, START_MS)["found"] == 5
