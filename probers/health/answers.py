"""The HTTP answers to questions about the agent's health. Pure.

`/healthz` is answered by the loop that probes: an answer shows that the loop runs, and no answer
in time shows that it does not. `/readyz` says whether the agent probes and publishes.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# Kubernetes asks with 150 bytes, curl with 90.
MAX_REQUEST_BYTES: Final = 2_048
# An answer goes out in one piece, into a socket's smallest send buffer (4,608 bytes).
MAX_REASONS: Final = 8
MAX_REASON_CHARS: Final = 200
LIVE: Final = "/healthz"
READY: Final = "/readyz"
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[0-9]")
_PHRASES: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    503: "Service Unavailable",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How an agent is.

    `missing` says what keeps it from being ready, `notes` the other reasons of the heartbeat.
    `longest_turn_ns` is the longest time between two turns of the loop in the last minute.
    """

    agent_id: str
    state: str
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    longest_turn_ns: int = 0


def respond(request: bytes, look: Callable[[], Health]) -> bytes | None:
    """Return the whole response to a request; None: the request is not complete yet."""
    if _HEAD_END.search(request) is None:
        too_long = len(request) >= MAX_REQUEST_BYTES
        return _response(400, {"status": "request too long"}) if too_long else None
    line = _REQUEST_LINE.fullmatch(re.split(rb"\r?\n", request, maxsplit=1)[0])
    if line is None:
        return _response(400, {"status": "no HTTP request"})
    method, path = line[1], line[2].partition(b"?")[0].decode("ascii")
    if method not in (b"GET", b"HEAD"):
        return _response(405, {"status": "GET or HEAD only"})
    code, body = _answer(path, look)
    return _response(code, body, body_wanted=method == b"GET")


def _answer(path: str, look: Callable[[], Health]) -> tuple[int, dict[str, object]]:
    if path == LIVE:
        return _live(look())
    if path == READY:
        return _ready(look())
    return 404, {"status": f"there are {LIVE} and {READY}"}


def _live(health: Health) -> tuple[int, dict[str, object]]:
    return 200, {"status": "alive", **_common(health)}


def _ready(health: Health) -> tuple[int, dict[str, object]]:
    return 503 if health.missing else 200, {
        "status": "not ready" if health.missing else "ready",
        **_common(health),
        "missing": _bounded(health.missing),
        "notes": _bounded(health.notes),
    }


def _common(health: Health) -> dict[str, object]:
    return {
        "agent_id": health.agent_id,
        "state": health.state,
        "longest_turn_ms": health.longest_turn_ns // 10**6,
    }


def _bounded(texts: tuple[str, ...]) -> list[str]:
    return [text[:MAX_REASON_CHARS] for text in texts[:MAX_REASONS]]


def _response(code: int, body: dict[str, object], *, body_wanted: bool = True) -> bytes:
    content = json.dumps(body).encode() + b"\n"
    head = (
        f"HTTP/1.1 {code} {_PHRASES[code]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (content if body_wanted else b"")
