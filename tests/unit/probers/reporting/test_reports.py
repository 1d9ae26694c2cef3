"""Whether the agent probes, as its heartbeat says it."""

from dataclasses import replace

from probers.clock import Instant
from probers.lists.follower import PingListFollower
from probers.lists.registration import Registration
from probers.reporting.reports import probing_state
from schemas.enums import ProbingState
from tests.unit.probers.makers import endpoint, ping_list, target

NOW = Instant(10**9, 1_700_000_000 * 10**9)


def test_an_agent_says_whether_it_probes_and_why_not() -> None:
    """From the start to a twin that took its place."""
    registration = Registration(agent_id="agent-a", cluster="c1", started=NOW)
    follower = PingListFollower(
        cluster="c1", agent_id="agent-a", endpoints=frozenset({"w0/r0"}), max_flows=4
    )
    said = [probing_state(registration, follower)]
    registration.read_to_end()
    follower.read_to_end()
    said.append(probing_state(registration, follower))
    for version, targets in enumerate(
        [(), (target("w7/r0", "w1/r0"),), (target("w0/r0", "w1/r0"),)], start=1
    ):
        follower.offer(ping_list(*targets, version=version))
        said.append(probing_state(registration, follower))
    follower.registered(endpoint("w1/r0"))
    said.append(probing_state(registration, follower))
    twin = replace(endpoint("w0/r0", agent_id="agent-a"), incarnation=NOW.realtime_ns + 5)
    registration.seen(twin, NOW)
    said.append(probing_state(registration, follower))
    assert said == [
        (ProbingState.STARTING, "ping lists and registrations are not read yet"),
        (ProbingState.NO_LIST, "no ping list for this agent"),
        (ProbingState.EMPTY_LIST, "ping list version 1: it has no targets"),
        (ProbingState.EMPTY_LIST, "ping list version 2: none of its 1 targets can be probed"),
        (ProbingState.WAITING, "none of 1 targets has registered"),
        (ProbingState.PROBING, None),
        (
            ProbingState.DISPLACED,
            f"yielded to the agent with incarnation {NOW.realtime_ns + 5}",
        ),
    ]
