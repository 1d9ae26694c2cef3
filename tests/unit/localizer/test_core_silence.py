"""Silence of agents by the arrival of heartbeats: attacks, pauses of the broker, whole racks."""

import pytest

from localizer.config import CoreConfig
from localizer.core import Core
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from schemas.units import SECOND_NS
from tests.unit.localizer.fleet import PARTITIONS, Fleet

MINUTE_NS = 60 * SECOND_NS


def opened(events: list[FaultEvent]) -> list[tuple[str, str]]:
    """Return component and kind of each fault that was opened."""
    return [(e.component_id, e.fault_kind) for e in events if e.state is FaultLifecycle.OPEN]


def resolved(events: list[FaultEvent]) -> list[str]:
    """Return the component of each fault that was resolved."""
    return [e.component_id for e in events if e.state is FaultLifecycle.RESOLVED]


@pytest.mark.parametrize(
    "poison",
    [
        {"sent_at": 1 << 62},
        {"sent_at": -(1 << 62)},
        {"sent_at": 0},
        {"seq": 1 << 62},
        {"seq": -1},
        {"incarnation": 1 << 62},
        {"incarnation": -1},
        {"interval_ns": 1 << 62},
        {"interval_ns": -1},
        {"host_delay_ns": 1 << 62},
    ],
    ids=str,
)
def test_an_absurd_value_in_one_heartbeat_changes_nothing(poison: dict[str, int]) -> None:
    """The agent beats on each second: it lives; and it is missed when it falls silent."""
    fleet = Fleet(4)
    fleet.run(10)
    fleet.beat("a1", **poison)
    assert fleet.run(30) == []
    assert opened(fleet.run(15, silent=["a1"])) == [("a1", "agent_dead")]


def test_a_heartbeat_from_the_future_kills_nobody() -> None:
    """Its topic took the writer's timestamp, 50 minutes ahead; the agent beats on."""
    fleet = Fleet(4)
    fleet.run(10)
    fleet.beat("a1", at=fleet.now + 50 * MINUTE_NS)
    assert fleet.run(60) == []


def test_clocks_of_agents_say_nothing_about_their_lives() -> None:
    """An hour behind, forty seconds ahead: both beat, and both are missed once silent."""
    fleet = Fleet(4)
    for _ in range(30):
        fleet.beat("a1", sent_at=(fleet.now - 60 * MINUTE_NS) // 1000)
        fleet.beat("a2", sent_at=(fleet.now + 40 * SECOND_NS) // 1000)
        fleet.run(1, silent=["a1", "a2"])
    assert fleet.events == []
    assert opened(fleet.run(15, silent=["a1", "a2"])) == [
        ("a1", "agent_dead"), ("a2", "agent_dead"),
    ]  # fmt: skip


@pytest.mark.parametrize("away_s", [3, 8, 60])
def test_a_pause_of_the_broker_ages_nobody(away_s: int) -> None:
    """Time goes on by the rounds' backlog; agents come back one by one within seconds."""
    fleet = Fleet(8)
    fleet.run(30)
    for _ in range(away_s):
        fleet.run(1, silent=fleet.agents)
    for back in range(8):
        fleet.run(1, silent=fleet.agents[back + 1 :])
    fleet.run(30)
    assert fleet.events == []


def test_intervals_of_strangers_hide_no_pause() -> None:
    """A burst of names that promise a heartbeat a minute comes before the broker pauses."""
    fleet = Fleet(8)
    fleet.run(40)
    for number in range(300):
        fleet.beat(f"forged-{number}", interval_ns=MINUTE_NS)
    fleet.run(2)
    fleet.run(10, silent=fleet.agents)
    for back in range(8):
        fleet.run(1, silent=fleet.agents[back + 1 :])
    fleet.run(30)
    assert fleet.events == []


def test_who_does_not_come_back_after_a_pause_is_missed() -> None:
    """The broker was away, and one agent died meanwhile."""
    fleet = Fleet(8)
    fleet.run(30)
    fleet.run(20, silent=fleet.agents)
    assert opened(fleet.run(30, silent=["a3"])) == [("a3", "agent_dead")]
    assert resolved(fleet.run(8)) == ["a3"]


def test_a_rack_that_falls_silent_is_one_verdict_on_its_switch() -> None:
    """With every name in the evidence; it ends when all are back."""
    fleet = Fleet(24)
    rack = fleet.agents[8:16]
    fleet.rack("leaf-0", fleet.agents[:8])
    fleet.rack("leaf-1", rack)
    fleet.rack("leaf-2", fleet.agents[16:])
    fleet.run(30)
    found = fleet.run(20, silent=rack)
    assert opened(found) == [("leaf-1", "agents_silent")]
    text = " ".join(found[0].evidence)
    assert all(agent in text.replace(",", " ").split() for agent in rack)
    # The others are still away: the verdict stands.
    assert resolved(fleet.run(20, silent=rack[:2])) == []
    assert resolved(fleet.run(10)) == ["leaf-1"]
    assert len(opened(fleet.events)) == 1


def test_a_partition_that_falls_silent_is_one_verdict_on_it() -> None:
    """All heartbeats of one partition are missing: its broker, not the agents."""
    fleet = Fleet(32)
    silent = fleet.agents[1::PARTITIONS]
    fleet.run(30)
    assert opened(fleet.run(20, silent=silent)) == [
        ("agent.heartbeat.v1/1", "agents_silent"),
    ]  # fmt: skip
    fleet.run(20)
    assert len(opened(fleet.events)) == 1


def test_many_that_share_nothing_are_one_verdict_on_all_of_them() -> None:
    """And one or two that fall silent later are verdicts of their own."""
    fleet = Fleet(40)
    silent = [fleet.agents[n] for n in (0, 3, 6, 9, 12, 17, 22, 31)]
    fleet.run(30)
    found = fleet.run(20, silent=silent)
    assert opened(found) == [("a0", "agents_silent")]
    assert "nothing that they share explains it" in found[0].evidence
    assert {c.component_id for c in found[0].candidates} == set(silent)
    assert not found[0].decided
    later = fleet.run(20, silent=[*silent, "a1"])
    assert opened(later) == [("a1", "agent_dead")]


def test_three_thousand_at_once_are_three_pages_at_most() -> None:
    """Half of 6,000 agents fall silent within a second."""
    fleet = Fleet(6_000)
    fleet.run(4)
    found = fleet.run(14, silent=fleet.agents[:3_000])
    assert 1 <= len(opened(found)) <= 3
    names = " ".join(found[-1].evidence).replace(",", " ").split()
    assert set(fleet.agents[:3_000]) <= set(names)


def test_names_never_seen_before_are_no_fleet() -> None:
    """A burst of heartbeats of 3,000 unknown names, twice: no page, and nothing stays."""
    fleet = Fleet(4)
    fleet.run(10)
    for _ in range(2):
        for number in range(3_000):
            fleet.beat(f"forged-{number}")
        fleet.run(2)
    fleet.run(200)
    assert fleet.events == []
    assert len(fleet.core.sources.liveness) == 4


def test_a_stranger_that_beats_for_long_is_a_member() -> None:
    """It has no endpoint, but sent heartbeats for a minute: it is missed."""
    fleet = Fleet(4)
    fleet.agents.append("stranger-9")
    fleet.run(60)
    assert opened(fleet.run(15, silent=["stranger-9"])) == [("stranger-9", "agent_dead")]


def test_one_verdict_stays_one_over_a_restart() -> None:
    """A new process finds the open fault of many, and resolves it when all are back."""
    fleet = Fleet(24)
    rack = fleet.agents[8:16]
    fleet.run(30)
    found = fleet.run(30, silent=rack)
    assert opened(found) == [("a10", "agents_silent")]
    decided = fleet.now
    core = Core(
        CoreConfig(cluster="lab"), found, begin_ns=decided - SECOND_NS, decided_ns=decided
    )  # fmt: skip
    after = Fleet(24, core)
    after.now = decided - SECOND_NS
    assert after.run(20, silent=rack) == []
    assert resolved(after.run(10)) == ["a10"]
