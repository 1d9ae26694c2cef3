"""The batch source alone, in this process: back-pressure, and checkpoints others made."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas import topics
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from schemas.units import HOUR_NS, MS_NS, SECOND_NS
from streams.config import WorkerConfig
from streams.core.metrics import Metrics
from streams.edge.consumer import BATCH, TIMEOUT_S, RoundConsumer
from streams.edge.engine import Engine
from streams.edge.lookback import LogReader
from streams.edge.publisher import Publisher
from streams.edge.session import Restorer
from streams.edge.source import MAX_WAITING, Source
from tests.integration.worker_harness import settings_of
from tests.unit.streams.worlds import World, round_datum

pytestmark = pytest.mark.broker

RECENT_S = int(time.time()) // 3600 * 3600 - 3600
LOG = EventLog("test")


def make_engine(
    settings: KafkaSettings, config: WorkerConfig, metrics: Metrics
) -> tuple[Engine, Callable[[], tuple[RoundConsumer, Publisher]]]:
    """Return an engine, and what connects it to Kafka."""
    codec = Codec()
    engine = Engine(settings, codec, LOG, metrics, config.commit_s)
    restorer = Restorer(settings, config.detection(), codec, LOG)

    def connect() -> tuple[RoundConsumer, Publisher]:
        consumer = RoundConsumer(config, restorer, engine, LOG, metrics)
        return consumer, Publisher(settings, session_timeout_s=config.session_timeout_s)

    return engine, connect


def make_source(settings: KafkaSettings) -> tuple[Source, Engine]:
    """Return a source whose announcements go nowhere, and its engine."""
    metrics = Metrics()
    engine, connect = make_engine(settings, WorkerConfig(), metrics)

    async def unheard(_number: int) -> None:
        return None

    return Source(connect, engine, unheard, LOG, metrics), engine


async def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_slow_agent_pauses_the_source_and_loses_nothing(kafka: KafkaSettings) -> None:
    """Nobody takes batches: the outbox stays small, the group stays; then all is processed."""
    settings = settings_of(kafka)
    messages = (MAX_WAITING + 6) * BATCH
    value = Codec().encode_datum(topics.PROBE_ROUND, round_datum([], RECENT_S * SECOND_NS))
    producer = Producer({**settings.librdkafka(), "linger.ms": 20})
    for _ in range(messages):
        producer.produce(settings.topic(topics.PROBE_ROUND.name), value=value, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0

    async def scenario() -> None:
        source, engine = make_source(settings)
        stopping = False
        task = asyncio.ensure_future(source.run(lambda: stopping))
        try:
            await until(lambda: len(source.outbox) >= MAX_WAITING)
            await asyncio.sleep(1.0)
            assert MAX_WAITING <= len(source.outbox) <= MAX_WAITING + 1
            assert engine.partitions()[0] == 0
            deadline = time.monotonic() + 60
            while engine.partitions().get(0) != messages:
                assert time.monotonic() < deadline
                await source.work(2**62)
                await asyncio.sleep(0.01)
        finally:
            stopping = True
            await task
            source.shut_down()

    asyncio.run(scenario())


def test_offset_of_a_foreign_tool_is_warmed_up_by_time(replay_kafka: KafkaSettings) -> None:
    """An offset committed without our metadata: the look-back before it is read by arrival.

    The agent's clock is an hour behind.
    """
    settings = settings_of(replay_kafka)
    codec = Codec()
    name = settings.topic(topics.PROBE_ROUND.name)
    producer = Producer(settings.librdkafka())
    for datum in World(targets=1, flows=1).rounds(400, RECENT_S):
        producer.produce(
            name, value=codec.encode_datum(topics.PROBE_ROUND, datum), partition=2,
            timestamp=datum["started_at"] // 1000 + HOUR_NS // MS_NS,
        )  # fmt: skip
    assert producer.flush(30) == 0
    tool = Consumer({**settings.librdkafka(), "group.id": settings.topic(WorkerConfig().group)})
    tool.commit(offsets=[TopicPartition(name, 2, 390)], asynchronous=False)
    (committed,) = tool.committed([TopicPartition(name, 2)], timeout=10)
    tool.close()
    restorer = Restorer(settings, WorkerConfig().detection(), codec, LOG)
    with LogReader(settings) as reader:
        session = restorer.restore(reader, 2, 1, (committed.offset, committed.metadata))
    assert session.next_offset == 390
    # Warm: it knows the time and what the open window holds, and re-read no more than needed.
    machine = session.machine
    latest_ns = (RECENT_S + 389) * SECOND_NS
    assert machine.clock.arrival_ns == latest_ns + HOUR_NS
    assert machine.agents.table["latest_ns"][machine.agents.table.row("agent-h0")] == latest_ns
    assert 0 < machine.lookback.offset < 390
    assert session.committed == -1


class WatchedConsumer:
    """A real consumer that notes which threads call it."""

    threads: ClassVar[set[int]] = set()
    calls: ClassVar[list[str]] = []

    def __init__(self, options: dict[str, Any], **more: Any) -> None:
        self._consumer = Consumer(options, **more)

    def __getattr__(self, name: str) -> Any:
        WatchedConsumer.threads.add(threading.get_ident())
        WatchedConsumer.calls.append(name)
        return getattr(self._consumer, name)


def test_one_thread_alone_touches_the_consumer(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits and log ends too: the client holds a lock while it waits in a callback.

    With a commit from the detecting thread, a rebalance that waits for that thread
    never ends. Once a worker stood still so after its broker was restarted.
    """
    monkeypatch.setattr("streams.edge.consumer.Consumer", WatchedConsumer)
    settings = settings_of(kafka)
    codec = Codec()
    producer = Producer(settings.librdkafka())
    for datum in World(targets=1, flows=1).rounds(300, RECENT_S):
        producer.produce(
            settings.topic(topics.PROBE_ROUND.name), partition=1,
            value=codec.encode_datum(topics.PROBE_ROUND, datum),
        )  # fmt: skip
    assert producer.flush(30) == 0

    async def scenario() -> None:
        source, engine = make_source(settings)
        stopping = False
        task = asyncio.ensure_future(source.run(lambda: stopping))
        deadline = time.monotonic() + 60
        try:
            while WatchedConsumer.calls.count("commit") < 2:
                assert time.monotonic() < deadline, engine.partitions()
                await source.work(2**62)
                await asyncio.sleep(0.01)
        finally:
            stopping = True
            await task
            source.shut_down()

    asyncio.run(scenario())
    assert "get_watermark_offsets" in WatchedConsumer.calls
    assert len(WatchedConsumer.threads - {threading.get_ident()}) == 1


def test_a_member_that_closes_takes_over_nothing_that_another_has_just_left(
    kafka: KafkaSettings,
) -> None:
    """Workers that end together: the partitions of one are assigned to the other as it closes.

    It asked then what was committed, which a client that closes is not told: ten seconds each time.
    """
    settings = settings_of(kafka)
    members: list[RoundConsumer] = []
    engines: list[Engine] = []
    for _ in range(2):
        engine, connect = make_engine(settings, WorkerConfig(session_timeout_s=6.0), Metrics())
        consumer, publisher = connect()
        engine.open(publisher, consumer.commit)
        members.append(consumer)
        engines.append(engine)
    first, second = members
    admin = AdminClient(settings.librdkafka())
    group = settings.topic(WorkerConfig().group)

    def assigned() -> list[int]:
        """Return how many partitions each member has, as the group says; empty while it changes."""
        told = admin.describe_consumer_groups([group])[group].result(timeout=10)
        stable = told.state is ConsumerGroupState.STABLE
        return [len(m.assignment.topic_partitions) for m in told.members] if stable else []

    deadline = time.monotonic() + 120
    settled_at = None
    # Also what tells a member that it keeps what it has: one that has not heard it does not
    # join again when the other leaves.
    while settled_at is None or time.monotonic() < settled_at + 1.0:
        assert time.monotonic() < deadline
        for member in members:
            member.poll()
        if settled_at is None and all(e.partitions() for e in engines) and len(assigned()) == 2:
            settled_at = time.monotonic()
    second.close()
    # The first is not asked meanwhile: what it is assigned waits for its next call.
    while len(found := assigned()) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    held = len(engines[0].partitions())
    began = time.monotonic()
    first.close()
    assert time.monotonic() - began < TIMEOUT_S / 2
    assert 0 < held < found[0]
    assert not engines[0].partitions()
    for engine in engines:
        engine.close()
