"""Records of `probe.window.v1` straight from the columns of closed windows.

What of a record depends on its 5-tuple alone is encoded once, the rest by a kernel, in the order
of the schema that is written today. That order is written down here a second time: `make` holds
it against the codec and gives nothing where the two differ.
"""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas import avro, topics
from schemas.codec import Codec
from schemas.ids import path_id
from streams.columnar.compiled import compiled, inlined
from streams.columns import FlowKey
from streams.outputs import PRODUCER_VERSION
from streams.recent import TRANSPORTS
from streams.statistics import COLUMNS, NONE
from streams.window_records import OF_TRANSPORT, WindowBatch

TOPIC: Final = topics.PROBE_WINDOW
# Transport, and the numbers, null's mark with each: ten bytes and one at most.
MOST_BYTES: Final = 1 + 11 * (6 + len(COLUMNS))


class WindowBytes:
    """Encodes closed windows; remembers the beginnings of their records by 5-tuple."""

    def __init__(self, codec: Codec, cluster: str) -> None:
        self._header = codec.framer.header(avro.current(TOPIC.name))
        self._cluster = _text(cluster)
        self._end = np.frombuffer(b"\x02" + _text(PRODUCER_VERSION), np.uint8)
        symbols = _transport_symbols()
        self._transports = np.array([symbols.index(t.value) for t in OF_TRANSPORT], np.int64)
        self._known: dict[FlowKey, tuple[bytes, bytes]] = {}

    def encode(self, windows: WindowBatch) -> tuple[list[bytes], list[bytes]]:
        """Return keys and values of the windows' messages, in order."""
        known = list(map(self._beginning, windows.keys))
        # Only what is probed now will come again.
        self._known = dict(zip(windows.keys, known, strict=True))
        beginnings = [begin for _, begin in known]
        lengths = np.fromiter(map(len, beginnings), np.int64, len(beginnings))
        data = np.frombuffer(b"".join(beginnings), np.uint8)
        room = int(lengths.sum()) + len(known) * (MOST_BYTES + len(self._end))
        out, ends = np.empty(room, np.uint8), np.empty(len(known), np.int64)
        _encode(
            data, lengths, self._transports[windows.transports], windows.start_at, windows.end_at,
            windows.sent, windows.ok, windows.repeats, windows.values, self._end, out, ends,
        )  # fmt: skip
        bounds = [0, *ends.tolist()]
        raw = out[: bounds[-1]].tobytes()
        values = [raw[a:b] for a, b in pairwise(bounds)]
        return [key for key, _ in known], values

    def _beginning(self, key: FlowKey) -> tuple[bytes, bytes]:
        """Return the message's key, and header and fields up to the agent's name."""
        found = self._known.get(key)
        if found is not None:
            return found
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
        rows=np.arange(n), keys=keys, values=values, sent=np.array([30, 1_000_000]),
        ok=np.array([29, 0]), repeats=np.array([0, 7]),
        transports=np.array([1, len(TRANSPORTS) - 1], np.int8),
    )  # fmt: skip
    wanted = [codec.encode(TOPIC, record) for record in sample.records()]
    return encoder if encoder.encode(sample)[1] == wanted else None


@inlined
def _put(out: NDArray[np.uint8], at: int, value: int) -> int:
    """Write a zigzag number; return the place behind it."""
    raw = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)
    while raw >= np.uint64(0x80):
        out[at] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(raw)
    return at + 1


@compiled
def _encode(
    beginnings: NDArray[np.uint8],
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
    begin = 0
    for number in range(len(lengths)):
        for place in range(begin, begin + lengths[number]):
            out[at] = beginnings[place]
            at += 1
        begin += lengths[number]
        at = _put(out, at, transports[number])
        at = _put(out, at, start_at)
        at = _put(out, at, end_at)
        at = _put(out, at, sent[number])
        at = _put(out, at, ok[number])
        at = _put(out, at, sent[number] - ok[number])
        at = _put(out, at, repeats[number])
        for column in range(values.shape[1]):
            value = values[number, column]
            if value == NONE:
                out[at] = 0
                at += 1
            else:
                # The second branch of null and long.
                out[at] = 2
                at = _put(out, at + 1, value)
        for place in range(len(end)):
            out[at] = end[place]
            at += 1
        ends[number] = at


def _text(text: str) -> bytes:
    raw = text.encode()
    return _number(len(raw)) + raw


def _number(value: int) -> bytes:
    out = np.empty(10, np.uint8)
    return out[: _put_one(out, value)].tobytes()


@compiled
def _put_one(out: NDArray[np.uint8], value: int) -> int:
    return _put(out, 0, value)


def _transport_symbols() -> list[str]:
    fields = avro.current(TOPIC.name).parsed["fields"]
    return list(next(f for f in fields if f["name"] == "transport")["type"]["symbols"])
