"""Bounds of what the localizer knows at once, and what those leave behind who depart."""

import pytest

from localizer.config import CoreConfig
from localizer.core import Core
from ops.bench.scale.localizer_life import Life
from schemas import topics
from tests.unit.localizer.fleet import Fleet
from tests.unit.localizer.made import START, endpoint, pinglist, trace


def test_ten_thousand_containers_leave_nothing_behind() -> None:
    """The localizer holds as many objects as after the first thousand."""
    life = Life()
    life.run(25, 40)
    life.drain()
    before = life.objects()
    life.run(250, 40)
    life.drain()
    assert life.came == 11_000
    assert life.objects() <= before + 200


@pytest.mark.parametrize("what", ["heartbeats", "registrations", "traces", "lists"])
def test_beyond_a_bound_new_ones_are_refused_and_counted(what: str) -> None:
    """What is known already goes on; strangers are forgotten, and there is room again."""
    config = CoreConfig(cluster="lab", max_agents=8, max_endpoints=8, max_flows=8)
    fleet = Fleet(4, Core(config))
    fleet.run(5)
    for n in range(100):
        match what:
            case "heartbeats":
                fleet.beat(f"forged-{n}")
            case "registrations":
                fleet.put(topics.ENDPOINT.name, f"x{n}", endpoint(f"x{n}", "a0"), at=fleet.now)
            case "traces":
                record = trace("s0", ends=(f"x{n}", "y"), at=START)
                fleet.put(topics.PATH_TRACE.name, record.path_id, record, at=fleet.now)
            case _:
                forged = pinglist(f"forged-{n}", [("e-a0", "e-a1")], flows=2)
                fleet.put(topics.PINGLIST.name, forged.agent_id, forged, at=fleet.now)
    fleet.run(2)
    kept = 4 if what in ("heartbeats", "registrations", "lists") else 8
    counted = "registrations" if what == "lists" else what
    assert fleet.core.sources.refused[counted] == 100 - kept
    found = fleet.run(20, silent=["a1"])
    assert ("a1", "agent_dead") in [(e.component_id, e.fault_kind) for e in found]


def test_a_burst_of_names_leaves_room_again() -> None:
    """Strangers are forgotten after two minutes; a new agent is known."""
    fleet = Fleet(4, Core(CoreConfig(cluster="lab", max_agents=8)))
    fleet.run(5)
    for n in range(100):
        fleet.beat(f"forged-{n}")
    fleet.run(140)
    assert len(fleet.core.sources.liveness) == 4
    fleet.agents.append("b5")
    fleet.run(2)
    assert len(fleet.core.sources.liveness) == 5
