"""The windows that the peers of the throughput benchmark compute, from one message per probe.

Standard library and fastavro only, since Quix Streams runs in an environment of its own. A message
holds the fields of a result; a window holds the fields of `probe.window.v1`.
"""

import io
import json
from collections.abc import Sequence
from math import sqrt
from typing import Any, Final

import fastavro

TOPIC: Final = "peer.probe"
WINDOWS: Final = "peer.window"
WINDOW_MS: Final = 30_000
LATENESS_MS: Final = 5_000
PERCENTS: Final = (25, 50, 75, 90, 99)

SCHEMA: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Probe",
        "fields": [
            {"name": "agent_id", "type": "string"},
            {"name": "src", "type": "string"},
            {"name": "dst", "type": "string"},
            {"name": "flow", "type": "int"},
            {"name": "sent_ns", "type": "long"},
            {"name": "status", "type": "string"},
            {"name": "rtt_ns", "type": ["null", "long"]},
            {"name": "prober_delay_ns", "type": ["null", "long"]},
            {"name": "responder_delay_ns", "type": ["null", "long"]},
        ],
    }
)


def encode(probe: dict[str, Any]) -> bytes:
    """Return a probe as a message."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, probe)
    return out.getvalue()


def decode(value: bytes) -> dict[str, Any]:
    """Return the probe of a message."""
    probe: Any = fastavro.schemaless_reader(io.BytesIO(value), SCHEMA, None)
    return dict(probe)


def statistics(trips_ns: Sequence[int | None]) -> dict[str, int | None]:
    """Return what a window says of its round trips; None among them are losses."""
    found = sorted(t for t in trips_ns if t is not None)
    count = len(found)
    said: dict[str, int | None] = {
        "sent": len(trips_ns), "ok": count, "lost": len(trips_ns) - count,
    }  # fmt: skip
    for percent in PERCENTS:
        said[f"p{percent}_ns"] = found[(percent * count + 99) // 100 - 1] if count else None
    mean = sum(found) / count if count else 0.0
    said["min_ns"], said["max_ns"] = (found[0], found[-1]) if count else (None, None)
    said["mean_ns"] = round(mean) if count else None
    said["std_ns"] = round(sqrt(sum((t - mean) ** 2 for t in found) / count)) if count else None
    return said


class Windows:
    """Tumbling windows of event time, closed all at once behind the latest time seen."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, list[int | None]]] = {}
        self._latest_ms = self._closed = 0

    def add_probe(self, key: str, sent_ms: int, rtt_ns: int | None) -> list[bytes]:
        """Add a probe; return the windows that its time closes, encoded."""
        index = sent_ms // WINDOW_MS
        if index >= self._closed:
            self._open.setdefault(index, {}).setdefault(key, []).append(rtt_ns)
        if sent_ms <= self._latest_ms:
            return []
        self._latest_ms = sent_ms
        self._closed = max(self._closed, (sent_ms - LATENESS_MS) // WINDOW_MS)
        due = sorted(i for i in self._open if i < self._closed)
        return [
            json.dumps({"path_id": path, "start": i * WINDOW_MS, **statistics(trips)}).encode()
            for i in due
            for path, trips in self._open.pop(i).items()
        ]
