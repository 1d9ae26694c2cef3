"""The control socket, the loop under it, the folder around it."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ops.lab import folder as folder_module
from ops.lab.agents import AgentFiles, kafka_table
from ops.lab.control import (
    MAX_LINE_BYTES,
    ControlError,
    ControlServer,
    ControlUnavailableError,
    request,
)
from ops.lab.detach import arguments
from ops.lab.errors import LabUsageError
from ops.lab.events import EventLoop
from ops.lab.folder import LabFolder, LabFolderError, is_up, lab_path
from ops.lab.kind import lab_kind
from ops.lab.ports import NoPortsError, free_udp_ports
from ops.lab.shape import LabShape
from ops.lab.topology import Topology, task_of
from schemas.enums import ComponentKind
from schemas.kafka.connection import STATE_ENV, load_settings, settings_from_table
from schemas.process.eventlog import EventLog
from schemas.units import MS_NS


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Give a folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        yield Path(name)


class Served:
    """A control server that runs in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loop = EventLoop()
        self.server = ControlServer(path, self.loop, self.handle, EventLog("test"))
        self.stop = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        """Turn the loop until told to stop."""
        while not self.stop:
            self.loop.run_once(20 * MS_NS)

    def handle(self, command: Mapping[str, Any]) -> Any:
        """Echo, or fail in the way that is asked for."""
        match command["op"]:
            case "usage":
                raise LabUsageError("nonsense")
            case "refuse":
                raise ControlError("not now")
            case "bug":
                raise ZeroDivisionError
            case _:
                return dict(command)

    def close(self) -> None:
        """Stop the thread, release everything."""
        self.stop = True
        self.thread.join()
        self.server.close()
        self.loop.close()


@pytest.fixture
def served(short_dir: Path) -> Iterator[Served]:
    """Give a running server."""
    server = Served(short_dir / "control.sock")
    yield server
    server.close()


def test_a_command_is_answered(served: Served) -> None:
    """Request and result are JSON objects; the socket is private."""
    assert request(served.path, {"op": "echo", "x": 1}) == {"op": "echo", "x": 1}
    assert served.path.stat().st_mode & 0o777 == 0o600


def test_refusals_keep_their_kind(served: Served) -> None:
    """Nonsense and inability are told apart; a bug is told and does not end the server."""
    with pytest.raises(LabUsageError, match="nonsense"):
        request(served.path, {"op": "usage"})
    with pytest.raises(ControlError, match="not now"):
        request(served.path, {"op": "refuse"})
    with pytest.raises(ControlError, match="ZeroDivisionError"):
        request(served.path, {"op": "bug"})
    assert request(served.path, {"op": "echo"}) == {"op": "echo"}


@pytest.mark.parametrize(
    "line", [b"\n", b"no json\n", b"[1]\n", b"\xff\xfe\n", b"{" * 9_000 + b"\n"]
)
def test_garbage_is_refused(served: Served, line: bytes) -> None:
    """What is no JSON object gets a refusal; the next client is served."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(served.path))
        client.sendall(line)
        client.settimeout(30)
        assert b'"ok": false' in client.recv(65_536)
    assert request(served.path, {"op": "echo"}) == {"op": "echo"}


def test_an_endless_line_is_hung_up_on(served: Served) -> None:
    """A client cannot make the server hold more than a bounded line."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(served.path))
        client.settimeout(30)
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(MAX_LINE_BYTES // 65_536 + 10):
                client.sendall(b"x" * 65_536)
        with suppress(ConnectionResetError):
            assert client.recv(10) == b""
    assert request(served.path, {"op": "echo"}) == {"op": "echo"}


def test_a_silent_client_holds_nobody_up(served: Served) -> None:
    """One that connects and says nothing, or half a line, does not block the others."""
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
        silent.connect(str(served.path))
        half.connect(str(served.path))
        half.sendall(b'{"op": ')
        assert request(served.path, {"op": "echo"}) == {"op": "echo"}


def test_nobody_there_is_said_so(short_dir: Path) -> None:
    """A missing socket is an error of its own, since it means that the lab is not up."""
    with pytest.raises(ControlUnavailableError):
        request(short_dir / "control.sock", {"op": "status"})


def test_a_path_too_long_for_a_socket_is_named(short_dir: Path) -> None:
    """The kernel's limit is told together with what to do."""
    with pytest.raises(ControlError, match="SKELETONHUNTER_STATE_DIR"):
        request(short_dir / ("x" * 120), {"op": "status"})


def test_timers_run_in_order_of_time_and_never_early() -> None:
    """Whatever the order of asking; equal times in the order of asking; none before its time."""
    loop = EventLoop()
    begin = loop.now_ns()
    seen: list[tuple[int, int]] = []
    for delay in (700_000, 300_000, 2_500_000, 300_000, 1_200_000):
        loop.call_at(begin + delay, lambda d=delay: seen.append((d, loop.now_ns() - begin)))  # type: ignore[misc]
    while len(seen) < 5:
        loop.run_once(10 * MS_NS)
    loop.close()
    assert [d for d, _ in seen] == [300_000, 300_000, 700_000, 1_200_000, 2_500_000]
    assert all(at >= due for due, at in seen)


@pytest.fixture
def state(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the state folder a fresh one."""
    monkeypatch.setenv(STATE_ENV, str(short_dir))
    return short_dir


def test_a_lab_has_its_folder_alone(state: Path) -> None:
    """A second owner is refused with the way out; after release the folder is gone."""
    first = LabFolder.acquire("one")
    assert first.path == state / "lab" / "one"
    assert first.path.stat().st_mode & 0o777 == 0o700
    assert is_up(first.path)
    with pytest.raises(LabFolderError, match="lab down"):
        LabFolder.acquire("one")
    first.release()
    assert not first.path.exists()
    assert not is_up(first.path)
    LabFolder.acquire("one").release()


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "a" * 32, "a b", "a\n"])
def test_names_that_are_no_folder_are_refused(name: str) -> None:
    """A name never leaves the state folder."""
    with pytest.raises(LabFolderError):
        lab_path(name)


def test_what_a_crashed_lab_left_is_removed(state: Path) -> None:
    """Files go, and processes that name the folder; processes that do not name it stay."""
    path = lab_path("crashed")
    path.mkdir(parents=True)
    (path / "sys").mkdir()
    (path / "truth.jsonl").write_text("{}\n")
    sleeper = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    ours = subprocess.Popen([*sleeper, str(path)], stdout=subprocess.PIPE)
    foreign = subprocess.Popen(sleeper, stdout=subprocess.DEVNULL)
    try:
        # Before it runs, its command line is still ours.
        assert ours.stdout is not None
        with ours.stdout as said:
            assert said.readline() == b"\n"
        (path / "pids.json").write_text(f"[{ours.pid}, {foreign.pid}, 999999999]")
        folder = LabFolder.acquire("crashed")
        assert [p.name for p in path.iterdir()] == ["lock"]
        assert ours.wait(30) != 0
        assert foreign.poll() is None
        folder.release()
    finally:
        for process in (ours, foreign):
            process.kill()
            process.wait()
    assert state.exists()


def test_the_lock_ends_with_its_owner(state: Path) -> None:
    """After SIGKILL of the owner the lab is not up, and its folder can be had."""
    code = (
        "from ops.lab.folder import LabFolder; import sys\n"
        "LabFolder.acquire('k'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        assert is_up(lab_path("k"))
        owner.kill()
    assert not is_up(lab_path("k"))
    LabFolder.acquire("k").release()
    assert not (state / "lab" / "k").exists()


def test_unreadable_notes_of_a_lab_are_no_notes(state: Path) -> None:
    """A half-written or foreign lab.json tells nothing, and fails nothing."""
    folder = LabFolder.acquire("n")
    for text in ("", "{", "[1]"):
        (folder.path / "lab.json").write_text(text)
        assert folder_module.info(folder.path) == {}
    folder.write("lab.json", {"pid": os.getpid()})
    assert folder_module.info(folder.path) == {"pid": os.getpid()}
    folder.release()
    assert state.exists()


def test_free_ports_are_distinct_and_free() -> None:
    """Each can be bound; taken ones are not given."""
    rng = random.Random(4)
    first = free_udp_ports(20, rng)
    assert len(set(first)) == 20
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", first[0]))
        again = free_udp_ports(20, random.Random(4))
    assert first[0] not in again
    with pytest.raises(NoPortsError):
        free_udp_ports(20_000)


def test_topology_names_parents_and_ends() -> None:
    """Every link's ends and every parent are components; addresses are those of the sockets."""
    shape = LabShape()
    addresses = {node: f"127.0.0.1:{i}" for i, node in enumerate(shape.node_ids(), 1000)}
    found = {
        c.component_id: c
        for c in Topology(shape, cluster="c", addresses=addresses).components(updated_at=7)
    }
    assert len(found) == 4 * 3 + 16 * 2 + 6 + 24
    for c in found.values():
        assert {c.a, c.b, c.parent} - {None} <= found.keys()
    assert found["rnic:h0/r1"].parent == "host:h0"
    assert found["job1-w0/r1"].parent == "rnic:h0/r1"
    assert found["agent-h0"].parent == "host:h0"
    assert found["spine:1"].tier == 1
    assert found["leaf:p1-0"].addresses == (addresses["leaf:p1-0"],)
    link = found["link:leaf:p0-0--spine:1"]
    assert (link.kind, link.a, link.b) == (ComponentKind.LINK, "leaf:p0-0", "spine:1")


def test_the_task_lists_every_endpoint_with_its_agent() -> None:
    """The skeleton job learns from it who probes for whom."""
    task = task_of(LabShape(), cluster="c", submitted_at=5)
    assert (task.task_id, len(task.endpoints), task.ended_at) == ("job1", 16, None)
    assert (task.endpoints[5].agent_id, task.endpoints[5].host_id) == ("agent-h1", "host:h1")


def test_agents_get_back_the_kafka_settings(short_dir: Path) -> None:
    """The written [kafka] table reads as the settings it came from; the file is private."""
    settings = settings_from_table(
        "127.0.0.1:9",
        {
            "cluster": 'odd "name"',
            "topic.prefix": "p.",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "a\\b",
        },
    )
    shape = LabShape()
    ports = {e.endpoint_id: 20_000 + i for i, e in enumerate(shape.endpoints)}
    gateways = dict.fromkeys(shape.vswitch_ids(), "127.0.0.1:5")
    files = AgentFiles(
        short_dir,
        shape,
        settings,
        rnic=lambda e: lab_kind("loopback").rnic(e, short_dir, ports, gateways),
        options={"flows": 2},
    )
    files.write()
    path = files.path("agent-h1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_settings(path) == settings
    agent = tomllib.loads(path.read_text())["agent"]
    assert (agent["id"], agent["host_id"], agent["container_id"]) == (
        "agent-h1", "host:h1", "job1-w1",
    )  # fmt: skip
    assert (agent["flows"], agent["timeout_ms"], agent["task_id"]) == (2, 400, "job1")
    assert [r["port"] for r in agent["rnic"]] == [20_004, 20_005, 20_006, 20_007]
    assert agent["rnic"][2]["gateway"] == "127.0.0.1:5"
    assert agent["rnic"][2]["counters"].endswith("sys/h1/mlx5_2/ports/1/counters")
    assert "registry" not in str(kafka_table(settings))


def test_a_detached_lab_gets_the_same_options() -> None:
    """Flags without value stand alone, those not given are left out."""
    command = arguments("n", {"--hosts": 8, "--stages": None, "--no-agents": True, "--x": False})
    assert command[3:] == ["lab", "up", "--name", "n", "--hosts", "8", "--no-agents"]
