"""A record as Kafka holds it, whichever client brought it."""

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of a partition.

    `timestamp_ms` is milliseconds since the epoch, None where the broker has none.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
