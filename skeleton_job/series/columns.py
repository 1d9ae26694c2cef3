"""Batches of counters straight from their bytes to arrays.

A large cluster sends half a million samples a second; as records they take several times as
long. Agents write batches of one shape: every sample was read, ids are ASCII and of one length.
Then every varint and every character ends at a byte below 128, and samples are rows of a table of
those. Whatever is of another shape is left to the codec, and so is saying what is wrong with it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s, UInt64s

Bytes = NDArray[np.uint8]

# A batch is a second of ticks; one that spans more is not ours.
MAX_BATCH_SPAN_NS: Final = 600 * 10**9
# Nine bytes hold 62 bits and a sign: more than a port carries in a century.
MAX_NUMBER_BYTES: Final = 9
# Ids longer than this have a length of three bytes; none is.
MAX_ID_BYTES: Final = 8191
# Behind the id: rail, offset, branch, delay, branch, tx, branch, rx, bits, branch of the reason.
FIELDS: Final = 10
# Where numbers are, and branches, counted from the id's last character.
NUMBERS: Final = np.array([0, 2, 4, 6, 8, 9])
THERE: Final = np.array([3, 5, 7, 10])
# Branches of unions: there three times, and no reason why not.
BRANCHES: Final = (2, 2, 2, 0)


@dataclass(frozen=True, slots=True, eq=False)
class CounterColumns:
    """A rnic.counters.v1 record whose samples were all read.

    Attributes
    ----------
    cluster, agent_id, started_at : as in the record
    names : (n, length) uint8, ASCII of each sample's endpoint id
    time_ns : (n,) when each was read
    tx_bytes, rx_bytes : (n,) uint64
    bits : (n,) uint8
    """

    cluster: str
    agent_id: str
    started_at: int
    names: Bytes
    time_ns: Int64s
    tx_bytes: UInt64s
    rx_bytes: UInt64s
    bits: Bytes

    def endpoints(self) -> list[str]:
        """Return the endpoint id of each sample."""
        return [bytes(row).decode("ascii") for row in self.names]


def counter_columns(payload: memoryview) -> CounterColumns | None:
    """Return the columns of a datum's bytes; None: of another shape, or wrong."""
    try:
        header = _Header(payload)
        return _columns(header, np.frombuffer(payload, np.uint8)[header.end :])
    except (IndexError, ValueError, OverflowError):
        return None


def _columns(header: "_Header", body: Bytes) -> CounterColumns:
    """Return the columns; raises ValueError if the samples are of another shape."""
    # The samples, and the 0 that ends the array.
    if header.count < 1 or body[-1] != 0:
        raise ValueError("no one block of samples")
    body = body[:-1]
    flat = np.flatnonzero(body < 128)
    if not flat.size or flat[-1] != body.size - 1 or flat.size % header.count:
        raise ValueError("samples of several lengths")
    before = np.concatenate([[-1], flat[:-1]])
    starts = (before + 1).reshape(header.count, -1)
    size = (flat - before).reshape(header.count, -1)
    length = starts.shape[1] - FIELDS - 1
    if not 0 < length <= MAX_ID_BYTES or np.any(size[:, 1 : length + 1] != 1):
        raise ValueError("ids of several lengths, or no ASCII")
    padded = np.append(body, np.zeros(MAX_NUMBER_BYTES, np.uint8))
    numbers, there = NUMBERS + length, THERE + length
    # The id's length stands before it.
    numbers[0] = 0
    if np.any(padded[starts[:, there]] != BRANCHES):
        raise ValueError("a sample that was not read")
    size = size[:, numbers]
    if int(size.max()) > MAX_NUMBER_BYTES:
        raise ValueError("a number of more bytes than any has")
    twice = _numbers(padded, starts[:, numbers], size)
    # Numbers come as twice themselves; odd ones are negative.
    if np.any(twice & np.uint64(1)):
        raise ValueError("a number below 0")
    id_bytes, offset, delay, tx, rx, bits = (twice >> np.uint64(1)).T
    if np.any(id_bytes != length) or int(max(offset.max(), delay.max())) > MAX_BATCH_SPAN_NS:
        raise ValueError("ids of several lengths, or a tick far away")
    if int(bits.min()) < 1 or int(bits.max()) > 64:
        raise ValueError("a counter of no width")
    return CounterColumns(
        cluster=header.cluster,
        agent_id=header.agent_id,
        started_at=header.started_at,
        names=padded[starts[:, 1, None] + np.arange(length)],
        time_ns=(offset + delay).astype(np.int64) + header.started_at * 1000,
        tx_bytes=tx,
        rx_bytes=rx,
        bits=bits.astype(np.uint8),
    )


def _numbers(body: Bytes, starts: Int64s, size: Int64s) -> UInt64s:
    """Return the numbers that begin there, as they are on the wire."""
    at = np.arange(int(size.max())).reshape(-1, *[1] * starts.ndim)
    parts = (body[starts + at] & 127).astype(np.uint64)
    parts <<= (7 * at).astype(np.uint64)
    parts *= at < size
    out: UInt64s = np.bitwise_or.reduce(parts, axis=0)
    return out


class _Header:
    """What stands before a batch's samples.

    Raises IndexError, ValueError or OverflowError where bytes are no such thing.
    """

    def __init__(self, payload: memoryview) -> None:
        self._payload = payload
        self.end = 0
        self.cluster = self._text()
        self.agent_id = self._text()
        self._text()  # the host
        self.started_at = self._number()
        self._number()  # the tick
        branch = self._number()
        if branch not in {0, 1}:
            raise ValueError(f"branch {branch} of a union of two")
        if branch:
            self._text()  # the producer's version
        self.count = self._number()

    def _number(self) -> int:
        value = 0
        for shift in range(0, 7 * MAX_NUMBER_BYTES, 7):
            byte = self._payload[self.end]
            self.end += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number of more bytes than any has")

    def _text(self) -> str:
        size = self._number()
        if not 0 <= size <= MAX_ID_BYTES:
            raise ValueError(f"a text of {size} bytes")
        begin, self.end = self.end, self.end + size
        return str(self._payload[begin : self.end], "utf-8")
