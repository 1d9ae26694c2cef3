"""What former processes of the localizer have published, read at a start."""

from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.avro import MAX_VALUE_BYTES
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.records import FaultEvent
from schemas.topics import FAULT_EVENT

BATCH: Final = 1000
POLL_S: Final = 0.2
METADATA_TIMEOUT_S: Final = 10.0


def published(settings: KafkaSettings, codec: Codec) -> tuple[list[FaultEvent], int]:
    """Return the transitions in `fault.event.v1`, and how many could not be decoded.

    Only committed transactions are read, each record to the end that the topic
    has when the reading begins.

    Raises
    ------
    KafkaException
        If the topic cannot be read.
    """
    name = settings.topic(FAULT_EVENT.name)
    consumer = Consumer(
        {
            "fetch.message.max.bytes": MAX_VALUE_BYTES,
            **settings.librdkafka(),
            "group.id": "localizer-history",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    events: list[FaultEvent] = []
    undecodable = 0
    try:
        found = consumer.list_topics(name, timeout=METADATA_TIMEOUT_S).topics[name]
        waiting = set(found.partitions)
        consumer.assign([TopicPartition(name, p, 0) for p in waiting])
        while waiting:
            for message in consumer.consume(BATCH, POLL_S):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        waiting.discard(message.partition())
                    elif error.fatal():
                        raise KafkaException(error)
                    continue
                value = message.value()
                try:
                    if isinstance(value, bytes):
                        events.append(codec.decode(FAULT_EVENT, value))
                except DecodeError:
                    undecodable += 1
    finally:
        consumer.close()
    return [e for e in events if e.cluster == settings.cluster], undecodable
