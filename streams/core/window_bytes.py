"""Records of `probe.window.v1` straight from the columns of closed windows.

The fields that depend on the 5-tuple alone are encoded once. A kernel encodes the others, in the
order of the current schema (`schemas.columns.encoder`).
"""

from itertools import pairwise
from typing import Final

import numpy as np

from schemas import avro, topics
from schemas.codec import Codec
from schemas.columns.arrays import Int64s
from schemas.columns.encoder import encode_records, make_layout
from schemas.columns.pieces import known_number_bytes, text_bytes
from schemas.columns.wire import WORD_BYTES
from schemas.ids import path_id
from schemas.version import VERSION
from streams.columns.quantities import COLUMNS, NONE
from streams.columns.rounds import FlowKey
from streams.columns.table import grown
from streams.core.window_records import OF_TRANSPORT, WindowBatch

TOPIC: Final = topics.PROBE_WINDOW
ARENA_BYTES: Final = 16_384
# The fields that the 5-tuple decides, and the one that is the same in all records.
PREFIX: Final = ("cluster", "path_id", "src", "dst", "flow", "agent_id")
SUFFIX: Final = ("producer_version",)


class WindowBytes:
    """Encodes one machine's closed windows; remembers the beginnings of their records by row."""

    def __init__(self, codec: Codec, cluster: str) -> None:
        schema = avro.current(TOPIC.name)
        self._layout = make_layout(schema, PREFIX, SUFFIX)
        self._header = codec.framer.header(schema)
        self._cluster = text_bytes(cluster)
        self._end = np.frombuffer(b"\x02" + text_bytes(VERSION) + bytes(WORD_BYTES), np.uint8)
        (transport,) = (f for f in schema.parsed["fields"] if f["name"] == "transport")
        symbols = transport["type"]["symbols"]
        self._transports = np.array([symbols.index(t.value) for t in OF_TRANSPORT], np.int64)
        # By row: the message's key, and where in the arena its beginning is; length 0: not known.
        # The key stands in the beginning, too: to cut it out of each record takes a third longer.
        self._keys: list[bytes] = []
        self._at = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int32)
        self._arena = np.zeros(ARENA_BYTES, np.uint8)
        self._used = 0
        self._dead = 0

    def forget(self, row: int) -> None:
        """Let a row go, which another 5-tuple may have next."""
        if row < len(self._lengths):
            self._dead += int(self._lengths[row])
            self._lengths[row] = 0

    def encode(self, windows: WindowBatch) -> tuple[list[bytes], list[bytes]]:
        """Return keys and values of the windows' messages, in order."""
        rows = windows.rows
        self._know(windows)
        lengths = self._lengths[rows].astype(np.int64)
        room = int(lengths.sum()) + len(rows) * (self._layout.max_bytes + len(self._end))
        room += WORD_BYTES
        out, ends = np.empty(room, np.uint8), np.empty(len(rows), np.int64)
        encode_records(
            self._arena, self._at[rows], lengths, self._layout.nulls, self._columns(windows), NONE,
            self._end, out, ends,
        )  # fmt: skip
        bounds = [0, *ends.tolist()]
        raw = out[: bounds[-1]].tobytes()
        values = [raw[a:b] for a, b in pairwise(bounds)]
        return list(map(self._keys.__getitem__, rows.tolist())), values

    def _columns(self, windows: WindowBatch) -> Int64s:
        """Return the numbers of the records, (columns of the layout, n)."""
        columns: dict[str, Int64s | int] = {
            "transport": self._transports[windows.transports],
            "window_start_at": windows.start_at,
            "window_end_at": windows.end_at,
            "sent": windows.sent,
            "ok": windows.ok,
            "lost": windows.sent - windows.ok,
            "duplicate_results": windows.repeats,
            **dict(zip(COLUMNS, windows.values.T, strict=True)),
        }
        out = np.empty((len(self._layout.names), len(windows)), np.int64)
        for place, name in enumerate(self._layout.names):
            out[place] = columns[name]
        return out

    def _know(self, windows: WindowBatch) -> None:
        """See that the beginnings of these windows are in the arena."""
        count = int(windows.rows.max(initial=-1)) + 1
        if count > len(self._at):
            count = max(count, 2 * len(self._at))
            self._at, self._lengths = grown(self._at, count), grown(self._lengths, count)
            self._keys += [b""] * (count - len(self._keys))
        if 2 * self._dead > len(self._arena):
            # What is still there is written anew, with what is not.
            self._lengths[:] = 0
            self._used = self._dead = 0
        new = windows.rows[self._lengths[windows.rows] == 0]
        if not len(new):
            return
        begins = []
        for row in new.tolist():
            self._keys[row], begin = self._beginning(windows.key_of(row))
            begins.append(begin)
        raw = np.frombuffer(b"".join(begins), np.uint8)
        if self._used + len(raw) + WORD_BYTES > len(self._arena):
            self._arena = grown(self._arena, 2 * len(self._arena) + len(raw))
        self._arena[self._used : self._used + len(raw)] = raw
        lengths = np.fromiter(map(len, begins), np.int64, len(begins))
        self._at[new] = self._used + np.cumsum(lengths) - lengths
        self._lengths[new] = lengths
        self._used += len(raw)

    def _beginning(self, key: FlowKey) -> tuple[bytes, bytes]:
        """Return the message's key, and header and fields up to the agent's name."""
        agent, src, dst, flow = key
        path = path_id(src, dst)
        begin = b"".join(
            (
                self._header, self._cluster, text_bytes(path), text_bytes(src), text_bytes(dst),
                known_number_bytes(flow), text_bytes(agent),
            )
        )  # fmt: skip
        return path.encode(), begin
