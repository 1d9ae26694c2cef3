"""What is committed: nothing before its outputs are confirmed, and again what failed."""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition

from schemas import topics
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from streams.core.checkpoint import Checkpoint
from streams.core.feed import Feed, LogMessage
from streams.core.metrics import Metrics
from streams.edge.engine import Batch, Engine
from streams.edge.errors import SessionLostError
from streams.edge.publisher import Receipt
from streams.edge.session import Session
from tests.unit.streams.worlds import BEGIN, World, machine


@dataclass
class Broker:
    """Takes outputs as a publisher does, and confirms each topic's when a test says so.

    Whoever waits for a receipt has the outputs confirmed that were sent until then, anomalies
    first: topics answer in no order.
    """

    sent: dict[str, deque[tuple[Receipt, Any]]] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)
    current: Receipt = field(default_factory=Receipt)

    def send(self, topic: str, _value: bytes, /, **options: Any) -> None:
        """Queue a message."""
        self.current.open += 1
        self.sent.setdefault(topic, deque()).append((self.current, options.get("confirmed")))

    def send_all(self, topic: str, _keys: Any, values: Any, **options: Any) -> None:
        """Queue many, of which the last one is reported."""
        for _ in values[:-1]:
            self.send(topic, b"")
        self.send(topic, b"", confirmed=options["confirmed"])

    def confirm(self, topic: str) -> None:
        """Confirm the oldest message of a topic."""
        receipt, confirmed = self.sent[topic].popleft()
        offset = self.confirmed.get(topic, 0)
        self.confirmed[topic] = offset + 1
        receipt.open -= 1
        if confirmed is not None:
            confirmed(offset)

    def receipt(self) -> Receipt:
        """Return a receipt for what was sent since the last one."""
        receipt, self.current = self.current, Receipt()
        return receipt

    def wait(self, receipt: Receipt) -> None:
        """Confirm, and more than is waited for."""
        for topic in sorted(self.sent):
            while receipt.open and self.sent[topic]:
                self.confirm(topic)

    def abandon(self) -> None:
        """Do nothing."""


class Away(Broker):
    """Confirms nothing."""

    def wait(self, receipt: Receipt) -> None:
        """Give up."""
        raise SessionLostError(f"{receipt.open} timed out")


def still(partition: int, offset: int) -> Session:
    """Return the session of a partition at the end of its log."""
    held = machine()
    return Session(
        partition=partition, epoch=1, machine=held, feed=Feed(held, Codec()),
        settled=replace(BEGIN, offset=offset),
    )  # fmt: skip


def engine_of(publisher: Broker, commit: Any) -> Engine:
    """Return an engine with that publisher."""
    settings = KafkaSettings(bootstrap="127.0.0.1:1")
    engine = Engine(settings, Codec(), EventLog("worker"), Metrics(), commit_s=0)
    engine.open(cast(Any, publisher), commit)
    return engine


def test_a_failed_commit_is_made_again_by_the_clock() -> None:
    """Once when due, not again while all is well, again after a failure, of that partition."""
    asked: list[list[tuple[int, int]]] = []

    def commit(offsets: list[TopicPartition], wait: bool) -> None:
        assert not wait or offsets
        asked.append([(o.partition, o.offset) for o in offsets])

    engine = engine_of(Broker(), commit)
    engine.take_over([still(0, 7), still(3, 9)])
    assert asked == [[(0, 7), (3, 9)]]
    engine.tick({})
    engine.tick({})
    assert len(asked) == 1
    engine.commit_failed([3, 5])
    engine.tick({})
    engine.tick({})
    assert asked[1:] == [[(3, 9)]]


def test_nothing_is_committed_before_its_outputs_are_confirmed() -> None:
    """One batch may be on its way; what is committed says where its own outputs end.

    A restart reads what lies beyond these ends. Outputs of a later batch below them would be
    published twice.
    """
    committed: list[Checkpoint] = []

    def commit(offsets: list[TopicPartition], _wait: bool) -> None:
        (place,) = offsets
        found = Checkpoint.parse(place.offset, place.metadata)
        assert found is not None
        committed.append(found)

    codec, broker = Codec(), Broker()
    values = [codec.encode_datum(topics.PROBE_ROUND, d) for d in World(flows=2).rounds(200, 1_000)]
    engine = engine_of(broker, commit)
    engine.take_over([still(0, 0)])
    sent_by: dict[int, dict[str, int]] = {0: {}}

    def sent() -> dict[str, int]:
        waiting = {topic: len(queue) for topic, queue in broker.sent.items()}
        return {t: n + broker.confirmed.get(t, 0) for t, n in waiting.items()}

    lagging = 0
    for number, start in enumerate(range(0, len(values), 20)):
        messages = [LogMessage(v, start + n) for n, v in enumerate(values[start : start + 20])]
        engine.process(Batch(number, {0: 1}, {0: start}, {0: cast(Any, messages)}))
        end = start + len(messages)
        sent_by[end] = sent()
        if broker.sent.get("anomaly.v1"):
            # Of the batch that nobody waits for yet.
            broker.confirm("anomaly.v1")
        last = committed[-1]
        lagging += last.offset == start
        for topic, place in (
            ("probe.window.v1", last.window_offset),
            ("anomaly.v1", last.anomaly_offset),
        ):
            assert place == sent_by[last.offset].get(topic, 0)
            assert place <= broker.confirmed.get(topic, 0)
    assert lagging > 1
    engine.tick({})
    assert committed[-1].offset == len(values)
    assert committed[-1].window_offset == sent()["probe.window.v1"] > 0


def test_what_a_lost_partition_sent_is_on_its_way_no_more_when_it_is_let_go() -> None:
    """The same process may be given it again, and sends again what it does not find published."""
    committed: list[int] = []

    def commit(offsets: list[TopicPartition], _wait: bool) -> None:
        committed.extend(place.offset for place in offsets)

    codec, broker = Codec(), Broker()
    values = [codec.encode_datum(topics.PROBE_ROUND, d) for d in World(flows=2).rounds(200, 1_000)]
    engine = engine_of(broker, commit)
    engine.take_over([still(0, 0)])
    messages = [LogMessage(v, n) for n, v in enumerate(values)]
    engine.process(Batch(1, {0: 1}, {0: 0}, {0: cast(Any, messages)}))
    assert any(broker.sent.values())
    engine.release([0], commit=False)
    assert not any(broker.sent.values())
    assert committed == [0]


def test_a_handover_that_fails_leaves_no_mark() -> None:
    """It would keep the machine until the next session begins."""
    codec, broker = Codec(), Away()
    values = [codec.encode_datum(topics.PROBE_ROUND, d) for d in World(flows=2).rounds(200, 1_000)]
    engine = engine_of(broker, lambda _offsets, _wait: None)
    engine.take_over([still(0, 0)])
    messages = [LogMessage(v, n) for n, v in enumerate(values)]
    engine.process(Batch(1, {0: 1}, {0: 0}, {0: cast(Any, messages)}))
    with pytest.raises(SessionLostError):
        engine.release([0], commit=True)
    assert not any(marks for _, marks in engine._sent)
