"""Batches of counters straight from their bytes to arrays.

A large cluster sends half a million samples a second; as records they take several times as
long. A kernel reads the batches that agents usually write: every sample was read, and ids are
ASCII and of one length, so that they are rows of an array. The codec reads the others, and says
what is wrong with them.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas import avro, bounds
from schemas.columns.arrays import Int64s, UInt64s
from schemas.columns.interpreter import PAD_BYTES, read_record
from schemas.columns.plan import FieldTable, Kind, Plan, Wanted, make_plan
from schemas.ids import MAX_ID_CHARS
from schemas.topics import RNIC_COUNTERS

Bytes = NDArray[np.uint8]

MAX_BATCH_SPAN_NS: Final = bounds.MAX_BATCH_SPAN_NS
MAX_SAMPLES: Final = int(bounds.bound_of(RNIC_COUNTERS.name, "samples").greatest)
# A sample has eight fields of a byte at least.
MIN_SAMPLE_BYTES: Final = 8


class _Field(IntEnum):
    CLUSTER = 0
    CLUSTER_BYTES = 1
    AGENT = 2
    AGENT_BYTES = 3
    # Read only to decode it: it need not be ASCII.
    HOST = 4
    HOST_BYTES = 5
    STARTED_US = 6


class _Sample(IntEnum):
    NAME = 0
    NAME_BYTES = 1
    OFFSET_NS = 2
    DELAY_NS = 3
    TX_BYTES = 4
    RX_BYTES = 5
    BITS = 6


COUNTERS: Final = FieldTable(
    topic=RNIC_COUNTERS.name,
    fields={
        "cluster": Wanted(_Field.CLUSTER, Kind.TEXT),
        "agent_id": Wanted(_Field.AGENT, Kind.TEXT),
        "host_id": Wanted(_Field.HOST, Kind.TEXT),
        "started_at": Wanted(_Field.STARTED_US),
    },
    array="samples",
    items={
        "endpoint_id": Wanted(_Sample.NAME, Kind.TEXT),
        "tick_offset_ns": Wanted(_Sample.OFFSET_NS),
        "read_delay_ns": Wanted(_Sample.DELAY_NS, Kind.NULLABLE_LONG),
        "tx_bytes": Wanted(_Sample.TX_BYTES, Kind.NULLABLE_LONG),
        "rx_bytes": Wanted(_Sample.RX_BYTES, Kind.NULLABLE_LONG),
        "counter_bits": Wanted(_Sample.BITS),
    },
)


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
    data = np.frombuffer(b"".join((payload, bytes(PAD_BYTES))), np.uint8)
    fields = np.empty((len(_Field), 1), np.int64)
    samples = np.empty((len(_Sample), len(payload) // MIN_SAMPLE_BYTES), np.int64)
    count = read_record(data, 0, len(payload), _plan(), fields, 0, samples, 0)
    if not 1 <= count <= MAX_SAMPLES:
        return None
    try:
        return _columns(data, fields[:, 0].tolist(), samples[:, :count])
    except (UnicodeDecodeError, OverflowError):
        return None


def warm_kernel() -> None:
    """Compile the kernel, or read it from disk."""
    counter_columns(memoryview(b""))


def _columns(data: Bytes, fields: list[int], samples: Int64s) -> CounterColumns | None:
    """Return the columns, None if the samples are of another shape.

    Raises UnicodeDecodeError or OverflowError where a name or the time is wrong.
    """
    at, name_bytes, offset_ns, delay_ns, tx, rx, bits = samples
    length = int(name_bytes[0])
    if not 1 <= length <= MAX_ID_CHARS or (name_bytes != length).any():
        return None
    names = data[at[:, None] + np.arange(length)]
    if (
        int(names.max()) > 127
        # NULL is below 0 as well.
        or int(samples[_Sample.OFFSET_NS :].min()) < 0
        or int(max(offset_ns.max(), delay_ns.max())) > MAX_BATCH_SPAN_NS
        or int(bits.min()) < 1
        or int(bits.max()) > 64
    ):
        return None
    started_us = fields[_Field.STARTED_US]
    cluster, agent, _host = (
        data[at : at + size].tobytes().decode()
        for at, size in zip(
            fields[: _Field.STARTED_US : 2], fields[1 : _Field.STARTED_US : 2], strict=True
        )
    )
    if not 1 <= len(agent) <= MAX_ID_CHARS:
        return None
    return CounterColumns(
        cluster=cluster,
        agent_id=agent,
        started_at=started_us,
        names=names,
        time_ns=offset_ns + delay_ns + started_us * 1000,
        tx_bytes=tx.astype(np.uint64),
        rx_bytes=rx.astype(np.uint64),
        bits=bits.astype(np.uint8),
    )


@cache
def _plan() -> Plan:
    return make_plan(avro.current(RNIC_COUNTERS.name), COUNTERS)
