"""`doctor` against a real broker."""

import json
import threading
import time
from dataclasses import replace

import pytest

from ops.doctor.collect import Collector, Groups
from ops.log.entry import Entry
from ops.topics.admin import TopicAdmin
from schemas.codec import Codec
from schemas.enums import AnomalyKind
from schemas.kafka.connection import KafkaSettings
from schemas.topics import ANOMALY, ENDPOINT, HEARTBEAT, PROBE_ROUND, SKELETON_TOPIC
from tests.integration.data_tools import cli, produce
from tests.unit.ops.recording_samples import START_MS, anomaly, round_entry
from tests.unit.ops.test_doctor import endpoint, heartbeat

pytestmark = pytest.mark.broker

GROUPS = Groups(worker="w", localizer="l")


def entry(key: str, value: bytes | None, partition: int = 0) -> Entry:
    """Return a record of now."""
    at_ms = time.time_ns() // 10**6
    return Entry(partition=partition, offset=0, timestamp_ms=at_ms, key=key.encode(), value=value)


def test_the_snapshot_is_what_the_topics_say(kafka: KafkaSettings) -> None:
    """State, tombstones, last rounds, progress, dead letters and garbage are all found."""
    codec = Codec()
    produce(
        kafka,
        ENDPOINT,
        [
            entry("c0/r0", codec.encode(ENDPOINT, endpoint("c0/r0"))),
            entry("c1/r0", codec.encode(ENDPOINT, endpoint("c1/r0"))),
            entry("c1/r0", None),
            entry("bad", b"garbage"),
        ],
    )
    old, new = heartbeat(), heartbeat(seq=6)
    produce(kafka, HEARTBEAT, [entry("agent-h0", codec.encode(HEARTBEAT, b)) for b in (old, new)])
    produce(kafka, PROBE_ROUND, [round_entry(2, at_ms=START_MS + i) for i in range(3)])
    produce(kafka, ANOMALY, [anomaly(AnomalyKind.PROGRESS), anomaly(AnomalyKind.LOSS)])
    produce(kafka, PROBE_ROUND.dlq, [entry("x", b"poison")])
    found = Collector(kafka, GROUPS, listen_ms=0).snapshot()
    assert found.unreachable is None
    assert (found.missing_topics, found.topic_differences) == ((), ())
    assert found.endpoints == {"c0/r0": endpoint("c0/r0")}
    assert found.heartbeats == {"agent-h0": new}
    # The last round's arrival, by the broker's clock.
    assert found.rounds_ms.keys() == {2}
    assert abs(found.rounds_ms[2] - time.time() * 1000) < 60_000
    assert found.progress_ms == {0: START_MS}
    assert found.worker_lag == dict.fromkeys(range(4))
    assert found.dead_letters == {"probe.round.v1.dlq": 1}
    assert found.undecodable == {"endpoint.v1": 1}


def test_lag_of_a_group(kafka: KafkaSettings) -> None:
    """Committed positions are compared with the ends of the partitions."""
    from confluent_kafka import Consumer, TopicPartition

    produce(kafka, PROBE_ROUND, [round_entry(1) for _ in range(5)])
    group = kafka.topic_prefix + "worker"
    consumer = Consumer({**kafka.librdkafka(), "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(kafka.topic(PROBE_ROUND.name), 1, 3)], asynchronous=False
    )
    consumer.close()
    found = Collector(kafka, Groups(worker=group, localizer="l"), listen_ms=0).snapshot()
    assert found.worker_lag == {0: None, 1: 2, 2: None, 3: None}


def test_live_heartbeats_tell_clocks_and_twins(kafka: KafkaSettings) -> None:
    """Two processes under one id, a minute ahead, are heard while the doctor listens."""
    stop = threading.Event()

    def beat() -> None:
        codec, number = Codec(), 0
        while not stop.wait(0.1):
            number += 1
            sent_at = time.time_ns() // 1000 + 60 * 10**6
            record = replace(heartbeat(), sent_at=sent_at, incarnation=number % 2)
            produce(kafka, HEARTBEAT, [entry("agent-h0", codec.encode(HEARTBEAT, record))])

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        found = Collector(kafka, GROUPS, listen_ms=5000).snapshot()
    finally:
        stop.set()
        thread.join()
    assert found.live["agent-h0"].incarnations == {0, 1}
    assert -60_000 <= found.live["agent-h0"].delay_ms < -50_000


def doctor(kafka: KafkaSettings, *arguments: str) -> tuple[int, dict[str, str], str]:
    """Run the command; return code, status by check, and standard error."""
    command = cli(kafka, "doctor", "--json", "--listen-s", "0", *arguments)
    out, err = command.communicate(timeout=60)
    checks = json.loads(out)["checks"]
    return command.returncode, {c["name"]: c["status"] for c in checks}, err


def test_exit_code_and_missing_topics(kafka: KafkaSettings) -> None:
    """Warnings alone are code 0; a missing topic is a failure, and the rest is still looked at."""
    code, checks, err = doctor(kafka, "--prefix", kafka.topic_prefix)
    assert (code, err) == (0, "")
    assert [name for name, status in checks.items() if status != "ok"] == ["agents alive"]
    TopicAdmin(kafka).delete([kafka.topic(SKELETON_TOPIC.name)])
    code, checks, _ = doctor(kafka, "--prefix", kafka.topic_prefix)
    assert code == 1
    assert checks["topics"] == "fail"
    assert checks["schemas"] == "ok"


def test_the_table_is_for_people(kafka: KafkaSettings) -> None:
    """Without --json every check is a line, and what agents say is not taken for markup."""
    record = endpoint("c0/r0", "[red]agent[/red]")
    produce(kafka, ENDPOINT, [entry("c0/r0", Codec().encode(ENDPOINT, record))])
    command = cli(kafka, "doctor", "--listen-s", "0", "--prefix", kafka.topic_prefix)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 1, err
    assert "[red]agent[/red]" in "".join(out.split())
    assert "18 checks: 1 failed" in out
