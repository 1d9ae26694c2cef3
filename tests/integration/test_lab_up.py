"""A whole lab on a real broker: what it says on the topics, what it does, what it leaves."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ops.lab.faults import FaultError
from ops.lab.folder import LabFolderError, command_line, is_up, lab_path
from ops.lab.lab import Lab, LabConfig, LabError
from ops.lab.left_states import withdraw_states
from ops.lab.shape import LabShape
from ops.log.watch import Watch, WatchedRecord
from ops.log.writing import LogWriter
from schemas import topics
from schemas.codec import Codec
from schemas.enums import PingListPhase, ProbeStatus, TargetOrigin
from schemas.kafka.connection import STATE_ENV, KafkaSettings
from schemas.records import (
    Component,
    ComponentState,
    CounterBatch,
    FlowTable,
    Heartbeat,
    PingList,
    PingTarget,
    ProbeRound,
    Task,
)

pytestmark = pytest.mark.broker
SMALL = LabShape(hosts=2, rails=2, pods=2, leaves=1, spines=2)
COMMAND = [sys.executable, "-c", "from ops.cli.app import main; main()", "lab"]
UP_TIMEOUT_S = 60.0


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a fresh state folder, and check that labs leave nothing in it."""
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        monkeypatch.setenv(STATE_ENV, name)
        yield Path(name)
        assert [p for p in Path(name).rglob("*") if p != Path(name) / "lab"] == []


def latest(watch: Watch, settled: Callable[[dict[tuple[str, str], Any]], bool]) -> dict[Any, Any]:
    """Return the latest record by topic and key, once it is as expected."""
    found: dict[tuple[str, str], Any] = {}

    def fold(seen: WatchedRecord) -> bool:
        if seen.record is None:
            found.pop((seen.topic, seen.key), None)
        else:
            found[seen.topic, seen.key] = seen.record
        return settled(found)

    assert watch.until(fold, 60.0) is not None, sorted(found)
    return found


def of(found: dict[Any, Any], topic: topics.Topic) -> dict[str, Any]:
    """Return the records of one topic by key."""
    return {key: record for (name, key), record in found.items() if name == topic.name}


def test_topics_tell_of_the_lab_while_it_is_up(kafka: KafkaSettings, state: Path) -> None:
    """A hole shows in the table; at the end all is withdrawn, and the task has ended."""
    watched = (topics.TOPOLOGY, topics.OVERLAY_FLOWS, topics.TASK)
    config = LabConfig(settings=kafka, shape=SMALL, agents=False)
    with Watch(kafka, watched, from_start=True) as watch:
        with Lab(config) as lab:
            expected = 2 * 3 + 4 * 2 + 4 + 8
            found = latest(watch, lambda f: len(f) == expected + 2 + 1)
            components: dict[str, Component] = of(found, topics.TOPOLOGY)
            address = lab.status()["fabric"]["addresses"]["spine:1"]
            assert components["spine:1"].addresses == (address,)
            assert components["job1-w1/r1"].parent == "rnic:h1/r1"
            task: Task = of(found, topics.TASK)["job1"]
            assert (len(task.endpoints), task.ended_at) == (4, None)
            before: FlowTable = of(found, topics.OVERLAY_FLOWS)["host:h1"]

            truth = lab.fault("flow-hole", "vsw:h1", dst="job1-w1/r0")
            after: FlowTable = of(
                latest(watch, lambda f: (topics.OVERLAY_FLOWS.name, "host:h1") in f),
                topics.OVERLAY_FLOWS,
            )["host:h1"]
            assert abs(after.captured_at * 1_000 - truth.at_ns) < 10**9
            (gone,) = set(before.entries) - set(after.entries)
            assert (gone.node, gone.dst) == ("vsw:h1", "job1-w1/r0")
            lab.heal()
            healed = latest(watch, lambda f: (topics.OVERLAY_FLOWS.name, "host:h1") in f)
            assert set(of(healed, topics.OVERLAY_FLOWS)["host:h1"].entries) == set(before.entries)
        last = latest(watch, lambda f: (topics.TASK.name, "job1") in f)
        assert of(last, topics.TASK)["job1"].ended_at is not None
    assert [t.action for t in lab.truth] == ["up", "inject", "heal", "down"]
    with Watch(kafka, (topics.TOPOLOGY, topics.OVERLAY_FLOWS), from_start=True) as watch:
        left: dict[str, Any] = {}
        deadline = time.monotonic() + UP_TIMEOUT_S
        while time.monotonic() < deadline and (not left or any(left.values())):
            left.update({s.key: s.record for s in watch.poll(0.2)})
        assert left
        assert not any(left.values())
    assert state.exists()


def test_a_lab_that_cannot_come_up_leaves_nothing(state: Path) -> None:
    """Without a broker the error says so, and no file and no process stays."""
    settings = KafkaSettings(bootstrap="127.0.0.1:9")
    lab = Lab(LabConfig(settings=settings, shape=SMALL, agents=False))
    with pytest.raises(ConnectionError, match="no Kafka broker answers"):
        lab.up()
    assert not (state / "lab").exists()


def test_missing_topics_are_named(kafka: KafkaSettings, state: Path) -> None:
    """A broker without our topics is refused before anything starts."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap, topic_prefix="nobody-made-these.")
    with pytest.raises(LabError, match=r"nobody-made-these\."):
        Lab(LabConfig(settings=settings, shape=SMALL, agents=False)).up()
    assert not (state / "lab").exists()


def test_one_name_is_one_lab(kafka: KafkaSettings, state: Path) -> None:
    """A second lab of the same name is refused and does not disturb the first."""
    config = LabConfig(settings=kafka, shape=SMALL, agents=False, name="one")
    with Lab(config) as lab:
        with pytest.raises(LabFolderError, match="up already"):
            Lab(config).up()
        assert lab.status()["fabric"]["faults"] == []
        with pytest.raises(FaultError, match="no agents"):
            lab.fault("agent-kill", "agent-h0")
        with pytest.raises(FaultError, match="none is in force"):
            lab.heal("spine:0")
        assert lab.heal() == []
    assert state.exists()


def lab_command(*arguments: str, code: int = 0) -> str:
    """Run `skeletonhunter lab …`, check its exit code, return what it said."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=UP_TIMEOUT_S
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def up_arguments(kafka: KafkaSettings) -> list[str]:
    """Return the arguments that bring the small lab up."""
    sizes = [f"--{k}={v}" for k, v in SMALL.as_dict().items() if k != "task_id"]
    broker = ["--bootstrap", kafka.bootstrap, "--prefix", kafka.topic_prefix]
    return ["up", "--no-agents", *sizes, *broker]


def test_a_detached_lab_takes_commands(kafka: KafkaSettings, state: Path) -> None:
    """Up, broken, looked at, healed, down: by the commands that a user types."""
    assert "is up" in lab_command(*up_arguments(kafka), "--detach")
    try:
        path = lab_path("default")
        assert is_up(path)
        assert "up already" in lab_command(*up_arguments(kafka), "--detach", code=3)
        link = "link:leaf:p0-0--spine:0"
        truth = json.loads(lab_command("fault", "link-loss", link, "--percent", "20", "--json"))
        held = {"percent": 20.0, "duty": 100.0, "period_s": 10.0}
        assert (truth["component_id"], truth["params"]) == (link, held)
        assert "did you mean" in lab_command("fault", "switch-off", "spine:7", code=2)
        assert "link-loss" in lab_command("status")
        status = json.loads(lab_command("status", "--json"))
        assert [f["fault_id"] for f in status["faults"]] == ["f1"]
        assert "healed" in lab_command("heal", "spine:0--leaf:p0-0")
        assert "no fault" in lab_command("heal", "--all")
        assert "say what to heal" in lab_command("heal", code=2)
    finally:
        assert "is down" in lab_command("down")
    assert not is_up(path)
    assert not path.exists()
    assert "no lab 'default' is up" in lab_command("status", code=3)
    assert state.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing(kafka: KafkaSettings, state: Path, number: signal.Signals) -> None:
    """A signal in the foreground ends the fabric and removes every file."""
    process = subprocess.Popen(
        [*COMMAND, *up_arguments(kafka)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        path = lab_path("default")
        deadline = time.monotonic() + UP_TIMEOUT_S
        while not (path / "control.sock").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        pids = json.loads((path / "pids.json").read_text())
        assert all(str(path) in command_line(pid) for pid in pids)
        process.send_signal(number)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.communicate()
    assert not path.exists()
    assert not any(str(path) in command_line(pid) for pid in pids)
    assert state.exists()


def test_after_a_crash_the_next_command_cleans_up(kafka: KafkaSettings, state: Path) -> None:
    """SIGKILL of the lab takes its processes along; `lab down` removes the rest and says so."""
    process = subprocess.Popen(
        [*COMMAND, *up_arguments(kafka)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    path = lab_path("default")
    deadline = time.monotonic() + UP_TIMEOUT_S
    while not (path / "control.sock").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pids = json.loads((path / "pids.json").read_text())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert path.exists()
    assert "crashed" in lab_command("down")
    assert not any(str(path) in command_line(pid) for pid in pids)
    assert "no lab" in lab_command("down", code=3)
    assert state.exists()


def full_mesh(lab: Lab, settings: KafkaSettings) -> None:
    """Give every agent the list of its same-rail targets, as the skeleton job would."""
    producer = Producer({**settings.librdkafka(), "partitioner": "murmur2_random"})
    for host, agent_id in enumerate(lab.shape.agent_ids()):
        targets = tuple(
            PingTarget(
                src=a.endpoint_id,
                dst=b.endpoint_id,
                task_id="job1",
                origin=TargetOrigin.BASIC,
                flows=2,
            )
            for a in lab.shape.endpoints
            for b in lab.shape.endpoints
            if a.host == host != b.host and a.rail == b.rail
        )
        record = PingList(
            cluster=settings.cluster,
            agent_id=agent_id,
            version=1,
            updated_at=time.time_ns() // 1_000,
            phase=PingListPhase.PRELOAD,
            targets=targets,
        )
        value = Codec().encode(topics.PINGLIST, record)
        producer.produce(settings.topic(topics.PINGLIST.name), key=agent_id, value=value)
    assert producer.flush(UP_TIMEOUT_S) == 0


@pytest.mark.lab
def test_real_agents_probe_through_the_fabric(kafka: KafkaSettings, state: Path) -> None:
    """All pairs are answered, counters move, a cut is seen, killed agents return, none is left."""
    watched = (topics.PROBE_ROUND, topics.HEARTBEAT, topics.RNIC_COUNTERS)
    with Lab(LabConfig(settings=kafka, shape=SMALL)) as lab, Watch(kafka, watched) as watch:
        full_mesh(lab, kafka)
        pairs = {(f"job1-w{a}/r{r}", f"job1-w{1 - a}/r{r}") for a in (0, 1) for r in (0, 1)}
        wanted = {(*pair, flow) for pair in pairs for flow in (0, 1)}
        answered: set[tuple[str, str, int]] = set()

        def all_answered(seen: WatchedRecord) -> bool:
            if isinstance(seen.record, ProbeRound):
                answered.update(
                    (r.src, r.dst, r.flow)
                    for r in seen.record.results
                    if r.status is ProbeStatus.OK
                )
            return answered >= wanted

        assert watch.until(all_answered, 60, idle=lab.check), wanted - answered
        moved = watch.until(lambda s: isinstance(s.record, CounterBatch), 60, idle=lab.check)
        assert moved is not None
        assert {s.missing_reason for s in moved.record.samples} == {None}
        assert {s.counter_bits for s in moved.record.samples} == {64}

        link = "link:leaf:p0-0--rnic:h0/r0"
        lab.fault("link-cut", link)
        cut_at = lab.truth[-1].at_ns // 1_000

        def lost(seen: WatchedRecord) -> bool:
            return isinstance(seen.record, ProbeRound) and any(
                r.status is ProbeStatus.TIMEOUT
                and "job1-w0/r0" in (r.src, r.dst)
                and seen.record.started_at * 1_000 + r.sent_offset_ns > cut_at * 1_000
                for r in seen.record.results
            )

        assert watch.until(lost, 60, idle=lab.check) is not None
        assert [t.component_id for t in lab.heal(link)] == [link]

        beat = watch.until(lambda s: _beat(s, "agent-h1"), 60, idle=lab.check)
        assert beat is not None
        lab.fault("agent-kill", "agent-h1")
        with pytest.raises(FaultError, match="heal it first"):
            lab.fault("agent-stop", "agent-h1")
        assert lab.status()["agents"] == {"agent-h0": "running", "agent-h1": "killed"}
        lab.heal()
        again = watch.until(
            lambda s: _beat(s, "agent-h1") and s.record.incarnation != beat.record.incarnation,
            60,
            idle=lab.check,
        )
        assert again is not None
        lab.fault("agent-stop", "agent-h0")
        assert lab.status()["agents"]["agent-h0"] == "stopped"
        pids = json.loads((lab.path / "pids.json").read_text())
        path = lab.path
        stopped = lab.group.child("agent-h0").process
    # It goes on in order to end in order: nobody has to kill it.
    assert stopped.returncode == 0
    assert not any(str(path) in command_line(pid) for pid in pids)
    assert [t.kind for t in lab.truth if t.action == "inject"] == [
        "link-cut", "agent-kill", "agent-stop",
    ]  # fmt: skip
    assert state.exists()


def _beat(seen: WatchedRecord, agent_id: str) -> bool:
    return isinstance(seen.record, Heartbeat) and seen.record.agent_id == agent_id


def test_states_that_the_labs_agents_left_are_taken_back(kafka: KafkaSettings) -> None:
    """Only those whose latest record is of one of them; what others say stays."""

    def state(component: str, source: str) -> ComponentState:
        return ComponentState(
            cluster=kafka.cluster, state_id=f"{component}|port_state", component_id=component,
            attribute="port_state", changed_at=1, observed_at=1, source=source, text="active",
        )  # fmt: skip

    writer, name = LogWriter(kafka), kafka.topic(topics.COMPONENT_STATE.name)
    for one in (
        state("rnic:h0/r0", "agent-h0"),
        state("rnic:h1/r0", "agent-h1"),
        state("leaf:0", "collector"),
        state("rnic:h1/r0", "collector"),
        state("rnic:h2/r0", "collector"),
        state("rnic:h2/r0", "agent-h1"),
    ):
        value = Codec().encode(topics.COMPONENT_STATE, one)
        writer.write(name, key=one.state_id.encode(), value=value, timestamp_ms=None)
    writer.flush()
    agents = {"agent-h0", "agent-h1"}
    assert withdraw_states(kafka, agents) == 2
    assert withdraw_states(kafka, agents) == 0
    with Watch(kafka, (topics.COMPONENT_STATE,), from_start=True) as watch:
        left = {"leaf:0|port_state", "rnic:h1/r0|port_state"}
        latest(watch, lambda f: {key for _, key in f} == left)
