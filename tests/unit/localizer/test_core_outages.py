"""Silent agents and what is down with them: hosts, containers, or only the way to the broker."""

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest

from schemas import topics
from schemas.enums import Certainty, ComponentKind, FaultLifecycle, HangClass
from schemas.ids import state_id
from schemas.records import ComponentState, FaultEvent, Hang, StuckFlow
from schemas.units import SECOND_NS
from tests.unit.localizer.fleet import Fleet
from tests.unit.localizer.made import anomaly, component, link, pinglist, task, trace

ALL = 8


def probing_fleet(*, hosts: dict[str, str] | None = None) -> Fleet:
    """Return a fleet in which each agent probes all others; `hosts` says where some run."""
    fleet = Fleet(ALL)
    for agent in fleet.agents:
        pairs = [(f"e-{agent}", f"e-{peer}") for peer in fleet.agents if peer != agent]
        fleet.put(topics.PINGLIST.name, agent, pinglist(agent, pairs))
    for agent in fleet.agents:
        host = (hosts or {}).get(agent, f"h-{agent}")
        fleet.part(component(host, ComponentKind.HOST))
        fleet.part(component(agent, ComponentKind.AGENT, parent=host))
        fleet.part(component(f"r-{agent}", ComponentKind.RNIC, parent=host))
        fleet.part(component(f"e-{agent}", ComponentKind.ENDPOINT, parent=f"r-{agent}"))
        fleet.part(component(f"l-{agent}", ComponentKind.SWITCH))
        fleet.part(link(f"r-{agent}", f"l-{agent}"))
    for a, b in permutations(fleet.agents, 2):
        record = trace(f"l-{a} l-{b} e-{b}", ends=(f"e-{a}", f"e-{b}"))
        fleet.put(topics.PATH_TRACE.name, record.path_id, record)
    return fleet


def fail(fleet: Fleet, agents: Iterable[str]) -> None:
    """Let the probes of others to some agents' endpoints be lost from now on."""
    down = list(agents)
    for prober in (a for a in fleet.agents if a not in down):
        for agent in down:
            ends = f"e-{prober}", f"e-{agent}"
            record = anomaly(at=fleet.now + SECOND_NS, ends=ends, agent=prober)
            fleet.put(topics.ANOMALY.name, ends[0], record, at=fleet.now + SECOND_NS)


def run_down(fleet: Fleet, agents: list[str], seconds: int) -> list[FaultEvent]:
    """Let agents be silent and unreachable; anomalies are repeated as workers do."""
    found: list[FaultEvent] = []
    for _ in range(0, seconds, 5):
        fail(fleet, agents)
        found += fleet.run(5, silent=agents)
    return found


def say(fleet: Fleet, component_id: str, attribute: str, text: str) -> None:
    """Write a state that changed just now."""
    at = fleet.now
    record = ComponentState(
        cluster="lab", state_id=state_id(component_id, attribute), component_id=component_id,
        attribute=attribute, text=text, changed_at=at // 1000, observed_at=at // 1000, source="t",
    )  # fmt: skip
    fleet.put(topics.COMPONENT_STATE.name, record.state_id, record, at=at)


def told(events: Iterable[FaultEvent]) -> list[tuple[Any, ...]]:
    """Return state, kind, component and severity of transitions."""
    return [(e.state.value, e.fault_kind, e.component_id, e.severity) for e in events]


def test_agents_that_answer_and_are_not_heard_are_one_warning_on_what_they_share() -> None:
    """Half of the hosts lose their management network: a sealed world had it, and it was missed."""
    fleet = probing_fleet()
    fleet.run(20)
    silent = fleet.agents[::2]
    found = fleet.run(25, silent=silent)
    assert told(found) == [("OPEN", "agents_silent", "a0", "warning")]
    assert any("endpoints of 4 of them answer" in line for line in found[0].evidence)
    assert fleet.run(60, silent=silent) == []
    assert [e.state.value for e in fleet.run(6)] == ["RESOLVED"]


def test_what_is_wrong_at_an_unheard_agent_is_not_attributed_to_it() -> None:
    """It answers: it is no reason for losses."""
    fleet = probing_fleet()
    fleet.run(20)
    fleet.run(25, silent=["a1"])
    liveness = fleet.core.sources.liveness
    assert list(liveness.unheard) == ["a1"]
    assert liveness.dead == {}
    assert not liveness.excused("a1", fleet.now, fleet.now)


def test_a_host_all_of_whose_agents_die_at_once_is_down() -> None:
    """Two agents of one host, none of whose endpoints answers: one critical fault."""
    fleet = probing_fleet(hosts={"a1": "h-x", "a2": "h-x"})
    fleet.run(20)
    found = run_down(fleet, ["a1", "a2"], 10)
    assert told(found) == [("OPEN", "host_down", "h-x", "critical")]
    # Both are named, so that a new process knows whose silence it is.
    assert "silent: a1, a2" in found[0].evidence
    back = run_down(fleet, ["a2"], 10)
    assert ("RESOLVED", "host_down", "h-x", "critical") in told(back)
    assert ("OPEN", "agent_dead", "a2", "warning") in told(back)


def test_a_host_that_goes_down_is_told_as_that_and_not_as_its_virtual_switch() -> None:
    """Two agents are no pause of one, but of their host: until it is known to be silent."""
    fleet = probing_fleet(hosts={"a1": "h-x", "a2": "h-x"})
    fleet.part(component("v-x", ComponentKind.VSWITCH, parent="h-x"))
    fleet.run(20)
    found = run_down(fleet, ["a1", "a2"], 20)
    assert told(found) == [("OPEN", "host_down", "h-x", "critical")]
    assert told(fleet.run(70))[-1] == ("RESOLVED", "host_down", "h-x", "critical")


def test_one_agent_that_dies_among_others_of_its_host_is_a_warning() -> None:
    """The others of the host are heard: it is not down."""
    fleet = probing_fleet(hosts={"a1": "h-x", "a2": "h-x"})
    fleet.run(20)
    assert told(run_down(fleet, ["a1"], 20)) == [("OPEN", "agent_dead", "a1", "warning")]


def test_ports_say_that_the_host_of_a_dead_agent_is_down() -> None:
    """The warning becomes critical when a reader of switches says that the ports are down."""
    fleet = probing_fleet()
    fleet.part(component("r1", ComponentKind.RNIC, parent="h-a1"))
    fleet.part(component("l1", ComponentKind.SWITCH))
    fleet.part(link("r1", "l1"))
    fleet.run(20)
    (first,) = run_down(fleet, ["a1"], 10)
    assert (first.fault_kind, first.severity) == ("agent_dead", "warning")
    say(fleet, "l-a1--r-a1", "port_state", "down")
    assert run_down(fleet, ["a1"], 5) == []
    say(fleet, "l1--r1", "port_state", "down")
    (second,) = run_down(fleet, ["a1"], 5)
    assert told([second]) == [("UPDATED", "host_down", "h-a1", "critical")]
    assert second.fault_id == first.fault_id
    assert "the ports of 2 of its 2 RNICs are down" in second.evidence
    # Ports come up before agents do.
    say(fleet, "l-a1--r-a1", "port_state", "up")
    say(fleet, "l1--r1", "port_state", "up")
    assert run_down(fleet, ["a1"], 10) == []
    assert told(fleet.run(6)) == [("RESOLVED", "host_down", "h-a1", "critical")]


def hang(fleet: Fleet, src: str, dst: str) -> None:
    """Write that a job hangs, for bytes from one agent's host to another's are stuck."""
    at = fleet.now // 1000
    record = Hang(
        cluster="lab", hang_id="h-1", task_id="job1", seq=1, state=FaultLifecycle.OPEN,
        event_at=at, onset_at=at, hang_class=HangClass.NETWORK, certainty=Certainty.SURE,
        ranks=(0, 1), waiting_ranks=(0, 1), endpoint_ids=(f"e-{src}", f"e-{dst}"),
        stuck_flows=(
            StuckFlow(
                src_rank=0, dst_rank=1, src_endpoint_id=f"e-{src}", dst_endpoint_id=f"e-{dst}",
                unacked_bytes=9_000, stalled_ns=5 * SECOND_NS,
            ),
        ),
        communicator="0", sequence=9, operation="all_reduce", waited_ns=5 * SECOND_NS,
        summary="job1 hangs", evidence=(), next_steps=(),
    )  # fmt: skip
    fleet.put(topics.COLLECTIVE_HANG.name, "h-1", record, at=fleet.now)


@pytest.mark.parametrize("hang_first", [False, True])
def test_bytes_of_a_job_say_that_the_host_of_a_dead_agent_is_down(*, hang_first: bool) -> None:
    """Its kernel acknowledges nothing: one critical fault, that stops the job."""
    fleet = probing_fleet()
    fleet.run(20)
    if hang_first:
        hang(fleet, "a3", "a1")
    run_down(fleet, ["a1"], 15)
    if not hang_first:
        assert [event.fault_kind for event in fleet.events] == ["agent_dead"]
        hang(fleet, "a3", "a1")
    run_down(fleet, ["a1"], 10)
    last = {event.fault_id: event for event in fleet.events}
    (fault,) = (e for e in last.values() if e.state is not FaultLifecycle.RESOLVED)
    assert (fault.fault_kind, fault.component_id, fault.severity) == (
        "host_down", "h-a1", "critical",
    )  # fmt: skip
    assert fault.ranks == ("job1|0", "job1|1")
    assert any("acknowledges nothing" in line for line in fault.evidence)


def test_bytes_that_are_stuck_on_their_way_from_a_dead_agent_say_nothing_of_its_host() -> None:
    """The other end acknowledges nothing: that one may be cut off, and the agent have died."""
    fleet = probing_fleet()
    fleet.run(20)
    hang(fleet, "a1", "a3")
    found = run_down(fleet, ["a1"], 15)
    assert "host_down" not in {event.fault_kind for event in found}


def test_a_container_that_exited_is_a_crash() -> None:
    """Its agent died with it: the state says why, and it pages."""
    fleet = probing_fleet()
    fleet.run(20)
    say(fleet, "c", "container", "running")
    (first,) = run_down(fleet, ["a1"], 10)
    say(fleet, "c", "container", "exited")
    (second,) = run_down(fleet, ["a1"], 5)
    assert told([second]) == [("UPDATED", "container_crash", "c", "critical")]
    assert second.fault_id == first.fault_id
    assert second.bad_paths == ALL - 1
    assert told(fleet.run(12)) == [("RESOLVED", "container_crash", "c", "critical")]


def test_nobody_misses_the_agents_of_a_host_in_maintenance() -> None:
    """Drained before: no notice; drained after: the notice is withdrawn."""
    fleet = probing_fleet()
    fleet.run(20)
    say(fleet, "h-a1", "maintenance", "drain")
    assert run_down(fleet, ["a1"], 15) == []
    found = run_down(fleet, ["a1", "a2"], 10)
    assert told(found) == [("OPEN", "agent_dead", "a2", "warning")]
    say(fleet, "h-a2", "maintenance", "drain")
    withdrawn = run_down(fleet, ["a1", "a2"], 10)
    assert told(withdrawn) == [("RESOLVED", "agent_dead", "a2", "warning")]


def test_the_notice_of_a_dead_agent_is_withdrawn_when_its_job_ends_and_is_not_repeated() -> None:
    """The number of failing 5-tuples changes meanwhile: that is no news."""
    fleet = probing_fleet()
    ends = [(f"e-{agent}", agent) for agent in fleet.agents]
    fleet.put(topics.TASK.name, "t", task("t", ends))
    fleet.run(20)
    run_down(fleet, ["a1"], 10)
    assert told(fleet.events) == [("OPEN", "agent_dead", "a1", "warning")]
    assert run_down(fleet, ["a1"], 40) == []
    over = task("t", ends, ended=fleet.now // 1000)
    fleet.put(topics.TASK.name, "t", over, at=fleet.now)
    assert [e.state for e in fleet.run(6, silent=["a1"])] == [FaultLifecycle.RESOLVED]
    assert fleet.run(30, silent=["a1"]) == []
