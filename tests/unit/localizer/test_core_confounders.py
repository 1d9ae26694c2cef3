"""What is no fault of the network opens none: each case was a false page somewhere."""

from collections.abc import Callable

import pytest

from ops.lab.topology import task_of
from schemas import topics
from schemas.enums import AgentState
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer.simlab import CLUSTER, SimLab

AGENTS = tuple(f"agent-h{n}" for n in range(4))


def well(lab: SimLab) -> None:
    """Let nothing happen."""
    lab.run(20)


def stalled(seconds: float, agents: tuple[str, ...]) -> Callable[[SimLab], None]:
    """Agents do not answer for a while, and again, and again."""

    def happen(lab: SimLab) -> None:
        for _ in range(2):
            lab.effects.deaf.update(agents)
            lab.run(seconds)
            lab.effects.deaf.clear()
            lab.run(5)

    return happen


def paused(lab: SimLab) -> None:
    """Let a process stand still for three seconds: it neither answers nor sends."""
    for _ in range(2):
        lab.effects.dead.add("agent-h1")
        lab.run(3)
        lab.effects.dead.clear()
        lab.run(12)


def restarted(lab: SimLab) -> None:
    """Kill an agent and have it back before it is missed."""
    lab.effects.dead.add("agent-h1")
    lab.run(1.25)
    lab.effects.dead.clear()
    lab.run(12)


def left(lab: SimLab) -> None:
    """End a container in order: tombstones, a last heartbeat, silence."""
    for e in lab.shape.endpoints:
        if e.agent_id == "agent-h3":
            lab.write(topics.ENDPOINT.name, e.endpoint_id, None, lab.now)
    lab.heartbeat("agent-h3", lab.now, AgentState.LEAVING)
    lab.effects.dead.add("agent-h3")
    lab.run(20)


def ended(lab: SimLab) -> None:
    """End the job: its agents are killed without a word."""
    task = task_of(
        lab.shape, cluster=CLUSTER, submitted_at=lab.now // 1000, ended_at=lab.now // 1000
    )
    lab.write(topics.TASK.name, task.task_id, task, lab.now)
    lab.effects.dead.update(AGENTS[1:])
    lab.run(20)


def lossy_everywhere(lab: SimLab) -> None:
    """Lose probes of all paths alike, as a machine that is busy does."""
    lab.effects.noise = 0.05
    lab.run(15)


def slow_everywhere(lab: SimLab) -> None:
    """Let every round trip take twenty times as long."""
    lab.run(60)
    lab.effects.load = 20
    lab.run(20)


def slow_agent(lab: SimLab) -> None:
    """Let one agent be slow at its own work, and say so."""
    lab.run(60)
    lab.effects.slow["agent-h1"] = 5 * MS_NS
    lab.run(20)


CASES: dict[str, Callable[[SimLab], None]] = {
    "nothing": well,
    "one agent stalls for a second": stalled(1.0, AGENTS[:1]),
    "two agents stall for two seconds": stalled(2.0, AGENTS[:2]),
    "the whole machine stalls": stalled(1.5, AGENTS),
    "an agent pauses for three seconds": paused,
    "an agent is restarted": restarted,
    "a container leaves in order": left,
    "the job ends": ended,
    "loss everywhere": lossy_everywhere,
    "everything is slow": slow_everywhere,
    "one agent is slow": slow_agent,
}


@pytest.mark.parametrize("name", CASES)
def test_no_fault_is_opened(name: str) -> None:
    """Not while it happens, and not while its anomalies are being cleared."""
    lab = SimLab(seed=7, flows=2)
    lab.run(6)
    CASES[name](lab)
    lab.effects.noise = 0.0
    lab.effects.slow.clear()
    lab.effects.load = 1.0
    lab.run(10)
    assert [e.summary for e in lab.verdicts()] == []


def test_a_dead_agent_is_one_fault_and_not_many_paths() -> None:
    """However many 5-tuples lead to it."""
    lab = SimLab(seed=7)
    lab.run(6)
    lab.effects.dead.add("agent-h0")
    lab.run(15)
    (event,) = lab.verdicts()
    assert (event.component_id, event.component_kind) == ("agent-h0", "AGENT")


def test_an_agent_that_lives_but_never_answers_is_named_at_last() -> None:
    """Its heartbeats go on while nothing answers at its endpoints: the agent, not the network.

    One that had paused would have answered three rounds since the first of them.
    """
    lab = SimLab(seed=7)
    lab.run(6)
    began_ns = lab.now
    lab.effects.deaf.add("agent-h0")
    lab.run(25)
    (event,) = lab.verdicts()
    assert (event.component_id, event.fault_kind) == ("agent-h0", "agent_unresponsive")
    assert event.event_at * 1000 - began_ns <= 5.5 * SECOND_NS
