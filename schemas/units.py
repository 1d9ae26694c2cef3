"""Units of time in nanoseconds. Inside, times are whole nanoseconds; in records, microseconds."""

from typing import Final

US_NS: Final = 1_000
MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
HOUR_NS: Final = 3_600 * SECOND_NS
# Records say microseconds, Kafka's timestamps milliseconds.
US_PER_MS: Final = 1_000
US_PER_S: Final = 1_000_000


def us_to_ns(at_us: int) -> int:
    """Return a record's microseconds since the epoch in nanoseconds."""
    return at_us * US_NS


def ns_to_us(at_ns: int) -> int:
    """Return nanoseconds since the epoch in a record's microseconds, rounded down."""
    return at_ns // US_NS
