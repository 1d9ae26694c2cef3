"""Batches on a real broker: whole or not at all, and of one process at a time."""

import os

import pytest
from confluent_kafka import Consumer, TopicPartition

from schemas.kafka.clients import read_to_end
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import FatalProducerError
from schemas.kafka.options import reader_options
from schemas.kafka.transactions import Outgoing, RejectedError, Transactions
from schemas.process.eventlog import EventLog
from schemas.topics import MAX_MESSAGE_BYTES, SKELETON_TOPIC

pytestmark = pytest.mark.broker


def keys(kafka: KafkaSettings) -> list[bytes]:
    """Return the keys of the committed records."""
    name = kafka.topic(SKELETON_TOPIC.name)
    consumer = Consumer(reader_options(kafka))
    try:
        found = read_to_end(consumer, kafka, [TopicPartition(name, 0, 0)])
        return [key if isinstance(key := m.key(), bytes) else b"" for m in found]
    finally:
        consumer.close()


def test_a_rejected_record_is_named_and_the_next_writer_fences_the_last(
    kafka: KafkaSettings,
) -> None:
    """One record is too large for the topic: none is written, then all others are."""
    name, log = kafka.topic(SKELETON_TOPIC.name), EventLog("test")
    batch = [Outgoing(name, key, b"small", 1) for key in ("a", "b", "c")]
    batch[1] = batch[1]._replace(value=os.urandom(MAX_MESSAGE_BYTES + 1_000))
    first, second = (Transactions(kafka, "test", log) for _ in range(2))
    first.start()
    with pytest.raises(RejectedError) as told:
        first.write(batch)
    assert told.value.rejected.keys() == {1}
    assert keys(kafka) == []
    first.write([batch[0], batch[2]])
    second.start()
    with pytest.raises(FatalProducerError, match="not written"):
        first.write(batch[:1])
    second.write(batch[2:])
    assert keys(kafka) == [b"a", b"c", b"c"]
