"""Dead letters: where they come from, and that they always fit into their topic."""

from typing import Any

import pytest

from schemas.codec import DecodeError
from schemas.kafka.deadletter import (
    KEPT_BYTES,
    MAX_DEAD_LETTER_BYTES,
    MAX_ERROR_CHARS,
    ORIGIN_PREFIX,
    WHOLE_BYTES_HEADER,
    Headers,
    dead_letter,
    dead_letter_of,
    dead_letter_topic,
)
from schemas.topics import DLQ_MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES

ERROR = DecodeError("x" * 10_000, topic="probe.round.v1", partition=2, offset=9)
SOME: Headers = [("traceparent", b"00-1")]


class Message:
    """What a client gives."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def key(self) -> str:
        """Return a key."""
        return "agent"

    def value(self) -> bytes:
        """Return a value."""
        return b"garbage"

    def headers(self) -> Any:
        """Return the headers."""
        return self._headers


def test_a_dead_letter_says_where_it_came_from() -> None:
    """Origin and error are added behind the original headers; the error text is bounded."""
    letter = dead_letter(ERROR, process="worker", key=b"k", value=b"garbage", headers=SOME)
    found = dict(letter.headers)
    assert (letter.key, letter.value) == (b"k", b"garbage")
    assert letter.headers[0] == ("traceparent", b"00-1")
    assert found["__connect.errors.topic"] == b"probe.round.v1"
    assert found["__connect.errors.partition"] == b"2"
    assert found["__connect.errors.offset"] == b"9"
    assert found["__connect.errors.connector.name"] == b"worker"
    assert len(found["__connect.errors.exception.message"]) == MAX_ERROR_CHARS
    assert WHOLE_BYTES_HEADER not in found
    assert dead_letter_topic("x.probe.round.v1") == "x.probe.round.v1.dlq"


def test_an_unknown_place_is_empty() -> None:
    """Not 0, which is a place."""
    error = DecodeError("short", topic="probe.round.v1", partition=None, offset=5)
    found = dict(dead_letter(error, process="w", key=None, value=None, headers=[]).headers)
    assert found[ORIGIN_PREFIX + "partition"] == b""
    assert found[ORIGIN_PREFIX + "offset"] == b"5"


@pytest.mark.parametrize("headers", [[("a", None), ("b", "c")], {"a": None, "b": b"c"}])
def test_headers_of_a_clients_message(headers: Any) -> None:
    """They come as pairs or as a dict, as bytes, text or nothing."""
    letter = dead_letter_of(ERROR, Message(headers), process="w")
    assert (letter.key, letter.value) == (b"agent", b"garbage")
    assert letter.headers[:2] == [("a", b""), ("b", b"c")]
    assert not dead_letter_of(ERROR, Message(None), process="w").headers[0][0].startswith("a")


def test_what_a_topic_holds_is_kept_whole() -> None:
    """The greatest message of a topic fits into its dead letters with origin and error."""
    value = bytes(MAX_MESSAGE_BYTES - 100)
    letter = dead_letter(ERROR, process="worker", key=b"k", value=value, headers=SOME)
    assert letter.value == value


@pytest.mark.parametrize(
    ("key", "value_bytes", "headers"),
    [
        (b"k", DLQ_MAX_MESSAGE_BYTES, SOME),
        (b"k" * DLQ_MAX_MESSAGE_BYTES, 7, SOME),
        (b"k", 300 * 2**20, SOME),
        (None, 7, [("h", bytes(DLQ_MAX_MESSAGE_BYTES))]),
        (b"k", 7, [("h", b"")] * 2**20),
    ],
)
def test_what_does_not_fit_is_kept_by_reference(
    key: bytes | None, value_bytes: int, headers: Headers
) -> None:
    """Of a compressed message that is larger than its topic's limit, the beginning is kept."""
    letter = dead_letter(
        ERROR, process="worker", key=key, value=bytes(value_bytes), headers=headers
    )
    found = dict(letter.headers)
    assert found[WHOLE_BYTES_HEADER] == str(value_bytes).encode()
    assert found[ORIGIN_PREFIX + "offset"] == b"9"
    assert letter.value == bytes(min(value_bytes, KEPT_BYTES))
    assert letter.key == (None if key is None else key[:KEPT_BYTES])
    assert ("traceparent" in found) == (headers is SOME)
    size = sum(len(n) + len(v) for n, v in letter.headers) + len(letter.key or b"")
    assert size + len(letter.value or b"") < 4 * KEPT_BYTES


def test_the_limit_of_a_small_process_is_its_own() -> None:
    """An agent has little memory; the limit counts key and headers."""
    whole = dead_letter(
        ERROR, process="agent", key=None, value=bytes(9_000), headers=[], max_bytes=10_000
    )
    cut = dead_letter(
        ERROR, process="agent", key=None, value=bytes(10_000), headers=[], max_bytes=10_000
    )
    assert WHOLE_BYTES_HEADER not in dict(whole.headers)
    assert dict(cut.headers)[WHOLE_BYTES_HEADER] == b"10000"
    assert MAX_DEAD_LETTER_BYTES < DLQ_MAX_MESSAGE_BYTES
