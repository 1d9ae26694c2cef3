"""An agent on a real broker tells the state of its RNIC as its files change."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.running.processes import ProcessGroup
from schemas import topics
from schemas.ids import state_id
from schemas.kafka.connection import KafkaSettings
from schemas.records import ComponentState
from tests.integration.agent_harness import Agents, Watcher

pytestmark = pytest.mark.broker
RNIC = "rnic:a/r0"


@pytest.fixture
def agents(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Agents]:
    """Return what starts agents; those that run are stopped at the end."""
    with ProcessGroup(tmp_path / "logs") as group:
        yield Agents(kafka, tmp_path, group)


def test_a_port_goes_down_and_its_device_away(agents: Agents, tmp_path: Path) -> None:
    """Each is told once, within a look; what is not in the tree is unknown, with a reason."""
    watcher = Watcher(agents.settings, topics.COMPONENT_STATE)

    def latest(attribute: str) -> ComponentState | None:
        found = watcher.of(topics.COMPONENT_STATE, state_id(RNIC, attribute))
        return found[-1] if found else None

    def says(attribute: str, text: str | None) -> bool:
        state = latest(attribute)
        return state is not None and state.text == text

    try:
        config = agents.configure("a", states_s=1)
        port = tmp_path / "a" / "mlx5_0" / "ports" / "1"
        (port / "state").write_text("4: ACTIVE\n")
        (port / "counters" / "symbol_error").write_text("0\n")
        agents.start("a", config)
        watcher.until("it is there", lambda: says("device", "present"))
        watcher.until("it is active", lambda: says("port_state", "active"))
        watcher.until("a rate is known", lambda: latest("crc_errors_per_s") is not None)
        (port / "counters" / "symbol_error").write_text("3000\n")
        (port / "state").write_text("1: DOWN\n")
        watcher.until("it is down", lambda: says("port_state", "down"))
        watcher.until(
            "errors are seen",
            lambda: (rate := latest("crc_errors_per_s")) is not None and (rate.number or 0) > 1,
        )
        shutil.rmtree(port.parent.parent)
        watcher.until("it is gone", lambda: says("device", "gone"))
        watcher.until("so is its state", lambda: says("port_state", None))
    finally:
        watcher.close()
    words = [s.text for s in watcher.of(topics.COMPONENT_STATE, state_id(RNIC, "port_state"))]
    assert words == ["active", "down", None]
    reasons = {
        name: (state.number, state.missing_reason)
        for name in ("port_state", "pcie_width")
        if (state := latest(name)) is not None
    }
    assert reasons == {
        "port_state": (None, "the device is gone"),
        "pcie_width": (None, "no PCI function"),
    }
    assert {s.source for s in watcher.of(topics.COMPONENT_STATE)} == {"agent-a"}
