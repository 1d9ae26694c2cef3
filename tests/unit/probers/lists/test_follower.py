"""Which lists an agent takes, and which of their targets it probes."""

from dataclasses import replace
from typing import Any

import pytest

from probers.lists.directory import Directory
from probers.lists.follower import MAX_JUMP, PingListFollower, Refusal
from schemas.enums import Transport as TransportKind
from schemas.records import Endpoint, PingTarget
from schemas.units import SECOND_NS
from tests.unit.probers.makers import endpoint, ping_list, target


def follower(directory: Directory | None = None, *, settled: bool = True) -> PingListFollower:
    """Return a follower of agent-a with the endpoints w0/r0 and w0/r1."""
    made = PingListFollower(
        cluster="c1",
        agent_id="agent-a",
        endpoints=frozenset({"w0/r0", "w0/r1"}),
        max_flows=4,
        directory=directory,
    )
    if settled:
        made.read_to_end()
    return made


def test_a_target_is_active_only_while_its_endpoint_is_registered() -> None:
    """Initialization phase: wait, activate on registration, stop on the tombstone."""
    agent = follower()
    assert agent.offer(ping_list(target("w0/r0", "w1/r0", 2), target("w0/r1", "w1/r1"))) is None
    assert agent.flows() == ()
    assert (agent.targets_active, agent.targets_waiting) == (0, 2)
    agent.registered(endpoint("w1/r0"))
    assert [str(f) for f in agent.flows()] == ["w0/r0>w1/r0#0", "w0/r0>w1/r0#1"]
    assert (agent.targets_active, agent.targets_waiting) == (1, 1)
    agent.left("w1/r0")
    assert agent.flows() == ()


def test_a_registration_that_came_first_counts() -> None:
    """The order of list and registration does not matter."""
    agent = follower()
    agent.registered(endpoint("w1/r0"))
    agent.offer(ping_list(target("w0/r0", "w1/r0")))
    assert len(agent.flows()) == 1


def test_an_endpoint_that_moves_is_probed_at_its_new_place() -> None:
    """A new registration replaces address and port; the same one changes nothing."""
    agent = follower()
    agent.offer(ping_list(target("w0/r0", "w1/r0")))
    agent.registered(endpoint("w1/r0", port=1))
    before = agent.flows()
    agent.registered(endpoint("w1/r0", port=1))
    assert agent.flows() is before
    agent.registered(endpoint("w1/r0", port=2))
    assert [f.port for f in agent.flows()] == [2]


def test_nothing_is_active_before_the_topics_were_read_to_their_end() -> None:
    """Lists and registrations of the past do not make an agent probe the departed."""
    agent = follower(settled=False)
    agent.offer(ping_list(target("w0/r0", "w1/r0")))
    agent.registered(endpoint("w1/r0"))
    assert agent.flows() == ()
    agent.read_to_end()
    assert len(agent.flows()) == 1


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"cluster": "c2"}, Refusal.OTHER_CLUSTER),
        ({"agent_id": "agent-b"}, Refusal.OTHER_AGENT),
        ({"version": 4}, Refusal.OLDER_VERSION),
    ],
)
def test_lists_that_are_not_ours_or_too_old_are_refused_and_counted(
    change: dict[str, str | int], refusal: Refusal
) -> None:
    """The list in force stays in force."""
    agent = follower()
    good = ping_list(target("w0/r0", "w1/r0"), version=5)
    agent.offer(good)
    assert agent.offer(replace(good, targets=(), **change)) is refusal  # type: ignore[arg-type]
    assert agent.version == 5
    assert agent.targets_waiting == 1
    assert agent.refused[refusal] == 1


def test_a_list_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """More targets than the bound: refused whole."""
    monkeypatch.setattr("probers.lists.follower.MAX_TARGETS", 2)
    agent = follower()
    assert (
        agent.offer(ping_list(*(target("w0/r0", f"w{n}/r0") for n in range(1, 4))))
        is Refusal.TOO_MANY_TARGETS
    )


@pytest.mark.parametrize(
    "bad",
    [
        target("w0/r0", "w1/r0", 0),
        target("w0/r0", "w0/r0"),
        target("w0/r0", "a b"),
        target("w0/r0", ""),
        target("w0/r0", "x" * 300),
    ],
)
def test_one_bad_target_does_not_blind_the_agent(bad: PingTarget) -> None:
    """It is left out and counted; the others are probed."""
    agent = follower()
    assert agent.offer(ping_list(bad, target("w0/r0", "w9/r0"))) is None
    assert agent.targets_waiting == 1
    assert agent.refused[Refusal.BAD_TARGET] == 1


def test_targets_of_foreign_endpoints_are_left_out() -> None:
    """An agent probes from its own RNICs only."""
    agent = follower()
    agent.offer(ping_list(target("w7/r0", "w1/r0"), target("w0/r0", "w1/r0")))
    assert agent.targets_waiting == 1
    assert agent.refused[Refusal.NOT_OUR_ENDPOINT] == 1


def test_a_pair_of_two_jobs_is_probed_once_with_the_larger_number_of_flows() -> None:
    """And never with more flows than the configuration allows."""
    agent = follower()
    agent.registered(endpoint("w1/r0"))
    agent.offer(ping_list(target("w0/r0", "w1/r0", 1), target("w0/r0", "w1/r0", 3)))
    assert [f.flow for f in agent.flows()] == [0, 1, 2]
    agent.offer(ping_list(target("w0/r0", "w1/r0", 1_000), version=2))
    assert [f.flow for f in agent.flows()] == [0, 1, 2, 3]


def test_a_withdrawn_list_leaves_nothing_to_probe_and_no_version() -> None:
    """After a tombstone a controller may start its versions anew."""
    agent = follower()
    agent.registered(endpoint("w1/r0"))
    agent.offer(ping_list(target("w0/r0", "w1/r0"), version=9))
    agent.withdraw()
    assert agent.flows() == ()
    assert agent.version is None
    assert agent.offer(ping_list(target("w0/r0", "w1/r0"), version=1)) is None


def rdma_endpoint(**changes: Any) -> Endpoint:
    """Return the registration of a queue pair."""
    good = {
        "transport": TransportKind.RDMA_UD, "address": "::ffff:10.0.0.1", "port": 17, "qkey": 5,
    }  # fmt: skip
    return endpoint("w1/r0", **{**good, **changes})


def test_a_queue_pair_is_probed_with_its_qkey_and_a_new_one_replaces_it() -> None:
    """What a restarted agent registers is what probes go to from then on."""
    agent = follower()
    agent.offer(ping_list(target("w0/r0", "w1/r0")))
    agent.read_to_end()
    assert agent.registered(rdma_endpoint()) is None
    assert {(f.address, f.port, f.qkey) for f in agent.flows()} == {("::ffff:10.0.0.1", 17, 5)}
    assert agent.registered(rdma_endpoint(port=18, qkey=6)) is None
    assert {(f.port, f.qkey) for f in agent.flows()} == {(18, 6)}


def test_an_ipv6_target_is_known_by_one_spelling() -> None:
    """However it was registered, its address is as hops and replies show it."""
    agent = follower()
    agent.offer(ping_list(target("w0/r0", "w1/r0")))
    agent.read_to_end()
    assert agent.registered(endpoint("w1/r0", address="FD00:0:0::00A1")) is None
    assert {f.address for f in agent.flows()} == {"fd00::a1"}


@pytest.mark.parametrize(
    "bad",
    [
        endpoint("w1/r0", port=0),
        endpoint("w1/r0", port=70_000),
        endpoint("w1/r0", address="224.0.0.1"),
        endpoint("w1/r0", address=".".join("0000")),
        endpoint("w1/r0", address="255.255.255.255"),
        endpoint("w1/r0", address="fe80::1"),
        endpoint("w1/r0", address="fd00::1%eth0"),
        endpoint("w1/r0", address="ff02::1"),
        endpoint("w1/r0", address="::ffff:10.0.0.1"),
        endpoint("w1/r0", address="0" * 99 + "::1"),
        endpoint("w1/r0", address="host.example"),
        endpoint("w1/r0", transport=TransportKind.RDMA_UD),
        rdma_endpoint(qkey=None),
        rdma_endpoint(qkey=2**32),
        rdma_endpoint(port=1),
        rdma_endpoint(port=2**24),
        rdma_endpoint(address="10.0.0.1"),
        rdma_endpoint(address="ff02::1"),
        rdma_endpoint(address="::"),
        endpoint("w1/r0", transport=TransportKind.UNKNOWN),
        endpoint("w1/r0", cluster="c2"),
    ],
)
def test_a_registration_that_cannot_be_probed_is_refused(bad: Endpoint) -> None:
    """Nobody makes agents send to a broadcast address, or where they cannot."""
    agent = follower()
    agent.offer(ping_list(target("w0/r0", "w1/r0")))
    assert agent.registered(bad) in (Refusal.BAD_REGISTRATION, Refusal.OTHER_CLUSTER)
    assert agent.flows() == ()


def test_of_the_rest_of_a_large_cluster_only_so_many_are_kept() -> None:
    """Memory is bounded; when something needed may be missing, it says so."""
    directory = Directory(spare=10)
    agent = follower(directory)
    agent.offer(ping_list(target("w0/r0", "w1/r0")))
    agent.registered(endpoint("w1/r0"))
    for number in range(100, 200):
        agent.registered(endpoint(f"w{number}/r0"))
    assert len(directory) == 11
    assert len(agent.flows()) == 1
    agent.offer(ping_list(target("w0/r0", "w199/r0"), version=2))
    assert len(agent.flows()) == 1
    assert not agent.lacking
    agent.offer(ping_list(target("w0/r0", "w100/r0"), version=3))
    assert agent.flows() == ()
    assert agent.lacking


def test_a_second_reading_counts_only_once_it_has_ended() -> None:
    """Old addresses and tombstones of the past do not disturb what is being probed."""
    agent = follower(Directory(spare=0))
    agent.offer(ping_list(target("w0/r0", "w1/r0"), target("w0/r0", "w2/r0")))
    agent.registered(endpoint("w1/r0", port=2))
    agent.rereading()
    agent.registered(endpoint("w1/r0", port=1), replayed=True)
    agent.left("w1/r0", replayed=True)
    agent.registered(endpoint("w2/r0", port=7), replayed=True)
    assert [(f.dst, f.port) for f in agent.flows()] == [("w1/r0", 2)]
    agent.read_to_end()
    assert [(f.dst, f.port) for f in agent.flows()] == [("w1/r0", 2), ("w2/r0", 7)]


def test_one_that_leaves_during_the_second_reading_stays_away() -> None:
    """Its old registration, read again, does not bring it back."""
    agent = follower(Directory(spare=0))
    agent.offer(ping_list(target("w0/r0", "w2/r0")))
    agent.rereading()
    agent.registered(endpoint("w2/r0"), replayed=True)
    agent.left("w2/r0")
    agent.read_to_end()
    assert agent.flows() == ()


def test_a_version_beyond_what_the_job_can_have_published_is_refused() -> None:
    """The list in force stays; the longer an agent read nothing, the more may have come."""
    agent = follower()
    assert agent.offer(ping_list(version=2**62)) is Refusal.IMPLAUSIBLE_VERSION
    assert agent.offer(ping_list(version=-1)) is Refusal.IMPLAUSIBLE_VERSION
    assert agent.offer(ping_list(target("w0/r0", "w1/r0"), version=70_000)) is None
    jump = ping_list(version=70_000 + MAX_JUMP + 1)
    assert agent.offer(jump) is Refusal.IMPLAUSIBLE_VERSION
    assert (agent.version, agent.targets_waiting) == (70_000, 1)
    assert agent.lists_refused == 3
    assert agent.offer(jump, SECOND_NS) is None
    assert agent.targets_listed == 0
    agent.withdraw()
    assert agent.offer(ping_list(version=1)) is None


def test_a_list_that_the_job_published_later_with_an_older_version_is_told() -> None:
    """Somebody moved the version on: what the job publishes now would be ignored in silence."""
    agent = follower()
    agent.offer(replace(ping_list(version=500), updated_at=100))
    late = replace(ping_list(target("w0/r0", "w1/r0"), version=8), updated_at=99)
    assert agent.offer(late) is Refusal.OLDER_VERSION
    assert agent.offer(replace(late, updated_at=101)) is Refusal.VERSION_WENT_BACK
    # A topic that was made anew holds lists that were counted anew.
    agent.topic_restarted()
    assert agent.offer(replace(late, updated_at=101)) is None
    assert agent.offer(replace(late, version=7, updated_at=102)) is Refusal.VERSION_WENT_BACK
