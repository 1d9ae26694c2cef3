"""What a poison record carries into its dead-letter topic: its bytes, its origin, its error."""

from typing import Any, Final

from schemas.codec import DecodeError
from schemas.topics import DLQ_SUFFIX

# Names after Kafka Connect's context headers, which tools already show.
ORIGIN_PREFIX: Final = "__connect.errors."
# An error text is for people; a hostile record must not make it large.
MAX_ERROR_CHARS: Final = 512

Headers = list[tuple[str, bytes]]


def dead_letter_topic(topic: str) -> str:
    """Return the dead-letter topic of a (possibly prefixed) topic."""
    return topic + DLQ_SUFFIX


def original_headers(message: Any) -> Headers:
    """Return the headers of a client's message as they came; absent values become empty ones."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return [(k, v.encode() if isinstance(v, str) else v or b"") for k, v in pairs]


def dead_letter_headers(
    error: DecodeError, *, process: str, original: Headers | None = None
) -> Headers:
    """Return the headers of a dead letter: the original ones, then origin and error."""
    context = {
        "topic": error.topic,
        "partition": "" if error.partition is None else str(error.partition),
        "offset": "" if error.offset is None else str(error.offset),
        "connector.name": process,
        "exception.class.name": type(error).__name__,
        "exception.message": error.reason[:MAX_ERROR_CHARS],
    }
    return [
        *(original or []),
        *((ORIGIN_PREFIX + k, v.encode()) for k, v in context.items()),
    ]
