"""What a running agent has loaded: a real process that probes, reads states, and follows Kafka."""

import json
import os
import sys
from pathlib import Path

import pytest

from ops.running.processes import ProcessGroup
from schemas import topics
from schemas.kafka.connection import KafkaSettings
from tests.architecture.test_agent_footprint import FORBIDDEN
from tests.integration.agent_harness import Agents, Watcher

pytestmark = pytest.mark.broker

# Python runs it at the start of every process that finds it.
HOOK = """
import json, os, sys
leave = os._exit
def tell(code):
    names = sorted(name for name, module in sys.modules.items() if module is not None)
    with open(os.environ["TEST_MODULES"], "w") as file:
        json.dump(names, file)
    leave(code)
# Processes end by it: `schemas.process.ending.end_with`.
os._exit = tell
"""
# Beyond what the agent may not load at its start: nothing of a numeric or test kind, no
# second event loop, nothing of duties that its settings do not give it.
MORE_FORBIDDEN = ("river", "pandas", "pytest", "multiprocessing", "concurrent.futures", "xml")
PACKAGES_OF_DUTIES = ("probers.overlay.", "probers.rdma.", "pyverbs.")


@pytest.fixture
def modules(kafka: KafkaSettings, tmp_path: Path) -> set[str]:
    """Run an agent without overlay and RDMA for some rounds; return what it had at its end."""
    hook, told = tmp_path / "hook", tmp_path / "modules.json"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    with ProcessGroup(tmp_path / "logs") as group:
        agents = Agents(kafka, tmp_path, group)
        config = agents.configure("a", rnics=2, states_s=1)
        config.write_text(config.read_text() + '[agent.overlay]\nsource = "none"\n')
        agents.tell("agent-a", ("a/r0", "a/r1"), ("a/r1", "a/r0"))
        path = os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")])
        group.start(
            "a",
            [sys.executable, "-m", "probers", "--config", str(config)],
            env={"PYTHONPATH": path, "TEST_MODULES": str(told)},
        )
        watcher = Watcher(
            agents.settings, topics.PROBE_ROUND, topics.RNIC_COUNTERS, topics.COMPONENT_STATE
        )
        for topic, count in (
            (topics.PROBE_ROUND, 2),
            (topics.RNIC_COUNTERS, 2),
            (topics.COMPONENT_STATE, 4),
        ):
            watcher.until(topic.name, lambda t=topic, n=count: len(watcher.of(t)) >= n)  # type: ignore[misc]
        watcher.close()
        assert group.stop("a") == 0
    return set(json.loads(told.read_text()))


def test_a_running_agent_loads_nothing_heavy_and_nothing_of_duties_it_does_not_have(
    modules: set[str],
) -> None:
    """Neither at its start nor later, with rounds, counters and states on their way to Kafka."""
    assert {
        "probers.agent",
        "probers.host.state_watch",
        "probers.transports.udp",
        "fastavro._write",
    } <= modules
    assert modules.isdisjoint({*FORBIDDEN, *MORE_FORBIDDEN})
    duties = [m for m in modules if f"{m}.".startswith(PACKAGES_OF_DUTIES)]
    assert duties == []
