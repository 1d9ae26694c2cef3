"""What former processes of the localizer have published, read at a start."""

from confluent_kafka import Consumer, TopicPartition

from schemas.avro import MAX_VALUE_BYTES
from schemas.bounds import arrival_of
from schemas.codec import Codec, DecodeError
from schemas.kafka.clients import partitions_of, read_to_end
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import reader_options
from schemas.records import FaultEvent
from schemas.topics import FAULT_EVENT


def published(settings: KafkaSettings, codec: Codec) -> tuple[list[FaultEvent], int]:
    """Return the transitions in `fault.event.v1`, and how many could not be decoded.

    Only committed transactions are read, each record to the end that the topic
    has when the reading begins.

    Raises
    ------
    KafkaException, BrokerError
        If the topic cannot be read.
    """
    name = settings.topic(FAULT_EVENT.name)
    options = reader_options(
        settings,
        defaults={"fetch.message.max.bytes": MAX_VALUE_BYTES},
        fixed={"isolation.level": "read_committed"},
    )
    consumer = Consumer(options)
    events: list[FaultEvent] = []
    undecodable = 0
    try:
        found = partitions_of(consumer, settings, [FAULT_EVENT])[name]
        for message in read_to_end(consumer, settings, [TopicPartition(name, p, 0) for p in found]):
            value = message.value()
            try:
                if isinstance(value, bytes):
                    arrival_ns = arrival_of(message.timestamp())
                    events.append(codec.decode(FAULT_EVENT, value, arrival_ns=arrival_ns))
            except DecodeError:
                undecodable += 1
    finally:
        consumer.close()
    return [e for e in events if e.cluster == settings.cluster], undecodable
