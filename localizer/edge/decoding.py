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
    try:
        name = (raw_bytes(message.key()) or b"").decode()
    except UnicodeDecodeError as error:
        reason = f"the key is no UTF-8: {error.reason}"
        raise _refused(settings, topic, message, reason) from error
    if isinstance(read, FlowTrace):
        # Of this cluster, and under its own key.
        return name, read
    record = _record(settings, codec, topic, message) if read is None else read
    if record is None:
        return name, None
    if record.cluster != settings.cluster:
        reason = f"cluster {record.cluster!r}, this is {settings.cluster!r}"
        raise _refused(settings, topic, message, reason)
    # Marks of progress stand in the anomalies under a key of their own.
    own = name if topic is topics.ANOMALY else getattr(record, topic.key_field)
    if own != name:
        # What is kept under another's key would replace it.
        reason = f"key {name!r} names another record than {own!r}"
        raise _refused(settings, topic, message, reason)
    return name, record


def _record(settings: KafkaSettings, codec: Codec, topic: Topic, message: Message) -> Any:
    """Return the record of a message, None for a tombstone."""
    value = raw_bytes(message.value())
    if value is None:
        if not topic.compacted:
            raise _refused(settings, topic, message, "a record of a log has no tombstone")
        return None
    try:
        return codec.decode(topic, value, arrival_ns=arrival_of(message.timestamp()))
    except DecodeError as error:
        raise _refused(settings, topic, message, error.reason) from error


def _refused(settings: KafkaSettings, topic: Topic, message: Message, reason: str) -> DecodeError:
    return DecodeError(
        reason,
        topic=settings.topic(topic.name),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
    )
