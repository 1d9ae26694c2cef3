"""Numbers and texts as Avro writes them, one at a time: pieces of records put together as bytes."""

from functools import lru_cache
from typing import Final

# The names of an agent's 5-tuples are those of few endpoints, and stand together.
RECENT: Final = 1_024


def number_bytes(value: int) -> bytes:
    """Return the number, 0 or more, as Avro writes it.

    >>> number_bytes(150).hex()
    'ac02'
    """
    raw, out = 2 * value, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


@lru_cache(RECENT)
def known_number_bytes(value: int) -> bytes:
    """Return the same, of a number that comes again and again."""
    return number_bytes(value)


@lru_cache(RECENT)
def text_bytes(text: str) -> bytes:
    """Return the text as Avro writes it.

    >>> text_bytes("ab").hex()
    '046162'
    """
    raw = text.encode()
    return number_bytes(len(raw)) + raw
