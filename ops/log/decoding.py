"""A record of a topic, decoded, with the place at which it stood: what readers of topics fold."""

from dataclasses import dataclass
from typing import Any, Final

from ops.log.entry import Entry
from schemas.codec import Codec, DecodeError
from schemas.enums import AnomalyKind
from schemas.topics import PROBE_ROUND, RNIC_COUNTERS, Topic

# Most of all records, of which readers of states want no more than that they came, and when.
NOT_DECODED: Final = (PROBE_ROUND, RNIC_COUNTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """A record of a topic.

    Attributes
    ----------
    topic, partition, offset
        Where it stood.
    timestamp_ms
        Its Kafka timestamp, milliseconds since the epoch; None where the broker has none.
    key
        Its key as text.
    record
        The decoded value; None for a tombstone, for what was refused, and in topics that are
        not decoded.
    refused
        Why it could not be used; None: it could.
    """

    topic: Topic
    partition: int
    offset: int
    timestamp_ms: int | None
    key: str
    record: Any | None = None
    refused: str | None = None

    @property
    def tombstone(self) -> bool:
        """Whether it says that its key is gone."""
        return self.record is None and self.refused is None and self.topic not in NOT_DECODED


def decode(topic: Topic, entry: Entry, codec: Codec) -> SeenRecord:
    """Return the record of an entry; what cannot be decoded says why.

    A record with the key of another is refused as everywhere: what it says must not pass for
    another's state. Event times are not held against the record's arrival: whoever looks at agents
    wants to see those whose clocks are ahead.
    """
    key = (entry.key or b"").decode(errors="backslashreplace")
    record: Any | None = None
    refused: str | None = None
    if entry.value is not None and topic not in NOT_DECODED:
        try:
            record = codec.decode(
                topic, entry.value, partition=entry.partition, offset=entry.offset
            )
        except DecodeError as error:
            refused = error.reason
        else:
            own = getattr(record, topic.key_field)
            if own != key and getattr(record, "kind", None) is not AnomalyKind.PROGRESS:
                record, refused = None, f"key {key!r} is not its {topic.key} {own!r}"
    return SeenRecord(
        topic=topic,
        partition=entry.partition,
        offset=entry.offset,
        timestamp_ms=entry.timestamp_ms,
        key=key,
        record=record,
        refused=refused,
    )
