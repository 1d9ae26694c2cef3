"""A real agent is asked how it is: by its own client, by garbage, by many, and by nobody."""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ops.running.processes import Child, ProcessGroup
from probers.config.health import HealthAddress
from probers.health.client import ask
from schemas import topics
from schemas.enums import ProbeStatus
from schemas.kafka.connection import KafkaSettings
from tests.integration.agent_harness import WAIT_S, Agents, Watcher

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(sys.platform != "linux", reason="unix sockets of Linux, /proc"),
]


@pytest.fixture
def agents(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Agents]:
    """Return what starts agents; those that run are stopped at the end."""
    with ProcessGroup(tmp_path / "logs") as group:
        yield Agents(kafka, tmp_path, group)


@pytest.fixture
def address(tmp_path: Path) -> HealthAddress:
    """Return where agent a listens."""
    return HealthAddress(str(tmp_path / "a.sock"))


def start(agents: Agents, address: HealthAddress, host: str = "a") -> tuple[Child, Path]:
    """Start an agent that listens there."""
    config = agents.configure(host, health=f'"{address}"')
    return agents.start(host, config), config


def until(what: str, condition: Callable[[], bool]) -> None:
    """Wait for something."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def status(address: HealthAddress, path: str = "/readyz") -> int | None:
    """Return the status; None: nobody answers."""
    try:
        return ask(address, path, 2)[0]
    except OSError:
        return None


def client(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask as a container's probe does."""
    return subprocess.run(
        [sys.executable, "-m", "probers", "health", "--config", str(config), *arguments],
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip


def test_an_agent_is_ready_when_it_is_registered(agents: Agents, address: HealthAddress) -> None:
    """The client says so by its exit code; after the end nobody answers, and no file is left."""
    child, config = start(agents, address)
    until("it is ready", lambda: status(address) == 200)
    asked = client(config)
    assert (asked.returncode, asked.stderr) == (0, "")
    found = json.loads(asked.stdout)
    assert (found["status"], found["agent_id"], found["missing"]) == ("ready", "agent-a", [])
    child.process.terminate()
    assert child.process.wait(WAIT_S) == 0
    assert address.path is not None
    assert not os.path.exists(address.path)
    gone = client(config)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "no answer at unix:" in gone.stderr


def test_without_a_broker_it_lives_and_is_not_ready(
    agents: Agents, address: HealthAddress, tmp_path: Path
) -> None:
    """Nobody is to restart an agent because Kafka is away."""
    config = tmp_path / "lonely.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[agent]\nhost_id = "a"\n'
        f'health = "{address}"\n[[agent.rnic]]\nrail = 0\naddress = "127.0.0.1"\n'
    )
    agents.start("lonely", config)
    until("it answers", lambda: status(address) == 503)
    until(
        "it knows", lambda: "broker away" in json.loads(ask(address, "/readyz", 20)[1])["missing"]
    )
    assert client(config).returncode == 1
    assert client(config, "--live").returncode == 0


def test_a_stopped_agent_does_not_answer(agents: Agents, address: HealthAddress) -> None:
    """The answer comes from the loop that probes, so silence is the sign; later it tells."""
    child, config = start(agents, address)
    until("it is ready", lambda: status(address) == 200)
    child.process.send_signal(signal.SIGSTOP)
    try:
        assert client(config, "--live", "--timeout-s", "1").returncode == 1
    finally:
        child.process.send_signal(signal.SIGCONT)
    until("it is alive", lambda: status(address, "/healthz") == 200)
    assert json.loads(ask(address, "/healthz", 20)[1])["longest_turn_ms"] >= 500


def _slow(path: str, stop: threading.Event) -> None:
    """Send a request byte by byte, for ever, on many connections."""
    while not stop.is_set():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            try:
                one.settimeout(1)
                one.connect(path)
                for byte in b"GET /readyz HTTP/1.1\r\n" * 20:
                    one.send(bytes([byte]))
                    if stop.wait(0.01):
                        break
            except OSError:
                stop.wait(0.01)


def _garbage(path: str, stop: threading.Event) -> None:
    """Send random bytes as fast as the agent takes them."""
    while not stop.is_set():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            try:
                one.settimeout(1)
                one.connect(path)
                one.sendall(os.urandom(100_000))
            except OSError:
                stop.wait(0.001)


STORM_S = 8


def test_probing_goes_on_under_garbage_slow_clients_and_many(
    agents: Agents, address: HealthAddress
) -> None:
    """Every round is there and answered, who asks is answered, and memory stays."""
    watcher = Watcher(agents.settings, topics.PROBE_ROUND)
    agents.tell("agent-a", ("a/r0", "b/r0"))
    child, _ = start(agents, address)
    agents.start("b", agents.configure("b"))
    until("it is ready", lambda: status(address) == 200)
    watcher.until("it probes", lambda: len(watcher.of(topics.PROBE_ROUND)) >= 2)
    before = watcher.of(topics.PROBE_ROUND)[-1].round_seq
    rss_kb = resident_kb(child.process.pid)
    stop = threading.Event()
    begun_us = time.time_ns() // 1000
    assert address.path is not None
    hostile = [
        threading.Thread(target=what, args=(address.path, stop))
        for what in (_slow,) * 12 + (_garbage,) * 4
    ]
    for thread in hostile:
        thread.start()
    answered = 0
    try:
        end = time.monotonic() + STORM_S
        while time.monotonic() < end:
            answered += status(address) == 200
            time.sleep(0.2)
        ended_us = time.time_ns() // 1000
    finally:
        stop.set()
        for thread in hostile:
            thread.join()
    watcher.until(
        "the rounds of the storm",
        lambda: watcher.of(topics.PROBE_ROUND)[-1].round_seq >= before + 7,
    )
    rounds = [r for r in watcher.of(topics.PROBE_ROUND) if r.round_seq > before]
    watcher.close()
    results = [r for done in rounds for r in done.results]
    # A busy machine may miss a timeout now and then, or start a round late; a loop that is
    # held up misses all, or is late each time.
    assert sum(r.status is ProbeStatus.OK for r in results) >= 0.5 * len(results)
    starts = [r.started_at for r in rounds if begun_us <= r.started_at <= ended_us]
    assert len(starts) >= STORM_S / 2
    assert statistics.median(b - a for a, b in pairwise(starts)) < 1_500_000
    assert answered >= 1
    assert child.running
    assert resident_kb(child.process.pid) - rss_kb < 1_024


def resident_kb(pid: int) -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(pid)


def test_a_service_manager_hears_of_it(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READY, a watchdog that is fed, how it is, STOPPING: as systemd would get them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
        monkeypatch.setenv("WATCHDOG_USEC", "1500000")
        child = agents.start("a", agents.configure("a"))
        said: list[str] = []
        while said.count("WATCHDOG=1") < 3 or "STATUS=RUNNING" not in said:
            said.append(manager.recv(1_024).decode())
        child.process.terminate()
        while said[-1] != "STOPPING=1":
            said.append(manager.recv(1_024).decode())
    assert child.process.wait(WAIT_S) == 0
    assert said[0] == "READY=1"


def test_an_address_in_use_is_told_at_the_start(agents: Agents, address: HealthAddress) -> None:
    """Two agents at one address: the second would be taken for the first."""
    start(agents, address)
    until("the first is ready", lambda: status(address) == 200)
    second, _ = start(agents, address, "b")
    assert second.process.wait(WAIT_S) == 3
    assert "health at unix:" in second.log.read_text()
    until("the first still answers", lambda: status(address) == 200)
