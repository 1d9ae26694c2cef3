"""What the page Topology sends."""

import json

import pytest

from ops.bench.operator.watched import BEGIN_US, WatchedCluster
from ops.view.cluster import ClusterView
from ops.web.pages.page import UnknownItemError
from ops.web.pages.topology import SHOWN_PATHS, document
from schemas import topics as t
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, fault, resolved, small_cluster

NOW_MS = BEGIN_US // 1_000 + 20_000
LEAF = "leaf:s0-r3"


def test_without_a_fault_it_says_what_there_is() -> None:
    """Counts of the topology."""
    view, log = ClusterView(), Log()
    for seen in log.all(small_cluster()):
        view.apply(seen)
    assert document(view, {}, START_MS) == {"network": {"link": 1, "switch": 2}, "faults": {}}


def test_a_fault_with_its_paths() -> None:
    """Suspects, picture, and the first of the paths by their switches; JSON without null."""
    cluster, view = WatchedCluster(2), ClusterView()
    for seen in [*cluster.setup(), *cluster.symptoms(LEAF, BEGIN_US)]:
        view.apply(seen)
    view.apply(cluster.fault(LEAF, "SWITCH", BEGIN_US + 10**6))
    shown = document(view, {}, NOW_MS)
    assert "null" not in json.dumps(shown, allow_nan=False)
    assert shown["fault"]["component"] == LEAF
    assert shown["suspects"]["0"]["accused"]
    paths = list(shown["paths"].values())
    assert sum(p["bad"] for p in paths) == SHOWN_PATHS < shown["bad"]
    assert all(LEAF in p["via"] and p["traced"] for p in paths)
    assert all(len(p["via"]) == 3 and p["via"][1].startswith("spine:") for p in paths)
    assert document(view, {"fault": shown["fault"]["id"]}, NOW_MS + 1_000) == shown


def test_what_is_over_is_shown_when_nothing_is_open() -> None:
    """And by its id; another id is not known."""
    view, log = ClusterView(), Log()
    for event in (fault(1), resolved(2, START_MS + 5_000)):
        view.apply(log.seen(t.FAULT_EVENT, event))
    assert not document(view, {}, START_MS + 9_000)["fault"]["open"]
    with pytest.raises(UnknownItemError, match="no fault 'x'"):
        document(view, {"fault": "x"}, START_MS)
