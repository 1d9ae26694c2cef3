"""The localizer as a process on a real broker: the core's verdicts, whatever happens to it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from localizer.edge.outbox import state_of
from localizer.edge.reader import LOG_INPUTS, STATE_INPUTS
from ops.log.watch import Watch, WatchedRecord
from ops.running.processes import Child, ProcessGroup
from schemas import topics
from schemas.codec import Codec
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import ORIGIN_PREFIX
from schemas.records import FaultEvent
from schemas.topics import MAX_MESSAGE_BYTES
from schemas.units import MS_NS
from tests.unit.localizer.simlab import CLUSTER, Record, SimLab
from tests.unit.schemas.valid import poison

pytestmark = pytest.mark.broker
# Until verdicts go on: six seconds until the broker knows that a process is gone, where it would
# take Kafka's own session 45. The rest is room for other tests on the same cores.
TAKE_OVER_S = 30.0
LINK = "link:leaf:p0-0--spine:0"
NAME = "localizer"


def incident() -> SimLab:
    """Return a lab that is well, has a link cut, is healed, loses an agent and gets it back."""
    lab = SimLab(seed=5)
    lab.run(12)
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(8)
    lab.effects.links.clear()
    lab.run(15)
    lab.effects.dead.add("agent-h2")
    lab.effects.deaf.add("agent-h2")
    lab.run(10)
    lab.effects.dead.clear()
    lab.effects.deaf.clear()
    lab.run(15)
    return lab


def slots(log: list[Record]) -> list[list[Record]]:
    """Return the log in seconds of event time; a late record stays where it stands."""
    found: dict[int, list[Record]] = {}
    newest = 0
    for record in log:
        newest = max(newest, record.timestamp_ms // 1000)
        found.setdefault(newest, []).append(record)
    return list(found.values())


def until(found: Callable[[], object], what: str, timeout_s: float = 120.0) -> None:
    """Wait until something is found."""
    deadline = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextmanager
def next_one(child: Child, event: str, timeout_s: float = 120.0) -> Iterator[None]:
    """Wait until a localizer logs an event once more; the time counts from the block's begin."""
    begin_s, before = time.monotonic(), len(child.events(f"localizer.{event}"))
    yield
    left_s = begin_s + timeout_s - time.monotonic()
    until(lambda: len(child.events(f"localizer.{event}")) > before, f"{child.name} {event}", left_s)


class Bench:
    """One localizer at a time on the topics of a test."""

    def __init__(self, kafka: KafkaSettings, folder: Path, group: ProcessGroup) -> None:
        self.settings = KafkaSettings(
            bootstrap=kafka.bootstrap, cluster=CLUSTER, topic_prefix=kafka.topic_prefix
        )
        self.group = group
        self._config = folder / "localizer.toml"
        self._config.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\ncluster = "{CLUSTER}"\n'
            f'"topic.prefix" = "{kafka.topic_prefix}"\n',
            encoding="utf-8",
        )
        self._codec = Codec()
        self._producer = Producer(
            {**self.settings.librdkafka(), "message.max.bytes": 2 * MAX_MESSAGE_BYTES}
        )

    def write(self, log: list[Record]) -> None:
        """Write records as a replay does: a second's facts, then its anomalies."""
        for slot in slots(log):
            self._write([r for r in slot if r.topic != topics.ANOMALY.name])
            self._write([r for r in slot if r.topic == topics.ANOMALY.name])

    def _write(self, log: list[Record]) -> None:
        for record in log:
            topic = topics.topic_named(record.topic)
            value = None if record.record is None else self._codec.encode(topic, record.record)
            self.write_raw(topic.name, record.key.encode(), value, record)
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def write_raw(self, topic: str, key: bytes, value: bytes | None, place: Record) -> None:
        """Write any bytes."""
        self._producer.produce(
            self.settings.topic(topic),
            key=key,
            value=value,
            partition=place.partition,
            timestamp=place.timestamp_ms,
        )

    def start(self, name: str = NAME) -> Child:
        """Start a localizer."""
        return self.group.start(
            name,
            [sys.executable, "-m", "localizer", "--config", str(self._config), "--log-json"],
        )

    def events(
        self, until: Callable[[list[WatchedRecord]], bool], timeout_s: float = 120
    ) -> list[WatchedRecord]:
        """Return the fault events once `until` holds of them."""
        found: list[WatchedRecord] = []
        with Watch(self.settings, [topics.FAULT_EVENT], from_start=True) as watch:
            deadline = time.monotonic() + timeout_s
            while not until(found):
                self.group.check()
                assert time.monotonic() < deadline, [s.record.summary for s in found]
                found += watch.poll(0.1)
        return found

    def last_states(self, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the latest record of each key of fault.state.v1, after a while for all to come.

        That is two seconds, and more on a busy machine, until they are as expected.
        """
        with Watch(self.settings, [topics.FAULT_STATE], from_start=True) as watch:
            begin = time.monotonic()
            states: dict[str, Any] = {}
            while (waited_s := time.monotonic() - begin) < 30 and (
                waited_s < 2 or not until(states)
            ):
                states.update({s.key: s.record for s in watch.poll(0.1)})
        return states


@pytest.fixture
def bench(replay_kafka: KafkaSettings, tmp_path: Path) -> Any:
    """Give a bench whose processes end with the test."""
    with ProcessGroup(tmp_path / "logs") as group:
        yield Bench(replay_kafka, tmp_path, group)


def test_the_process_says_what_the_core_says(bench: Bench) -> None:
    """Bytes in Kafka equal those of the pure core; headers are CloudEvents; states follow."""
    lab = incident()
    expected = lab.verdicts()
    assert [e.component_id for e in expected if e.state is FaultLifecycle.OPEN] == [
        LINK,
        "agent-h2",
    ]
    bench.write(lab.log)
    bench.start()
    found = bench.events(lambda seen: len(seen) >= len(expected))
    assert [s.record for s in found] == expected
    assert len({(s.record.fault_id, s.record.seq) for s in found}) == len(found)
    last = {e.fault_id: state_of(e) for e in expected}
    assert bench.last_states(lambda states: states == last) == last
    headers = first_headers(bench.settings)
    first = expected[0]
    assert headers["ce_id"] == f"{first.fault_id}/{first.seq}".encode()
    assert headers["ce_type"] == b"skeletonhunter.fault.opened.v1"
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_subject"] == first.fault_id.encode()


def first_headers(settings: KafkaSettings) -> dict[str, bytes]:
    """Return the headers of the first fault event."""
    return headers_at(settings, topics.FAULT_EVENT.name, 0)


def headers_at(settings: KafkaSettings, topic: str, offset: int) -> dict[str, bytes]:
    """Return the headers of a record of the first partition."""
    consumer = Consumer({**settings.librdkafka(), "group.id": "headers"})
    try:
        consumer.assign([TopicPartition(settings.topic(topic), 0, offset)])
        (message,) = consumer.consume(1, 20)
        pairs = message.headers()
        assert isinstance(pairs, list)
        return {k: v if isinstance(v, bytes) else str(v).encode() for k, v in pairs}
    finally:
        consumer.close()


def test_a_standby_takes_over_from_one_that_is_killed_hangs_or_stops(bench: Bench) -> None:
    """Verdicts go on, and are those of one core that was never interrupted.

    The one that is killed starts again as a standby, and so rebuilds; later it leads again. One
    that hangs and wakes writes nothing more, and ends.
    """
    lab = incident()
    expected = [transition(e) for e in lab.verdicts()]
    seconds = slots(lab.log)
    parts = [seconds[n * len(seconds) // 5 : (n + 1) * len(seconds) // 5] for n in range(5)]

    def write(part: list[list[Record]]) -> None:
        for second in part:
            bench.write(second)
            time.sleep(0.05)

    leader = bench.start("localizer-a")
    until(lambda: leader.events("localizer.leading"), "the first leads")
    standby = bench.start("localizer-b")
    until(lambda: standby.events("localizer.ready"), "the second is ready")
    assert standby.events("localizer.standby")
    write(parts[0])
    for part in parts[1:3]:
        leader.process.kill()
        leader.process.wait()
        with next_one(leader, "ready"), next_one(standby, "leading", TAKE_OVER_S):
            other = bench.start(leader.name)
            write(part)
        leader, standby = standby, other
    with next_one(standby, "leading", TAKE_OVER_S):
        leader.process.send_signal(signal.SIGSTOP)
        write(parts[3])
    leader.process.send_signal(signal.SIGCONT)
    assert leader.process.wait(20) == 3
    assert "has taken over" in leader.log_tail() or "not written" in leader.log_tail()
    assert "Traceback" not in leader.log_tail(500)
    with next_one(leader, "ready"):
        other = bench.start(leader.name)
    leader, standby = standby, other
    with next_one(standby, "leading", TAKE_OVER_S):
        assert bench.group.stop(leader.name) == 0
    write(parts[4])
    found = bench.events(lambda seen: ends(seen) >= 2)
    assert [transition(s.record) for s in found] == expected
    keys = {s.key for s in found}
    assert bench.last_states(lambda states: states.keys() == keys).keys() == keys


def ends(seen: list[WatchedRecord]) -> int:
    """Return how many faults are resolved."""
    return sum(s.record.state is FaultLifecycle.RESOLVED for s in seen)


def transition(event: FaultEvent) -> tuple[str, int, str, str, str]:
    """Return what must not be lost or repeated."""
    return (
        event.fault_id,
        event.seq,
        event.state.value,
        event.component_id,
        event.fault_kind,
    )


def test_poison_is_kept_and_nothing_stops(bench: Bench) -> None:
    """Garbage, truncation, a foreign cluster and a wrong key go to the dead letters."""
    lab = incident()
    expected = lab.verdicts()
    beat = next(r for r in lab.log if r.topic == topics.HEARTBEAT.name)
    good = Codec().encode(topics.HEARTBEAT, beat.record)
    bench.write(lab.log[:40])
    for key, value in (
        (b"agent-h0", b"garbage"),
        (b"agent-h0", good[:-1]),
        (b"agent-h0", os.urandom(MAX_MESSAGE_BYTES - 200)),
        (b"another-agent", good),
        (b"\xff\xfe", good),
    ):
        bench.write_raw(topics.HEARTBEAT.name, key, value, beat)
    bench.write(lab.log[40:])
    bench.start()
    found = bench.events(lambda seen: len(seen) >= len(expected))
    assert [s.record for s in found] == expected
    headers = headers_at(bench.settings, topics.HEARTBEAT.dlq, 0)
    assert headers_at(bench.settings, topics.HEARTBEAT.dlq, 4)
    assert headers[ORIGIN_PREFIX + "topic"].endswith(b"agent.heartbeat.v1")
    assert headers[ORIGIN_PREFIX + "connector.name"] == b"localizer"


def test_what_is_out_of_bounds_is_kept_and_nothing_stops(bench: Bench) -> None:
    """Each field of each input beyond its bounds, on both sides: the verdicts stay the same."""
    lab = incident()
    expected = lab.verdicts()
    bench.write(lab.log[:40])
    place = replace(lab.log[39], partition=0)
    written = {}
    for topic in (*STATE_INPUTS, *LOG_INPUTS):
        bad = list(poison(topic.name, CLUSTER, place.timestamp_ms * MS_NS))
        written[topic] = len(bad)
        for datum in bad:
            key = str(datum[topic.key_field]).encode()
            bench.write_raw(topic.name, key, Codec().encode_datum(topic, datum), place)
    bench.write(lab.log[40:])
    bench.start()
    found = bench.events(lambda seen: len(seen) >= len(expected))
    assert [s.record for s in found] == expected
    for topic, count in written.items():
        assert count > 5
        assert headers_at(bench.settings, topic.dlq, count - 1)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--confidence", "7"], 2, "0.5 to 0.999"),
        (["--bootstrap", "127.0.0.1:1"], 3, "no Kafka broker answers"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    kafka: KafkaSettings, options: list[str], code: int, words: str
) -> None:
    """Wrong settings end with 2, a missing broker with 3, both without a traceback."""
    command = [sys.executable, "-m", "localizer", "--bootstrap", kafka.bootstrap, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
