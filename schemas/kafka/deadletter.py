"""What a poison record carries into its dead-letter topic: its bytes, its origin, its error."""

from dataclasses import dataclass
from typing import Any, Final

from schemas.codec import DecodeError
from schemas.topics import DLQ_MAX_MESSAGE_BYTES, DLQ_SUFFIX

# Names after Kafka Connect's context headers, which tools already show.
ORIGIN_PREFIX: Final = "__connect.errors."
# Number of bytes of the value, in a dead letter that holds its beginning only.
WHOLE_BYTES_HEADER: Final = ORIGIN_PREFIX + "value.bytes"
# An error text is for people; a hostile record must not make it large.
MAX_ERROR_CHARS: Final = 512
# How much of a value, a key and original headers is kept where the whole does not fit.
KEPT_BYTES: Final = 64 * 2**10
# Of a message on the wire beside key, value and headers: its batch, its lengths and offsets.
FRAME_BYTES: Final = 1024
HEADER_FRAME_BYTES: Final = 10
MAX_DEAD_LETTER_BYTES: Final = DLQ_MAX_MESSAGE_BYTES - FRAME_BYTES

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message for a dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def dead_letter_topic(topic: str) -> str:
    """Return the dead-letter topic of a (possibly prefixed) topic."""
    return topic + DLQ_SUFFIX


def dead_letter(
    error: DecodeError,
    *,
    process: str,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    max_bytes: int = MAX_DEAD_LETTER_BYTES,
) -> DeadLetter:
    """Return the dead letter of a record; the record by reference where it is too large.

    A compressed message may be far larger than its topic's limit. By reference: the headers say
    where it is and how large, and 64 KiB of it are kept.

    Parameters
    ----------
    process : who could not use the record
    key, value, headers : the record's own
    max_bytes : limit of key, value and headers together
    """
    origin = _origin_headers(error, process)
    letter = DeadLetter(key=key, value=value, headers=[*headers, *origin])
    if _size(letter) <= max_bytes:
        return letter
    fits = _size(DeadLetter(key=None, value=None, headers=headers)) <= KEPT_BYTES
    return DeadLetter(
        key=None if key is None else key[:KEPT_BYTES],
        value=None if value is None else value[:KEPT_BYTES],
        headers=[
            *(headers if fits else []),
            *origin,
            (WHOLE_BYTES_HEADER, str(len(value or b"")).encode()),
        ],
    )


def dead_letter_of(error: DecodeError, message: Any, *, process: str) -> DeadLetter:
    """Return the dead letter of a client's message."""
    return dead_letter(
        error,
        process=process,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=_original_headers(message),
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _original_headers(message: Any) -> Headers:
    """Return the headers of a client's message as they came; absent values become empty ones."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return [(name, _bytes(value) or b"") for name, value in pairs]


def _origin_headers(error: DecodeError, process: str) -> Headers:
    context = {
        "topic": error.topic,
        "partition": "" if error.partition is None else str(error.partition),
        "offset": "" if error.offset is None else str(error.offset),
        "connector.name": process,
        "exception.class.name": type(error).__name__,
        "exception.message": error.reason[:MAX_ERROR_CHARS],
    }
    return [(ORIGIN_PREFIX + name, text.encode()) for name, text in context.items()]


def _size(letter: DeadLetter) -> int:
    headers = sum(
        len(name.encode()) + len(value) + HEADER_FRAME_BYTES for name, value in letter.headers
    )
    return len(letter.key or b"") + len(letter.value or b"") + headers
