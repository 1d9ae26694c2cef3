"""Runs real workers against a real broker and says what their outputs must be.

The oracle is the pure core: the input partitions are read back and taken through
fresh machines. What a worker wrote, however often it was killed, must be that,
byte for byte and in order.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ops.log.positions import GroupPositions
from ops.running.processes import Child, ProcessGroup
from schemas import topics
from schemas.bounds import arrival_of
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.topics import Topic
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.machine import PartitionMachine
from streams.core.partition import Identity, RefusedRoundError
from streams.edge.lookback import LogReader
from tests.unit.streams.worlds import Datum, as_bytes

GROUP = "skeletonhunter-worker"
WINDOW_S, LATENESS_S = 5, 2
CONFIG = DetectionConfig(window_ns=WINDOW_S * SECOND_NS, lateness_ns=LATENESS_S * SECOND_NS)

Record = tuple[str, str, int, bytes]


def settings_of(kafka: KafkaSettings) -> KafkaSettings:
    """Return the settings with the cluster that the made rounds name."""
    return KafkaSettings(
        bootstrap=kafka.bootstrap, cluster="lab", topic_prefix=kafka.topic_prefix,
        options=kafka.options,
    )  # fmt: skip


class Harness:
    """Workers on one set of topics."""

    def __init__(self, kafka: KafkaSettings, folder: Path, group: ProcessGroup) -> None:
        self.settings = settings_of(kafka)
        self._group = group
        self._config = folder / "worker.toml"
        self._config.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\ncluster = "lab"\n'
            f'"topic.prefix" = "{kafka.topic_prefix}"\n'
            f"[worker]\nwindow_s = {WINDOW_S}\nallowed_lateness_s = {LATENESS_S}\n",
            encoding="utf-8",
        )
        self._codec = Codec()
        self._producers: dict[str, Producer] = {}
        self._admin = AdminClient(self.settings.librdkafka())
        self._positions = GroupPositions(self.settings)

    def start(self, name: str, *options: str) -> Child:
        """Start a worker."""
        argv = [sys.executable, "-m", "streams", "--config", str(self._config), "--log-json"]
        return self._group.start(name, [*argv, *options])

    def start_code(self, name: str, code: str, *options: str) -> Child:
        """Start a worker that runs `code` first, to break it from inside."""
        argv = ["--config", str(self._config), "--log-json", *options]
        program = f"import sys\n{code}\nfrom streams.__main__ import main\nsys.exit(main({argv!r}))"
        return self._group.start(name, [sys.executable, "-c", program])

    def stop(self, name: str) -> int:
        """End a worker by SIGTERM; return its exit code."""
        # A busy machine needs longer for the end than an operator would wait.
        return self._group.stop(name, timeout_s=30)

    def kill(self, name: str) -> None:
        """End a worker by SIGKILL."""
        self._group.kill(name)

    def events(self, child: Child, name: str) -> list[dict[str, Any]]:
        """Return the log events of that name."""
        found = []
        for line in child.log.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == name:
                    found.append(event)
        return found

    def wait_ready(self, child: Child, times: int = 1) -> None:
        """Wait until a worker has said so for the given time."""
        self.wait(
            lambda: len(self.events(child, "worker.ready")) >= times,
            f"{child.name} ready", child,
        )  # fmt: skip

    def wait(
        self, condition: Callable[[], bool], what: str, *children: Child, timeout_s: float = 120
    ) -> None:
        """Wait for a condition; fail when a worker dies or it takes too long."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            for child in children:
                assert child.running, child.log_tail()
            assert time.monotonic() < deadline, (
                what + "\n" + "\n".join(c.log_tail() for c in children)
            )
            time.sleep(0.05)

    def publish(
        self, rounds: list[Datum], compression: str = "none", *, arrival_ms: int | None = None
    ) -> None:
        """Publish rounds, and wait until the broker has them.

        Parameters
        ----------
        arrival_ms
            When they arrive, where topics keep what a producer says; None: each a second after its
            start.
        """
        producer = self._producer(compression)
        for datum in rounds:
            producer.produce(
                self.name(topics.PROBE_ROUND),
                key=datum["agent_id"],
                value=self._codec.encode_datum(topics.PROBE_ROUND, datum),
                timestamp=max(datum["started_at"] // 1000 + 1000, 0)
                if arrival_ms is None
                else arrival_ms,
            )
            producer.poll(0)
        assert producer.flush(30) == 0

    def publish_raw(self, value: bytes | None, partition: int, compression: str = "none") -> None:
        """Publish bytes as they are."""
        producer = self._producer(compression)
        producer.produce(
            self.name(topics.PROBE_ROUND), value=value, partition=partition, key="poison",
            headers=[("origin", b"test")],
        )  # fmt: skip
        assert producer.flush(30) == 0

    def _producer(self, compression: str) -> Producer:
        if compression not in self._producers:
            self._producers[compression] = Producer(
                {
                    **self.settings.librdkafka(), "partitioner": "murmur2_random",
                    "compression.type": compression, "linger.ms": 2,
                    "message.max.bytes": 2**27,
                }
            )  # fmt: skip
        return self._producers[compression]

    def partitions(self) -> range:
        """Return the partition numbers of the rounds."""
        name = self.name(topics.PROBE_ROUND)
        return range(len(self._admin.list_topics(name, timeout=10).topics[name].partitions))

    def name(self, topic: Topic) -> str:
        """Return the topic's name on the broker."""
        return self.settings.topic(topic.name)

    def committed(self) -> dict[int, int]:
        """Return the committed offsets of the workers' group."""
        name = self.name(topics.PROBE_ROUND)
        places = [(name, p) for p in self.partitions()]
        found = self._positions.committed(self.settings.topic(GROUP), places)
        return {place[1]: -1 if at is None else at for place, at in found.items()}

    def wait_processed(self, *children: Child, timeout_s: float = 120) -> None:
        """Wait until all rounds are processed and committed."""
        with LogReader(self.settings) as reader:
            ends = {
                p: reader.bounds(self.name(topics.PROBE_ROUND), p)[1] for p in self.partitions()
            }
        self.wait(
            lambda: all(self.committed()[p] >= end for p, end in ends.items()),
            f"all rounds committed: {ends}", *children, timeout_s=timeout_s,
        )  # fmt: skip

    def written(self) -> dict[int, dict[str, list[Record]]]:
        """Return the output records by partition and topic; marks of idleness left out."""
        out: dict[int, dict[str, list[Record]]] = {}
        with LogReader(self.settings) as reader:
            for partition in self.partitions():
                out[partition] = {
                    topic.name: self._read(reader, topic, partition)
                    for topic in (topics.PROBE_WINDOW, topics.ANOMALY)
                }
        return out

    def all_windows(self) -> list[int]:
        """Return the number of windows written, by partition."""
        with LogReader(self.settings) as reader:
            return [reader.bounds(self.name(topics.PROBE_WINDOW), p)[1] for p in self.partitions()]

    def idle_marks(self, partition: int) -> int:
        """Return the number of marks of idleness of a partition."""
        topic = topics.ANOMALY
        with LogReader(self.settings) as reader:
            _, end = reader.bounds(self.name(topic), partition)
            found = [
                self._codec.decode(topic, message.value() or b"")
                for message in reader.read(self.name(topic), partition, 0, end)
            ]
        return sum(record.state == "IDLE" for record in found)

    def _read(self, reader: LogReader, topic: Topic, partition: int) -> list[Record]:
        found = []
        _, end = reader.bounds(self.name(topic), partition)
        for message in reader.read(self.name(topic), partition, 0, end):
            value = message.value() or b""
            record = self._codec.decode(topic, value)
            if topic is topics.ANOMALY and record.state == "IDLE":
                continue
            key = (message.key() or b"").decode()
            # Where the broker sets the time of arrival, what the worker says is in the value.
            kept = topic.timestamp_type == topics.CREATE_TIME
            at_ms = int(message.timestamp()[1]) if kept else record.event_at // 1000
            found.append((topic.name, key, at_ms, value))
        return found

    def expected(self) -> dict[int, dict[str, list[Record]]]:
        """Return what the pure core makes of the input partitions."""
        out: dict[int, dict[str, list[Record]]] = {}
        with LogReader(self.settings) as reader:
            for partition in self.partitions():
                machine = PartitionMachine(CONFIG, Identity("lab", partition))
                _, end = reader.bounds(self.name(topics.PROBE_ROUND), partition)
                outputs = []
                for message in reader.read(self.name(topics.PROBE_ROUND), partition, 0, end):
                    with contextlib.suppress(DecodeError, RefusedRoundError):
                        datum = self._codec.decode_datum(
                            topics.PROBE_ROUND,
                            message.value() or b"",
                            arrival_ns=arrival_of(message.timestamp()),
                        )
                        outputs += machine.process(
                            datum, int(message.offset() or 0), arrival_of(message.timestamp())
                        )
                records = as_bytes(outputs)
                out[partition] = {
                    topic.name: [r for r in records if r[0] == topic.name]
                    for topic in (topics.PROBE_WINDOW, topics.ANOMALY)
                }
        return out

    def dead_letters(self) -> list[dict[str, bytes]]:
        """Return the headers of all dead letters of rounds, the value's length among them."""
        name = self.name(topics.PROBE_ROUND) + ".dlq"
        found = []
        with LogReader(self.settings) as reader:
            for partition in self._admin.list_topics(name, timeout=10).topics[name].partitions:
                for message in reader.read(name, partition, 0, reader.bounds(name, partition)[1]):
                    headers = message.headers() or []
                    assert isinstance(headers, list)
                    letter = {k: v for k, v in headers if isinstance(v, bytes)}
                    found.append(letter | {"bytes": str(len(message.value() or b"")).encode()})
        return found


def assert_exact(harness: Harness) -> int:
    """Compare what was written with what must be; return the number of windows."""
    written, expected = harness.written(), harness.expected()
    windows = 0
    for partition, by_topic in expected.items():
        for name, records in by_topic.items():
            ours = written[partition][name]
            assert len(ours) == len(records), (
                f"{name}[{partition}]: {len(ours)} records, expected {len(records)}"
            )
            assert ours == records, f"{name}[{partition}] differs"
        windows += len(by_topic[topics.PROBE_WINDOW.name])
    return windows
