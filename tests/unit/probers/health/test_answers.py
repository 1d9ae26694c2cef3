"""What an agent answers when it is asked how it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.health.answers import MAX_REASON_CHARS, MAX_REQUEST_BYTES, Health, respond

GOOD = Health(agent_id="agent-h0", state="RUNNING", longest_turn_ns=120 * 10**6)
# The smallest send buffer that Linux gives a socket (SOCK_MIN_SNDBUF).
SMALLEST_BUFFER_BYTES = 4_608


def asked(path: str, health: Health = GOOD) -> tuple[int, dict[str, Any]]:
    """Return status and body."""
    response = respond(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode(), lambda: health)
    assert response is not None
    head, _, body = response.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"
    return int(head.split()[1]), json.loads(body)


def test_an_agent_that_answers_is_alive() -> None:
    """Whatever else it lacks: a restart would not bring the broker back."""
    lame = Health(agent_id="agent-h0", state="DEGRADED", missing=("broker away",))
    assert asked("/healthz", lame) == (
        200,
        {"status": "alive", "agent_id": "agent-h0", "state": "DEGRADED", "longest_turn_ms": 0},
    )


def test_ready_is_who_lacks_nothing() -> None:
    """A degraded agent that works is ready, and says what it notes."""
    code, body = asked("/readyz", Health(agent_id="a", state="DEGRADED", notes=("clock set",)))
    assert (code, body["status"], body["notes"]) == (200, "ready", ["clock set"])
    code, body = asked("/readyz", Health(agent_id="a", state="STARTING", missing=("x", "y")))
    assert (code, body["status"], body["missing"]) == (503, "not ready", ["x", "y"])


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", 200),
        (b"GET /readyz HTTP/1.1\n\n", 200),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", 200),
        (b"POST /healthz HTTP/1.1\r\n\r\n", 405),
        (b"GET healthz HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /" + b"a" * MAX_REQUEST_BYTES, 400),
    ],
)
def test_statuses(request_: bytes, code: int) -> None:
    """Each wrong request has its own; HEAD has no body."""
    response = respond(request_, lambda: GOOD)
    assert response is not None
    assert response.startswith(f"HTTP/1.1 {code} ".encode())
    assert response.endswith(b"\r\n\r\n") is request_.startswith(b"HEAD")


def test_a_request_that_goes_on_is_waited_for() -> None:
    """Byte by byte, the answer comes with the last."""
    request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    for end in range(len(request)):
        assert respond(request[:end], lambda: GOOD) is None
    assert respond(request, lambda: GOOD) is not None


@given(st.binary(max_size=MAX_REQUEST_BYTES))
def test_any_bytes_get_an_answer_or_none(request: bytes) -> None:
    """Nothing raises, and nobody is told to be well by accident."""
    response = respond(request, lambda: GOOD)
    assert response is None or response.startswith(b"HTTP/1.1 ")
    if response is not None and response.startswith(b"HTTP/1.1 200"):
        assert b"/healthz" in request or b"/readyz" in request


def test_an_answer_fits_a_sockets_buffer() -> None:
    """However many reasons there are, and whatever is in them."""
    much = ("é" * 10_000,) * 100
    code, body = asked("/readyz", Health(agent_id="a", state="s", missing=much))
    assert code == 503
    assert {len(reason) for reason in body["missing"]} == {MAX_REASON_CHARS}
    plain = Health(agent_id="a" * 200, state="s", missing=("x" * 999,) * 99, notes=("y" * 999,) * 9)
    response = respond(b"GET /readyz HTTP/1.1\r\n\r\n", lambda: plain)
    assert response is not None
    assert len(response) < SMALLEST_BUFFER_BYTES
