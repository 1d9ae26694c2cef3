"""The embedded Kafka as a process: starts, survives, ends, and leaves nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ops.broker import announcement
from ops.broker.embedded import EmbeddedKafka
from ops.broker.errors import BrokerError
from ops.topics.admin import apply_topics
from schemas.kafka.connection import STATE_ENV, KafkaSettings, discovered_bootstrap
from schemas.topics import FAULT_EVENT
from tests import ROOT

pytestmark = pytest.mark.broker
DEADLINE_S = 60.0
COMMAND = "import typer; from ops.cli import broker; a = typer.Typer(); broker.register(a); a()"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fail the test if it does not come."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def exists(pid: int) -> bool:
    """Return whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def send(bootstrap: str, topic: str, value: bytes) -> None:
    """Produce one record and wait for the broker's word."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def read_first(bootstrap: str, topic: str) -> bytes | None:
    """Return the first record's value."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        value = message.value()
        return value if value is None else bytes(value)
    finally:
        consumer.close()


def test_life_of_a_temporary_broker(state_dir: Path) -> None:
    """It announces itself, keeps port and records over a crash, and leaves nothing behind."""
    with EmbeddedKafka() as kafka:
        bootstrap, folder, first_pid = kafka.bootstrap, kafka.data_dir, kafka.pid
        assert discovered_bootstrap() == bootstrap
        assert (announced := announcement.read()) is not None
        assert announced.data_dir == str(folder)
        assert announced.pid == os.getpid()
        assert first_pid is not None
        apply_topics(KafkaSettings(bootstrap=bootstrap))
        send(bootstrap, FAULT_EVENT.name, b"before the crash")

        kafka.kill()
        assert not kafka.running
        assert not exists(first_pid)
        assert kafka.restart() == bootstrap
        assert kafka.pid != first_pid
        assert read_first(bootstrap, FAULT_EVENT.name) == b"before the crash"
        last_pid = kafka.pid
        assert last_pid is not None
    assert not exists(last_pid)
    assert not folder.exists()
    assert discovered_bootstrap() is None
    assert list(state_dir.iterdir()) == []


def run_broker(state: Path, *arguments: str) -> tuple[subprocess.Popen[str], Mapping[str, str]]:
    """Start `broker run --json` and return the process and what it announced."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "broker", "run", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, STATE_ENV: str(state)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return process, json.loads(line)


def test_broker_run_keeps_its_data_when_told(state_dir: Path, tmp_path: Path) -> None:
    """With --data-dir, records survive SIGTERM and SIGKILL of the command; the JVM does not."""
    data = tmp_path / "data"
    for turn, how in enumerate((signal.SIGTERM, signal.SIGKILL)):
        process, found = run_broker(state_dir, "--data-dir", str(data))
        assert discovered_bootstrap() == found["bootstrap"]
        if turn == 0:
            apply_topics(KafkaSettings(bootstrap=found["bootstrap"]))
            send(found["bootstrap"], FAULT_EVENT.name, b"kept")
        assert read_first(found["bootstrap"], FAULT_EVENT.name) == b"kept"
        process.send_signal(how)
        _, errors = process.communicate(timeout=DEADLINE_S)
        if how is signal.SIGTERM:
            assert process.returncode == 0, errors
            assert errors.strip() == "stopped"
        wait_until(partial(refuses, found["bootstrap"]), "the JVM outlived its owner")
        wait_until(lambda: discovered_bootstrap() is None, "the announcement outlived its broker")
    assert (data / "logs" / "meta.properties").exists()


def refuses(address: str) -> bool:
    """Return whether nobody accepts connections there."""
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return True
    return False


def test_broker_that_cannot_start_says_why() -> None:
    """The end of Kafka's own log is in the message, and nothing is left over."""
    kafka = EmbeddedKafka(announce=False, settings={"num.io.threads": "none at all"})
    with pytest.raises(BrokerError, match=r"num\.io\.threads"):
        kafka.start()
    with pytest.raises(BrokerError, match="not started"):
        _ = kafka.data_dir


def test_port_that_is_taken_is_named() -> None:
    """A port of somebody else is refused before anything is started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} .* is taken"):
            EmbeddedKafka(announce=False, port=port).start()
