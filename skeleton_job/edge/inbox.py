"""From a Kafka message to the core: decoded, checked, or refused with a reason."""

from typing import Any, Final

from confluent_kafka import Message

from schemas.bounds import arrival_of, bound_of, value_violation
from schemas.codec import Codec, DecodeError, OutOfBoundsError
from schemas.topics import (
    ENDPOINT,
    OVERLAY_FLOWS,
    RNIC_COUNTERS,
    SKELETON_TOPIC,
    TASK,
    Topic,
)
from skeleton_job.core import SkeletonCore
from skeleton_job.series.columns import counter_columns

STARTED_AT: Final = bound_of(RNIC_COUNTERS.name, "started_at")


def read(topic: Topic, message: Message, codec: Codec, *, cluster: str) -> tuple[str, Any]:
    """Return key and record of a message; the record None for a tombstone.

    Raises
    ------
    DecodeError
        If the bytes are no record of the topic, the key names another one, it is
        of another cluster, or a field is out of bounds.
    """
    key, value = message.key(), message.value()

    def poison(reason: str) -> DecodeError:
        return DecodeError(
            reason,
            topic=str(message.topic()),
            partition=message.partition(),
            offset=message.offset(),
        )

    try:
        name = key.decode() if isinstance(key, bytes) else str(key or "")
    except UnicodeDecodeError as error:
        raise poison(f"the key is no UTF-8: {error.reason}") from error
    if not name:
        raise poison("a record without a key")
    if value is None:
        return name, None
    raw = value if isinstance(value, bytes) else value.encode()
    arrival_ns = arrival_of(message.timestamp())
    place = {"partition": message.partition(), "offset": message.offset()}
    record: Any = None
    if topic is RNIC_COUNTERS:
        # Nearly all that comes, and nearly all of one shape.
        payload = codec.payload(topic, raw)
        record = None if payload is None else counter_columns(payload)
        found = record and value_violation(STARTED_AT, record.started_at, arrival_ns)
        if found:
            raise OutOfBoundsError(found, topic=topic.name, **place)
    if record is None:
        record = codec.decode(topic, raw, arrival_ns=arrival_ns, **place)
    if record.cluster != cluster:
        raise poison(f"cluster {record.cluster!r}, this is {cluster!r}")
    named = getattr(record, topic.key_field)
    if named != name:
        raise poison(f"key {name!r} names another record than {named!r}")
    return name, record


def hand_over(core: SkeletonCore, topic: Topic, name: str, record: Any) -> None:
    """Give a record that was read, or a tombstone, to the core."""
    if topic is TASK:
        core.apply_task(name, record)
    elif topic is ENDPOINT:
        core.apply_endpoint(name, record)
    elif topic is SKELETON_TOPIC:
        core.apply_own_skeleton(name, record)
    elif topic is OVERLAY_FLOWS:
        core.apply_flow_table(name, record)
    elif record is not None:
        core.observe_counters(record)
