"""Batches that inflate beyond what a client takes: every reader goes on right behind them."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ops.log.watch import Watch
from probers.clock import SystemClock
from probers.lists.consumer import TopicReader
from probers.lists.inbox import Record
from schemas.kafka import clients
from schemas.kafka.clients import read_to_end
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import producer_options, reader_options
from schemas.process.eventlog import EventLog
from schemas.topics import ENDPOINT, PINGLIST
from tests.integration.data_tools import read_all

pytestmark = pytest.mark.broker

# librdkafka inflates a batch to 100 MB (`receive.message.max.bytes`).
BOMB_BYTES = 120_000_000
PARTITION = 1
WAIT_S = 120.0


def publish(settings: KafkaSettings, values: list[bytes]) -> None:
    """Write values as one compressed batch."""
    limits = {
        "compression.type": "zstd", "message.max.bytes": 2 * BOMB_BYTES,
        "batch.size": 2 * BOMB_BYTES, "linger.ms": 5_000,
    }  # fmt: skip
    producer = Producer(producer_options(settings, fixed=limits))
    for value in values:
        producer.produce(settings.topic(ENDPOINT.name), value, b"key", PARTITION)
    assert producer.flush(WAIT_S) == 0


@pytest.fixture(params=[1, 300])
def behind(kafka: KafkaSettings, request: pytest.FixtureRequest) -> int:
    """Write a record, a batch of so many records that nobody can read, and three more records."""
    count: int = request.param
    publish(kafka, [b"before"])
    publish(kafka, [bytes(BOMB_BYTES // count)] * count)
    for value in (b"behind", b"and", b"more"):
        publish(kafka, [value])
    return 1 + count


def test_readers_of_the_log_go_on_right_behind_it(kafka: KafkaSettings, behind: int) -> None:
    """The batch counts as one record, whose value says what is wrong with it."""
    (entries,) = read_all(kafka, [ENDPOINT]).values()
    assert [e.offset for e in entries] == [0, 1, behind, behind + 1, behind + 2]
    assert [e.value for e in entries if e.offset != 1] == [b"before", b"behind", b"and", b"more"]
    assert (entries[1].key, b"ecompression" in (entries[1].value or b"")) == (None, True)


def test_a_reader_to_the_end_goes_on(kafka: KafkaSettings, behind: int) -> None:
    """It reaches the end."""
    consumer = Consumer(reader_options(kafka))
    try:
        start = TopicPartition(kafka.topic(ENDPOINT.name), PARTITION, 0)
        offsets = [m.offset() for m in read_to_end(consumer, kafka, [start])]
    finally:
        consumer.close()
    assert offsets == [0, 1, behind, behind + 1, behind + 2]


def test_a_reader_that_waits_long_gets_it_once(
    kafka: KafkaSettings, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one call collects for three seconds, the client reports the batch several times."""
    monkeypatch.setattr(clients, "READ_POLL_S", 3.0)
    test_a_reader_to_the_end_goes_on(kafka, behind)


def test_a_watch_goes_on(kafka: KafkaSettings, behind: int) -> None:
    """All of these are undecodable for it."""
    assert behind
    deadline_s = time.monotonic() + WAIT_S
    with Watch(kafka, [ENDPOINT], from_start=True) as watch:
        while watch.undecodable < 5 and time.monotonic() < deadline_s:
            assert not list(watch.poll())
    assert watch.undecodable == 5


def test_an_agent_goes_on(kafka: KafkaSettings, behind: int) -> None:
    """The batch reaches it as one record, which it cannot decode."""
    reader = TopicReader(
        kafka, SystemClock(), (PINGLIST, ENDPOINT), client_id="a", log=EventLog("test")
    )
    records: list[Record] = []
    deadline_s = time.monotonic() + WAIT_S
    while not reader.read_to_end and time.monotonic() < deadline_s:
        records += reader.poll()
    reader.close()
    assert [r.offset for r in records] == [0, 1, behind, behind + 1, behind + 2]


def test_one_at_the_end_of_the_log(kafka: KafkaSettings) -> None:
    """What is written afterwards is read."""
    publish(kafka, [b"before"])
    publish(kafka, [bytes(BOMB_BYTES // 3)] * 3)
    (entries,) = read_all(kafka, [ENDPOINT]).values()
    assert [e.offset for e in entries] == [0, 1]
    publish(kafka, [b"behind"])
    (entries,) = read_all(kafka, [ENDPOINT]).values()
    assert [e.offset for e in entries] == [0, 1, 4]
