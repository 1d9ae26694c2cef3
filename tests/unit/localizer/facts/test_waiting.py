"""Records that wait for the worker's progress are bounded: by names, and in all."""

from localizer.config import CoreConfig
from localizer.core import Core
from localizer.facts.inputs import Event
from schemas import topics
from schemas.units import SECOND_NS
from tests.unit.localizer.batched import heartbeats_of
from tests.unit.localizer.fleet import Fleet
from tests.unit.localizer.made import START, endpoint, heartbeat, task, trace


def send_trace(fleet: Fleet, src: str, dst: str) -> None:
    """Write a trace that arrives now."""
    record = trace("s0", ends=(src, dst), at=fleet.now)
    fleet.put(topics.PATH_TRACE.name, record.path_id, record, at=fleet.now)


def test_of_unknown_agents_no_more_wait_than_may_be_known() -> None:
    """All heartbeats of known agents do, and all of those that wait already."""
    fleet = Fleet(4, Core(CoreConfig(cluster="lab", max_agents=8)))
    fleet.run(2)
    waiting = fleet.core.pending
    for _ in range(3):
        for n in range(100):
            fleet.beat(f"forged-{n}")
        for agent in fleet.agents:
            fleet.beat(agent)
    assert fleet.core.pending == waiting + 3 * (8 + 4)
    assert fleet.core.refused["heartbeats"] == 3 * 92


def test_of_unknown_agents_in_a_batch_as_many_wait_as_one_by_one() -> None:
    """And once they were applied, others may."""
    core = Core(CoreConfig(cluster="lab", max_agents=8))
    for burst in range(2):
        at_ns = START + burst * SECOND_NS
        names = [f"forged-{burst}-{number % 20}" for number in range(60)]
        beats = [
            Event(at_ns, topics.HEARTBEAT.name, name, 0, offset, heartbeat(name, at_ns, offset))
            for offset, name in enumerate(names)
        ]
        core.feed_heartbeats(heartbeats_of(beats))
        assert core.pending == 3 * 8
        assert core.refused["heartbeats"] == (burst + 1) * 3 * 12
        core.advance(at_ns)
        assert core.pending == 0
    assert not core._waiting._agents


def test_of_traces_from_nowhere_no_more_wait_than_may_be_known() -> None:
    """Those of endpoints wait whose registrations, or jobs, wait as well."""
    fleet = Fleet(2, Core(CoreConfig(cluster="lab", max_flows=8)))
    for n in range(100):
        send_trace(fleet, f"x{n}", "y")
    assert fleet.core.refused["traces"] == 92
    fleet.put(topics.ENDPOINT.name, "y", endpoint("y", "a0"), at=fleet.now)
    members = [(f"x{n}", "a") for n in range(50)]
    fleet.put(topics.TASK.name, "job", task("job", members), at=fleet.now)
    for n in range(100):
        send_trace(fleet, f"x{n}", "y")
    # 50 of the job, and eight that were there.
    assert fleet.core.refused["traces"] == 92 + 50


def test_names_are_unknown_again_once_nothing_of_them_waits() -> None:
    """A second burst is treated as the first was."""
    fleet = Fleet(1, Core(CoreConfig(cluster="lab", max_agents=8, max_flows=8)))
    for burst in "bcd":
        before = fleet.core.refused
        fleet.put(topics.ENDPOINT.name, "y", endpoint("y", "a0"), at=fleet.now)
        fleet.put(topics.ENDPOINT.name, "y", None, at=fleet.now)
        for n in range(20):
            fleet.beat(f"forged-{burst}{n}")
            send_trace(fleet, f"{burst}{n}", "z")
        assert fleet.core.refused["heartbeats"] == before["heartbeats"] + 12
        fleet.run(200)
    queue = fleet.core._waiting
    # Heartbeats of the last second wait.
    assert not queue._agents
    assert not queue._flows
    assert not queue._announced


def test_where_no_mark_comes_the_oldest_heartbeats_go() -> None:
    """Of all agents alike, so that none is dead afterwards; later ones than those are applied."""
    fleet = Fleet(4, Core(CoreConfig(cluster="lab", max_waiting=100)))
    fleet.run(60)
    for second in range(300):
        for agent in fleet.agents:
            # A partition that is read late has older ones.
            fleet.beat(agent, at=fleet.now + (second - (second % 7)) * SECOND_NS)
        assert fleet.core.pending <= 101
    assert fleet.core.refused["waiting"] >= 4 * 300 - 110
    fleet.now += 300 * SECOND_NS
    assert not fleet.run(30)
    assert [e.component_id for e in fleet.run(20, silent=["a1"])] == ["a1"]


def test_heartbeats_of_a_time_that_was_dropped_do_not_wait_again() -> None:
    """They count as dropped, in a batch as one by one."""
    core = Core(CoreConfig(cluster="lab", max_waiting=20))
    beats = [
        Event(at_ns, topics.HEARTBEAT.name, "a0", 0, offset, heartbeat("a0", at_ns, offset))
        for offset in range(40)
        for at_ns in [START + offset * SECOND_NS]
    ]
    core.feed_heartbeats(heartbeats_of(beats))
    kept, dropped = core.pending, core.refused["waiting"]
    assert (kept, dropped) == (15, 25)
    core.feed_heartbeats(heartbeats_of(beats[:20]))
    assert (core.pending, core.refused["waiting"]) == (kept, dropped + 20)


def test_other_records_wait_however_many() -> None:
    """They say what the cluster is, and have bounds of their own."""
    fleet = Fleet(1, Core(CoreConfig(cluster="lab", max_waiting=100)))
    for n in range(1_000):
        fleet.put(topics.ENDPOINT.name, f"x{n}", endpoint(f"x{n}", "a0"), at=fleet.now)
    fleet.run(2)
    assert len(fleet.core.sources.roster) == 1_001
    assert fleet.core.refused["waiting"] == 0
