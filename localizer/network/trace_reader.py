"""Reads many messages of path.trace.v1 at once: what the localizer keeps of each.

The bytes become columns by the kernel that all readers share (`schemas.columns.records`). Objects
are made of what is kept alone, and equal names are one object.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from localizer.network.traces import MAX_HOPS, FlowTrace, Trace
from schemas import topics
from schemas.codec import Codec
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.records import RecordColumns, RecordReader
from schemas.enums import TraceCause
from schemas.process.names import shared
from schemas.records import PathTrace, TraceHop
from schemas.units import US_NS

DISCOVERY: Final = list(TraceCause).index(TraceCause.DISCOVERY)


class TraceReader:
    """Reads the traces of one cluster."""

    def __init__(self, codec: Codec, cluster: str) -> None:
        self._codec = codec
        self._reader = RecordReader(codec, topics.PATH_TRACE)
        self._cluster = cluster

    def warm(self) -> None:
        """Compile the kernel, some seconds once after an installation, or read it from disk."""
        hop = TraceHop(ttl=1, address="a", rtt_ns=1)
        trace = PathTrace(
            cluster=self._cluster, path_id="a>b", src="a", dst="b", flow=0, agent_id="a",
            traced_at=0, cause=TraceCause.DISCOVERY, complete=True, hops=(hop,),
        )  # fmt: skip
        values = [self._codec.encode(topics.PATH_TRACE, trace)]
        self.read([b"a>b"], values, np.zeros(1, np.int64))

    def read(
        self, keys: Sequence[bytes], values: Sequence[bytes], arrivals_ns: Int64s
    ) -> list[FlowTrace | None]:
        """Return what is kept of each message; None where somebody has to look at it by itself.

        Parameters
        ----------
        keys, values
            Of the messages.
        arrivals_ns : (n,) int64
            When they arrived.
        """
        found: list[FlowTrace | None] = []
        for block in self._reader.columns(values, arrivals_ns):
            own = [key for key, good in zip(keys[block.first :], block.whole, strict=False) if good]
            traces = iter(self._traces(own, block))
            found += [next(traces) if good else None for good in block.whole.tolist()]
        return found

    def _traces(self, keys: Sequence[bytes], block: RecordColumns) -> list[FlowTrace | None]:
        """Return the traces of a block; None of another cluster, or under another key."""
        texts = block.texts
        found: list[FlowTrace | None] = []
        addresses, rtts_ns = block.item_texts("address"), block.item_numbers("rtt_ns")
        addresses = [None if address is None else shared(address) for address in addresses]
        begin = 0
        for key, path, cluster, src, dst, flow, at_us, discovery, complete, plain, end in zip(
            keys,
            texts("path_id"),
            texts("cluster"),
            texts("src"),
            texts("dst"),
            block.numbers("flow").tolist(),
            block.numbers("traced_at").tolist(),
            (block.numbers("cause") == DISCOVERY).tolist(),
            (block.numbers("complete") != 0).tolist(),
            _plain(block).tolist(),
            block.item_ends.tolist(),
            strict=True,
        ):
            if not plain or cluster != self._cluster or key != path.encode():
                found.append(None)
            else:
                trace = Trace(
                    at_us * US_NS, tuple(addresses[begin:end]), tuple(rtts_ns[begin:end]), complete
                )
                found.append(FlowTrace((shared(src), shared(dst), flow), discovery, trace))
            begin = end
        return found


def _plain(block: RecordColumns) -> Bools:
    """Return of which traces the hops stand in order, each once."""
    ends = block.item_ends
    counts = np.diff(ends, prepend=0)
    ttls = block.items[block.item_wanted["ttl"].column]
    odd = ttls != np.arange(len(ttls)) - np.repeat(ends - counts, counts) + 1
    plain: Bools = counts <= MAX_HOPS
    plain[np.repeat(np.arange(len(ends)), counts)[odd]] = False
    return plain
