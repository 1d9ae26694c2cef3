"""Records of `probe.window.v1` straight from the columns of closed windows.

What of a record depends on its 5-tuple alone is encoded once, the rest by a kernel, in the order
of the schema that is written today. That order is written down here a second time: `make` holds
it against the codec and gives nothing where the two differ.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas import avro, topics
from schemas.codec import Codec
from schemas.columns.compiled import compiled
from schemas.columns.wire import write_number
from schemas.ids import path_id
from schemas.version import VERSION
from streams.columns.rounds import TRANSPORTS, FlowKey
from streams.columns.statistics import COLUMNS, NONE
from streams.columns.table import grown
from streams.core.window_records import OF_TRANSPORT, WindowBatch

TOPIC: Final = topics.PROBE_WINDOW
# Transport, and the numbers, null's mark with each: ten bytes and one at most.
ARENA_BYTES: Final = 16_384
# The names of an agent's 5-tuples are those of few endpoints, and stand together.
RECENT: Final = 1_024
MOST_BYTES: Final = 1 + 11 * (6 + len(COLUMNS))


class WindowBytes:
    """Encodes one machine's closed windows; remembers the beginnings of their records by row."""

    def __init__(self, codec: Codec, cluster: str) -> None:
        self._header = codec.framer.header(avro.current(TOPIC.name))
        self._cluster = _text(cluster)
        self._end = np.frombuffer(b"\x02" + _text(VERSION), np.uint8)
        symbols = _transport_symbols()
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
        room = int(lengths.sum()) + len(rows) * (MOST_BYTES + len(self._end))
        out, ends = np.empty(room, np.uint8), np.empty(len(rows), np.int64)
        _encode(
            self._arena, self._at[rows], lengths, self._transports[windows.transports],
            windows.start_at, windows.end_at, windows.sent, windows.ok, windows.repeats,
            windows.values, self._end, out, ends,
        )  # fmt: skip
        bounds = [0, *ends.tolist()]
        raw = out[: bounds[-1]].tobytes()
        values = [raw[a:b] for a, b in pairwise(bounds)]
        return list(map(self._keys.__getitem__, rows.tolist())), values

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
        if self._used + len(raw) > len(self._arena):
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
                self._header, self._cluster, _text(path), _text(src), _text(dst), _number(flow),
                _text(agent),
            )
        )  # fmt: skip
        return path.encode(), begin


def make(codec: Codec, cluster: str) -> WindowBytes | None:
    """Return an encoder, None where it would not write what the codec writes."""
    encoder = WindowBytes(codec, cluster)
    keys: list[FlowKey] = [("agent", "a/r0", "b/r\u00e9", 0), ("agent", "a/r0", "c/r1", 65_535)]
    n = len(keys)
    values = np.arange(n * len(COLUMNS), dtype=np.int64).reshape(n, -1) * 97_531_357
    values[1, ::2] = NONE
    sample = WindowBatch(
        cluster=cluster, start_at=1_700_000_000_000_000, end_at=1_700_000_030_000_000,
        rows=np.arange(n), key_of=keys.__getitem__, values=values, sent=np.array([30, 1_000_000]),
        ok=np.array([29, 0]), repeats=np.array([0, 7]),
        transports=np.array([1, len(TRANSPORTS) - 1], np.int8),
    )  # fmt: skip
    wanted = [codec.encode(TOPIC, record) for record in sample.records()]
    # One that knows nothing yet: the sample's rows are nobody's.
    return WindowBytes(codec, cluster) if encoder.encode(sample)[1] == wanted else None


@compiled
def _encode(
    arena: NDArray[np.uint8],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    transports: NDArray[np.int64],
    start_at: int,
    end_at: int,
    sent: NDArray[np.int64],
    ok: NDArray[np.int64],
    repeats: NDArray[np.int64],
    values: NDArray[np.int64],
    end: NDArray[np.uint8],
    out: NDArray[np.uint8],
    ends: NDArray[np.int64],
) -> None:
    """Write all records one behind the other; `ends` gets where each ends."""
    at = 0
    for number in range(len(lengths)):
        begin = begins[number]
        for place in range(begin, begin + lengths[number]):
            out[at] = arena[place]
            at += 1
        at = write_number(out, at, transports[number])
        at = write_number(out, at, start_at)
        at = write_number(out, at, end_at)
        at = write_number(out, at, sent[number])
        at = write_number(out, at, ok[number])
        at = write_number(out, at, sent[number] - ok[number])
        at = write_number(out, at, repeats[number])
        for column in range(values.shape[1]):
            value = values[number, column]
            if value == NONE:
                out[at] = 0
                at += 1
            else:
                # The second branch of null and long.
                out[at] = 2
                at = write_number(out, at + 1, value)
        for place in range(len(end)):
            out[at] = end[place]
            at += 1
        ends[number] = at


@lru_cache(RECENT)
def _text(text: str) -> bytes:
    raw = text.encode()
    return _number(len(raw)) + raw


@lru_cache(RECENT)
def _number(value: int) -> bytes:
    """Return the number, 0 or more, as Avro writes it."""
    raw, out = 2 * value, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _transport_symbols() -> list[str]:
    fields = avro.current(TOPIC.name).parsed["fields"]
    return list(next(f for f in fields if f["name"] == "transport")["type"]["symbols"])
