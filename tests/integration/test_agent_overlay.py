"""An agent with overlay tables on a real broker: told, kept up to date, taken back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.running.processes import ProcessGroup
from schemas import topics
from schemas.enums import AgentState
from schemas.ids import state_id
from schemas.kafka.connection import KafkaSettings
from tests.integration.agent_harness import Agents, Watcher
from tests.unit.probers.overlay.dumps import kernel

pytestmark = pytest.mark.broker

# Both agents are on loopback, so this is the address of either endpoint.
NEIGHBOURS = '[{"dst":"127.0.0.1","dev":"lo","lladdr":"02:00:00:00:00:09","state":["STALE"]}]'


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ProcessGroup]:
    """Return what stops the agents that run at the end."""
    with ProcessGroup(tmp_path / "logs") as made:
        yield made


@pytest.fixture
def agents(kafka: KafkaSettings, tmp_path: Path, group: ProcessGroup) -> Agents:
    """Return what starts agents."""
    return Agents(kafka, tmp_path, group)


@pytest.fixture
def watcher(agents: Agents) -> Iterator[Watcher]:
    """Return what reads the tables and the heartbeats."""
    made = Watcher(
        agents.settings,
        topics.OVERLAY_FLOWS,
        topics.HEARTBEAT,
        topics.PROBE_ROUND,
        topics.COMPONENT_STATE,
    )
    yield made
    made.close()


def overlay_table(folder: Path) -> str:
    """Return the settings of an agent whose tables are files."""
    return f"""
[agent.overlay]
source = "ovs"
vswitch = "v-a"
vtep_addresses = ["10.9.0.1"]
vtep_ids = "vtep:{{address}}"
interval_s = 5
software_command = ["cat", "{folder}/sw"]
offloaded_command = ["cat", "{folder}/hw"]
neigh_command = ["cat", "{folder}/neigh"]
"""


def test_tables_are_told_followed_and_taken_back(
    agents: Agents, watcher: Watcher, group: ProcessGroup, tmp_path: Path
) -> None:
    """A flow is told, then dropped; a dump that fails is a reason; the end is a tombstone."""
    software = tmp_path / "sw"
    software.write_text(kernel("7", tunnel=True) + "\n")
    (tmp_path / "hw").write_text("")
    (tmp_path / "neigh").write_text(NEIGHBOURS)
    config = agents.configure("a")
    with config.open("a", encoding="utf-8") as file:
        file.write(overlay_table(tmp_path))
    agents.tell("agent-a", ("a/r0", "b/r0"))
    agents.start("b", agents.configure("b"))
    agents.start("a", config)

    def hops() -> dict[tuple[str, str], str | None]:
        tables = [t for t in watcher.of(topics.OVERLAY_FLOWS, "a") if t is not None]
        return {(e.node, e.dst): e.next_hop for e in tables[-1].entries} if tables else {}

    watcher.until(
        "the endpoint's own chain is told",
        lambda: hops() == {("v-a", "a/r0"): "a/r0", ("vtep:10.9.0.1", "a/r0"): "v-a"},
    )
    software.write_text(kernel("drop", tunnel=True) + "\n")
    watcher.until("the switch drops", lambda: hops().get(("v-a", "a/r0"), "") is None)
    evictions = state_id("v-a", "flow_evictions_per_s")
    watcher.until(
        "hardware has lost nothing",
        lambda: [s.number for s in watcher.of(topics.COMPONENT_STATE, evictions)] == [0.0],
    )
    rounds = len(watcher.of(topics.PROBE_ROUND, "agent-a"))
    software.unlink()
    watcher.until(
        "the reason is in the heartbeat",
        lambda: any(
            h.state is AgentState.DEGRADED and "overlay tables: cat" in (h.state_reason or "")
            for h in watcher.of(topics.HEARTBEAT, "agent-a")
        ),
    )
    watcher.until(
        "and it probes on", lambda: len(watcher.of(topics.PROBE_ROUND, "agent-a")) > rounds + 2
    )
    assert group.stop("a") == 0
    watcher.until(
        "the tables are taken back", lambda: watcher.of(topics.OVERLAY_FLOWS, "a")[-1] is None
    )
