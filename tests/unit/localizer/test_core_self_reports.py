"""What agents say of themselves as verdicts, and when these end."""

from typing import Any

import pytest

from schemas import topics
from schemas.enums import ComponentKind, ProbingState
from schemas.ids import state_id
from schemas.records import ComponentState, FaultEvent
from schemas.units import SECOND_NS
from tests.unit.localizer.fleet import Fleet
from tests.unit.localizer.made import component, task
from tests.unit.localizer.test_core_silence import opened, resolved


class Talking(Fleet):
    """A fleet on one job, in which some agents say something in each heartbeat."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        job = task("t", [(f"e-{agent}", agent) for agent in self.agents])
        self.put(topics.TASK.name, "t", job)

    def say(self, seconds: int, agents: list[str], **more: Any) -> list[FaultEvent]:
        """Let time pass while some agents say this."""
        before = len(self.events)
        for _ in range(seconds):
            for agent in agents:
                self.beat(agent, at=self.now + SECOND_NS, **more)
            self.run(1, silent=agents)
        return self.events[before:]


@pytest.mark.parametrize(
    ("kind", "more", "text"),
    [
        ("probing_stopped", {"probing": ProbingState.EMPTY_LIST}, "EMPTY_LIST"),
        ("probing_stopped", {"probing": ProbingState.NO_LIST}, "NO_LIST"),
        ("list_refused", {"list_refusal": "IMPLAUSIBLE_VERSION"}, "IMPLAUSIBLE_VERSION"),
        ("agent_clock", {"clock_offset_ns": 40 * SECOND_NS}, "40.000 s ahead of"),
        ("agent_clock", {"clock_offset_ns": -2 * SECOND_NS}, "2.000 s behind"),
    ],
)
def test_what_an_agent_says_is_a_verdict_while_it_says_so(
    kind: str, more: dict[str, Any], text: str
) -> None:
    """It opens when it has lasted, and ends with the first heartbeats that say nothing."""
    fleet = Talking(4)
    fleet.run(5)
    found = fleet.say(45, ["a1"], **more)
    assert opened(found) == [("a1", kind)]
    assert text in " ".join(found[0].evidence)
    assert found[0].tasks == ("t",)
    assert resolved(fleet.run(8)) == ["a1"]
    assert len(fleet.events) == 2


def test_nothing_to_probe_is_well_without_a_job() -> None:
    """Nor is a moment of it a verdict, nor a clock within its error."""
    fleet = Fleet(4)
    fleet.run(5)
    before = len(fleet.events)
    for _ in range(45):
        fleet.beat("a1", at=fleet.now + SECOND_NS, probing=ProbingState.EMPTY_LIST)
        fleet.run(1, silent=["a1"])
    talking = Talking(4)
    talking.say(20, ["a1"], probing=ProbingState.EMPTY_LIST)
    talking.say(20, ["a1"], clock_offset_ns=3 * SECOND_NS, clock_error_ns=5 * SECOND_NS)
    talking.run(10)
    assert fleet.events[before:] == talking.events == []


def test_a_process_that_yielded_is_a_verdict_beside_its_living_twin() -> None:
    """Its heartbeats neither count for the agent nor against it; they end, and so does it."""
    fleet = Talking(4)
    fleet.run(5)
    for number in range(20):
        fleet.beat(
            "a1", at=fleet.now + SECOND_NS, probing=ProbingState.DISPLACED, displaced_by=1,
            incarnation=0, seq=number,
        )  # fmt: skip
        fleet.run(1)
    assert opened(fleet.events) == [("a1", "agent_displaced")]
    assert "no heartbeats" not in " ".join(fleet.events[0].evidence)
    assert resolved(fleet.run(10)) == ["a1"]


def test_a_forged_registration_that_stops_an_agent_is_told() -> None:
    """The agent yields to nobody: one verdict, which says so, and no death beside it."""
    fleet = Talking(4)
    fleet.run(5)
    found = fleet.say(40, ["a1"], probing=ProbingState.DISPLACED, displaced_by=1 << 60)
    assert opened(found) == [("a1", "agent_displaced")]
    assert "no heartbeats" in " ".join(found[0].evidence)
    assert resolved(fleet.run(10)) == ["a1"]


def test_many_at_once_are_one_verdict_on_the_cluster() -> None:
    """All clocks are off: rather the broker's. Every name is in the evidence."""
    fleet = Talking(12)
    fleet.run(5)
    found = fleet.say(10, fleet.agents, clock_offset_ns=9 * SECOND_NS)
    assert opened(found) == [("lab", "agent_clock")]
    assert "a11" in " ".join(found[0].evidence)
    assert resolved(fleet.run(8)) == ["lab"]


def test_the_clock_of_a_host_with_several_agents_is_one_verdict_on_the_host() -> None:
    """Its agents show it one after the other: the first one's verdict becomes the host's."""
    fleet = Talking(12)
    agents = [f"a{n}" for n in range(1, 6)]
    for agent in agents:
        fleet.part(component(agent, ComponentKind.AGENT, parent="h-x"))
    fleet.part(component("h-x", ComponentKind.HOST))
    fleet.run(5)
    fleet.say(1, ["a3"], clock_offset_ns=9 * SECOND_NS)
    fleet.say(10, agents, clock_offset_ns=9 * SECOND_NS)
    first, second, *others = fleet.events
    assert (first.component_id, second.component_id, others) == ("a3", "h-x", [])
    assert first.fault_id == second.fault_id
    assert first.tasks == second.tasks == ("t",)
    assert resolved(fleet.run(8)) == ["h-x"]


def test_a_clock_and_a_death_are_two_verdicts() -> None:
    """Neither hides the other."""
    fleet = Talking(4)
    fleet.run(5)
    fleet.say(10, ["a1"], clock_offset_ns=9 * SECOND_NS)
    fleet.run(15, silent=["a1"])
    assert opened(fleet.events) == [("a1", "agent_clock"), ("a1", "agent_dead")]
    fleet.say(10, ["a1"], clock_offset_ns=9 * SECOND_NS)
    assert resolved(fleet.events).count("a1") == 2


def test_coverage_counts_what_agents_say() -> None:
    """Without lists there is nothing to cover."""
    fleet = Talking(2)
    fleet.run(2)
    assert fleet.core.sources.coverage() == {}


def test_what_runs_otherwise_than_configured_is_a_verdict_though_no_probe_shows_it() -> None:
    """Once its reader has said so twice; it ends when it says that all is as configured."""
    fleet = Talking(4)
    fleet.part(component("rnic:a1", ComponentKind.RNIC))
    fleet.run(5)

    def read(transport: str) -> list[FaultEvent]:
        record = ComponentState(
            cluster="lab", state_id=state_id("rnic:a1", "transport"), component_id="rnic:a1",
            attribute="transport", text=transport, changed_at=fleet.now // 1000,
            observed_at=fleet.now // 1000, source="a1",
        )  # fmt: skip
        fleet.put(topics.COMPONENT_STATE.name, record.state_id, record, at=fleet.now)
        return fleet.run(20)

    assert read("rdma") == read("udp") == []
    assert opened(read("udp")) == [("rnic:a1", "not_using_rdma")]
    assert read("udp") == []
    assert resolved(read("rdma")) == ["rnic:a1"]
