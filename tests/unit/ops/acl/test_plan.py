"""Each principal gets what its process does, and nothing else."""

import pytest

from ops.acl.plan import ROLES, Names, Rule, grants, principals_of_roles
from schemas.topics import TOPICS

ALL = {grant.role: set(grant.rules) for grant in grants(principals_of_roles(), Names())}
PROCESSES = ("agent", "worker", "skeleton", "localizer", "collector", "hangs")


def topics(role: str, operation: str) -> set[str]:
    """Return the topics on which a role has an operation."""
    return {r.name for r in ALL[role] if r.kind == "topic" and r.operation == operation}


def test_the_registry_decides_who_writes() -> None:
    """A topic of the contract is written by its producers alone; dead letters by its readers."""
    writers = {
        topic.name: {r for r in ROLES if topic.name in topics(r, "Write")} for topic in TOPICS
    }
    assert writers == {
        "probe.round.v1": {"agent"},
        "rnic.counters.v1": {"agent"},
        "path.trace.v1": {"agent"},
        "task.v1": {"scheduler"},
        "endpoint.v1": {"agent"},
        "agent.heartbeat.v1": {"agent"},
        "pinglist.v1": {"skeleton"},
        "target.v1": {"skeleton"},
        "skeleton.v1": {"skeleton"},
        "topology.v1": {"inventory"},
        "overlay.flows.v1": {"agent", "inventory"},
        "component.state.v1": {"agent", "states"},
        "probe.window.v1": {"worker"},
        "anomaly.v1": {"worker"},
        "fault.event.v1": {"localizer"},
        "fault.state.v1": {"localizer"},
        "silence.v1": {"responder"},
        "incident.note.v1": {"responder"},
        "collective.comm.v1": {"collector"},
        "collective.op.v1": {"collector"},
        "collective.flow.v1": {"collector"},
        "collective.hang.v1": {"hangs"},
    }
    for role in PROCESSES:
        read = {n + ".dlq" for n in topics(role, "Read")}
        assert {n for n in topics(role, "Write") if n.endswith(".dlq")} == read


def test_a_process_reads_its_inputs_and_what_it_goes_on_from() -> None:
    """The worker looks back into its own outputs, the localizer into its verdicts."""
    assert topics("worker", "Read") == {"probe.round.v1", "probe.window.v1", "anomaly.v1"}
    assert topics("agent", "Read") == {"endpoint.v1", "pinglist.v1", "target.v1"}
    assert "fault.event.v1" in topics("localizer", "Read")
    assert topics("skeleton", "Read") >= {
        "pinglist.v1",
        "target.v1",
        "skeleton.v1",
        "rnic.counters.v1",
    }


def test_groups_and_transactional_ids_carry_prefix_and_cluster() -> None:
    """They are named literally: another cluster's on the same brokers stay out of reach."""
    names = Names(prefix="p.", cluster="c7", worker_group="mine")
    found = {g.role: {(r.kind, r.name, r.operation) for r in g.rules if r.kind != "topic"}
             for g in grants(principals_of_roles(), names)}  # fmt: skip
    reader = ("group", "p.skeletonhunter-reader", "Describe")
    assert found["worker"] == {("group", "p.mine", "Read"), reader}
    for role in ("localizer", "skeleton", "hangs"):
        assert found[role] == {
            ("group", f"p.{role}-c7", "Read"),
            ("transactional-id", f"p.{role}-c7", "Write"),
            ("transactional-id", f"p.{role}-c7", "Describe"),
            reader,
        }
    assert found["agent"] == {reader}
    bridges = {("group", "p.bridge-c7", "Read"), ("group", "p.bridge-c7-", "Read")}
    assert found["bridge"] == bridges | {reader}
    bridge = next(g for g in grants({"bridge": "User:b"}, names))
    assert [r.name for r in bridge.rules if r.prefixed] == ["p.bridge-c7-"]
    assert found["states"] == set()


def test_who_looks_on_writes_nothing() -> None:
    """Reader, page and bridge cannot change what others decide by."""
    for role in ("reader", "web"):
        assert not topics(role, "Write")
    assert all(name.endswith(".dlq") for name in topics("bridge", "Write"))
    paged = {"fault.event.v1", "silence.v1", "incident.note.v1"}
    assert topics("bridge", "Read") == paged


def test_a_page_that_acts_needs_two_writes_more_than_one_that_shows() -> None:
    """Its principal has the roles web and responder."""
    more = ALL["responder"] - ALL["web"]
    assert {(r.name, r.operation) for r in more} == {
        ("silence.v1", "Write"),
        ("incident.note.v1", "Write"),
    }


def test_an_unknown_role_is_named_with_those_there_are() -> None:
    """A typing error grants nothing."""
    with pytest.raises(KeyError, match=r"no role 'worke'; there are agent, worker"):
        grants({"worke": "User:x"}, Names())


def test_no_rule_is_granted_twice() -> None:
    """A plan can be compared with what a cluster holds."""
    for grant in grants(principals_of_roles(), Names()):
        assert len(set(grant.rules)) == len(grant.rules)
        assert all(isinstance(rule, Rule) for rule in grant.rules)
