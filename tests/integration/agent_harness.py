"""Real agents on loopback against a real broker: started, told whom to probe, and watched."""

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ops.running.processes import Child, ProcessGroup
from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.enums import PingListPhase, TargetOrigin
from schemas.kafka.connection import KafkaSettings
from schemas.records import PingList, PingTarget
from schemas.topics import MAX_MESSAGE_BYTES, Topic

CLUSTER = "test-cluster"
CODEC = Codec()
WAIT_S = 120.0


class Watcher:
    """Reads topics from their beginning and keeps what came, decoded, by topic and key."""

    def __init__(self, settings: KafkaSettings, *wanted: Topic, dlq: bool = False) -> None:
        self._names = {
            settings.topic(t.dlq if dlq else t.name): (t.dlq if dlq else t.name) for t in wanted
        }
        self._consumer = Consumer(
            {
                **settings.librdkafka(),
                "group.id": "watcher",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        places: list[TopicPartition] = []
        for name in self._names:
            metadata = self._consumer.list_topics(name, 20)
            places.extend(TopicPartition(name, p, 0) for p in metadata.topics[name].partitions)
        self._consumer.assign(places)
        self.messages: dict[str, list[Message]] = {n: [] for n in self._names.values()}
        self.records: dict[str, list[tuple[str | None, Any]]] = {
            n: [] for n in self._names.values()
        }

    def of(self, topic: Topic, key: str | None = None) -> list[Any]:
        """Return the records (None: tombstones) that came so far, of one key if given."""
        return [r for k, r in self.records[topic.name] if key is None or k == key]

    def poll(self) -> None:
        """Take in what has come."""
        for message in self._consumer.consume(500, 0.1):
            if message.error():
                continue
            name = self._names[message.topic() or ""]
            self.messages[name].append(message)
            key, value = message.key(), message.value()
            record = None
            if value is not None and name in topics.BY_NAME:
                with contextlib.suppress(DecodeError):  # what tests put in themselves
                    record = CODEC.decode(topics.BY_NAME[name], value)
            self.records[name].append((None if key is None else key.decode(), record))

    def until(self, what: str, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Take in records until the condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            # A heartbeat is short, and says most of what went wrong.
            beats = [r for _, r in self.records.get(topics.HEARTBEAT.name, [])[-8:]]
            assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}; {beats}"
            self.poll()

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


class Agents:
    """Agents as child processes, each with a file of settings."""

    def __init__(self, kafka: KafkaSettings, folder: Path, group: ProcessGroup) -> None:
        self.settings = KafkaSettings(
            bootstrap=kafka.bootstrap, cluster=CLUSTER, topic_prefix=kafka.topic_prefix
        )
        self._folder = folder
        self._group = group
        self._producer = Producer(
            {
                **self.settings.librdkafka(),
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "message.max.bytes": 2 * MAX_MESSAGE_BYTES,
            }
        )

    def configure(
        self, host: str, *, rnics: int = 1, transport: str = "udp", **options: object
    ) -> Path:
        """Write the settings of `agent-<host>` with that many RNICs on loopback."""
        lines = [
            "[kafka]",
            f'"bootstrap.servers" = "{self.settings.bootstrap}"',
            f'"topic.prefix" = "{self.settings.topic_prefix}"',
            f'cluster = "{CLUSTER}"',
            "[agent]",
            f'id = "{options.pop("id", f"agent-{host}")}"',
            f'host_id = "{host}"',
            *(f"{key} = {value}" for key, value in options.items()),
        ]
        for rail in range(rnics):
            counters = self._folder / host / f"mlx5_{rail}" / "ports" / "1" / "counters"
            counters.mkdir(parents=True, exist_ok=True)
            (counters / "port_xmit_data").write_text("1000\n")
            (counters / "port_rcv_data").write_text("2000\n")
            lines += [
                "[[agent.rnic]]",
                f"rail = {rail}",
                'address = "127.0.0.1"',
                f'counters = "{counters}"',
                f'transport = "{transport}"',
            ]
        path = self._folder / f"{host}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(self, name: str, config: Path) -> Child:
        """Start an agent with those settings."""
        return self._group.start(
            name, [sys.executable, "-m", "probers", "--log-json", "--config", str(config)]
        )

    def start_skeleton_job(self) -> Child:
        """Start the job that writes lists."""
        return self._group.start(
            "skeleton",
            [
                *(sys.executable, "-m", "skeleton_job", "--log-json"),
                *("--config", str(self.configure("skeleton"))),
            ],
        )

    def tell(
        self, agent_id: str, *pairs: tuple[str, str], version: int = 1, cluster: str = CLUSTER,
        flows: int = 1,
    ) -> None:  # fmt: skip
        """Publish a ping list."""
        record = PingList(
            cluster=cluster,
            agent_id=agent_id,
            version=version,
            updated_at=time.time_ns() // 1000,
            phase=PingListPhase.PRELOAD,
            targets=tuple(
                PingTarget(src=s, dst=d, task_id="t", origin=TargetOrigin.BASIC, flows=flows)
                for s, d in pairs
            ),
        )
        self.put(topics.PINGLIST, agent_id.encode(), CODEC.encode(topics.PINGLIST, record))

    def put(self, topic: Topic, key: bytes | None, value: bytes | None) -> None:
        """Write bytes to a topic."""
        self._producer.produce(self.settings.topic(topic.name), key=key, value=value)
        assert self._producer.flush(30) == 0
