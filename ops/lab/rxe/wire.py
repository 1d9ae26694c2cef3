"""Lines of JSON over the serial port that joins host and guest; whole lines only. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

# The longest is a namespace's routes: some 10 KB.
MAX_LINE_BYTES: Final = 1 << 18


class LineError(ValueError):
    """What came is no line of this protocol."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


class Lines:
    """Puts what comes in pieces together again."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are whole now.

        Raises
        ------
        LineError
            If one is too long, or no JSON object.
        """
        self._received += data
        while b"\n" in self._received:
            line, _, rest = bytes(self._received).partition(b"\n")
            self._received = bytearray(rest)
            yield _message(line)
        if len(self._received) > MAX_LINE_BYTES:
            self._received.clear()
            raise LineError(f"a line of more than {MAX_LINE_BYTES} bytes")


def _message(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise LineError(f"no JSON: {line[:80]!r}") from error
    if not isinstance(found, dict):
        raise LineError(f"no JSON object: {line[:80]!r}")
    return found
