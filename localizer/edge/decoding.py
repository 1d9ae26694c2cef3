"""A message of an input as its key and its record; what cannot be used is a dead letter."""

from typing import Any

from confluent_kafka import Message

from localizer.edge.batches import raw_bytes
from localizer.network.traces import FlowTrace
from schemas import topics
from schemas.bounds import arrival_of
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.topics import Topic


def decoded(
    settings: KafkaSettings, codec: Codec, topic: Topic, message: Message, read: Any = None
) -> tuple[str, Any]:
    """Return key and record of a message, the record None for a tombstone.

    Parameters
    ----------
    read
        The record, where it has been read, of a trace what is kept of it; else None.

    Raises
    ------
    DecodeError
        If it cannot be used.
    """

    def refused(reason: str) -> DecodeError:
        return DecodeError(
            reason,
            topic=settings.topic(topic.name),
            partition=int(message.partition() or 0),
            offset=int(message.offset() or 0),
        )

    value = raw_bytes(message.value())
    try:
        name = (raw_bytes(message.key()) or b"").decode()
    except UnicodeDecodeError as error:
        raise refused(f"the key is no UTF-8: {error.reason}") from error
    if isinstance(read, FlowTrace):
        # Of this cluster, and under its own key.
        return name, read
    if value is None:
        if not topic.compacted:
            raise refused("a record of a log has no tombstone")
        return name, None
    record = read
    if record is None:
        try:
            record = codec.decode(topic, value, arrival_ns=arrival_of(message.timestamp()))
        except DecodeError as error:
            raise refused(error.reason) from error
    if record.cluster != settings.cluster:
        raise refused(f"cluster {record.cluster!r}, this is {settings.cluster!r}")
    # Marks of progress stand in the anomalies under a key of their own.
    own = name if topic is topics.ANOMALY else getattr(record, topic.key_field)
    if own != name:
        # What is kept under another's key would replace it.
        raise refused(f"key {name!r} names another record than {own!r}")
    return name, record
