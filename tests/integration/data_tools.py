"""What the tests of tail, record, replay and doctor put into topics and get out of them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Producer

from ops.log.entry import Entry
from ops.log.reading import LogReader, Place
from schemas.kafka.connection import KafkaSettings
from schemas.topics import Topic


def produce(settings: KafkaSettings, topic: Topic | str, entries: Sequence[Entry]) -> None:
    """Write entries as they are; their offsets are Kafka's to choose."""
    name = topic if isinstance(topic, str) else topic.name
    producer = Producer({**settings.librdkafka(), "enable.idempotence": True, "linger.ms": 1})
    for entry in entries:
        producer.produce(
            settings.topic(name),
            key=entry.key,
            value=entry.value,
            partition=entry.partition,
            timestamp=entry.timestamp_ms or 0,
            headers=list(entry.headers),
        )
    assert producer.flush(60) == 0


def read_all(settings: KafkaSettings, topics: Sequence[Topic]) -> dict[Place, list[Entry]]:
    """Return everything the topics hold; names without prefix."""
    found: dict[Place, list[Entry]] = {}
    with LogReader(settings) as reader:
        ranges = reader.partitions([settings.topic(t.name) for t in topics])
        starts = {place: r.low for place, r in ranges.items()}
        ends = {place: r.high for place, r in ranges.items()}
        for (name, partition), entry in reader.read_to(starts, ends):
            place = (name.removeprefix(settings.topic_prefix), partition)
            found.setdefault(place, []).append(entry)
    return found


def cli(
    kafka: KafkaSettings, *arguments: str, stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start the command as its user would, with the groups that are under test."""
    script = (
        "import importlib, sys, typer\n"
        "from ops.cli import app as umbrella\n"
        "umbrella.GROUPS = ('tail', 'recording', 'import_csv', 'doctor')\n"
        "umbrella.main()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KAFKA_BOOTSTRAP": kafka.bootstrap},
    )


def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
