"""Reads many messages of path.trace.v1 at once: what the localizer keeps of each.

The bytes become columns by the kernel that all readers share (`schemas.columns.records`). Whole
traces and those that broke off stay columns; of others objects are made of what is kept alone.
Equal names are one object.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from localizer.network.trace_batches import MAX_WHOLE, NO_HOP, SILENT, TraceBatch, joined
from localizer.network.traces import MAX_HOPS, FlowTrace, Trace
from schemas import topics
from schemas.codec import Codec
from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import RecordColumns, RecordReader
from schemas.columns.texts import distinct_texts
from schemas.enums import TraceCause
from schemas.process.names import shared
from schemas.records import PathTrace, TraceHop
from schemas.units import US_NS

DISCOVERY: Final = list(TraceCause).index(TraceCause.DISCOVERY)


class Places(NamedTuple):
    """Where messages stand in the log, and when they take effect, each (n,) int64."""

    at_ns: Int64s
    partition: Int64s
    offset: Int64s


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
        at_ns = np.zeros(1, np.int64)
        self.read([b"a>b"], values, at_ns)
        self.read_batch([b"a>b"], values, at_ns, Places(at_ns, at_ns, at_ns))

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

    def read_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes], arrivals_ns: Int64s, places: Places
    ) -> tuple[TraceBatch | None, Bools, list[FlowTrace | None]]:
        """Return traces as columns, and of the other messages what `read` returns.

        Returns
        -------
        batch
            Whole traces, and those that broke off; None: there are none.
        taken : (n,) bool
            Which messages are in it.
        others
            Of each message that is not.
        """
        taken = np.zeros(len(values), np.bool_)
        batches: list[TraceBatch] = []
        others: list[FlowTrace | None] = []
        for block in self._reader.columns(values, arrivals_ns):
            numbers = block.first + np.flatnonzero(block.whole)
            own = [keys[number] for number in numbers.tolist()]
            rows = np.flatnonzero(_regular(block))
            batch, kept = self._batch(own, block, rows)
            if batch is not None:
                in_log = Places(*(each[numbers[kept]] for each in places))
                batches.append(replace(batch, **in_log._asdict()))
                taken[numbers[kept]] = True
            left = np.ones(len(numbers), np.bool_)
            left[kept] = False
            found: list[FlowTrace | None] = [None] * len(block.whole)
            if left.any():
                there = (numbers[left] - block.first).tolist()
                made = self._traces([own[row] for row in np.flatnonzero(left)], _part(block, left))
                for number, trace in zip(there, made, strict=True):
                    found[number] = trace
            mine = taken[block.first : block.first + len(found)].tolist()
            others += [trace for trace, gone in zip(found, mine, strict=True) if not gone]
        return joined(batches) if batches else None, taken, others

    def _batch(
        self, keys: Sequence[bytes], block: RecordColumns, rows: Int64s
    ) -> tuple[TraceBatch | None, Int64s]:
        """Return those of some rows that are of this cluster and under their keys, and which."""
        data, columns = block.data, block.columns
        clusters, first = distinct_texts(data, *block.arrays("cluster")[:, rows])
        right = np.array([self._is_own(block, row) for row in rows[first].tolist()])[clusters]
        spans = _spans(*block.arrays("path_id")[:, rows])
        paths = [data[begin:end] for begin, end in spans]
        if not right.all() or paths != [keys[row] for row in rows.tolist()]:
            named = [path == keys[row] for path, row in zip(paths, rows.tolist(), strict=True)]
            rows = rows[right & named]
        if not len(rows):
            return None, rows
        counts = np.diff(block.item_ends, prepend=0)[rows]
        filled = np.arange(counts.max()) < counts[:, None]
        items = ((block.item_ends[rows] - counts)[:, None] + np.arange(filled.shape[1]))[filled]
        hops = np.full(filled.shape, NO_HOP, np.int32)
        rtts_ns = np.full(filled.shape, NULL, np.int64)
        rtts_ns[filled] = block.items[block.item_wanted["rtt_ns"].column, items]
        at = block.item_wanted["address"].column
        texts = block.items[at : at + 2, items]
        answered = texts[0] != NULL
        found = np.full(len(items), SILENT, np.int32)
        found[answered], addresses = _names(data, *texts[:, answered])
        hops[filled] = found
        flow_ends = np.concatenate([block.arrays("src")[:, rows], block.arrays("dst")[:, rows]], 1)
        numbers, ends = _names(data, *flow_ends)
        src, dst = numbers[: len(rows)], numbers[len(rows) :]
        name, flow = ends.__getitem__, columns[block.wanted["flow"].column, rows]
        nothing = np.zeros(len(rows), np.int64)
        batch = TraceBatch(
            keys=list(
                zip(map(name, src.tolist()), map(name, dst.tolist()), flow.tolist(), strict=True)
            ),
            ends=ends,
            src=src,
            dst=dst,
            at_ns=nothing,
            partition=nothing,
            offset=nothing,
            traced_ns=block.numbers("traced_at")[rows] * US_NS,
            discovery=block.numbers("cause")[rows] == DISCOVERY,
            complete=block.numbers("complete")[rows] != 0,
            addresses=addresses,
            hops=hops,
            rtts_ns=rtts_ns,
        )
        return batch, rows

    def _is_own(self, block: RecordColumns, row: int) -> bool:
        begin, length = block.arrays("cluster")[:, row].tolist()
        return block.data[begin : begin + length] == self._cluster.encode()

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


def _regular(block: RecordColumns) -> Bools:
    """Return which traces are in order, not too long, and answered by each hop or not complete."""
    counts = np.diff(block.item_ends, prepend=0)
    silent = block.items[block.item_wanted["address"].column] == NULL
    gaps = np.zeros(len(counts), np.bool_)
    gaps[np.repeat(np.arange(len(counts)), counts)[silent]] = True
    found: Bools = _plain(block) & (counts > 0) & (counts <= MAX_WHOLE)
    found &= ~gaps | (block.numbers("complete") == 0)
    return found


def _part(block: RecordColumns, rows: Bools) -> RecordColumns:
    """Return some of the traces of a block."""
    if rows.all():
        return block
    counts = np.diff(block.item_ends, prepend=0)
    return replace(
        block,
        columns=block.columns[:, rows],
        items=block.items[:, np.repeat(rows, counts)],
        item_ends=np.cumsum(counts[rows]),
    )


def _spans(begins: Int64s, lengths: Int64s) -> list[tuple[int, int]]:
    """Return where texts begin and end."""
    return list(zip(begins.tolist(), (begins + lengths).tolist(), strict=True))


def _names(data: bytes, begins: Int64s, lengths: Int64s) -> tuple[Int32s, list[str]]:
    """Return texts of ASCII as numbers, and by number each of the texts."""
    numbers, first = distinct_texts(data, begins, lengths)
    spans = _spans(begins[first], lengths[first])
    return numbers, [shared(data[begin:end].decode("ascii")) for begin, end in spans]


def _plain(block: RecordColumns) -> Bools:
    """Return of which traces the hops stand in order, each once."""
    ends = block.item_ends
    counts = np.diff(ends, prepend=0)
    ttls = block.items[block.item_wanted["ttl"].column]
    odd = ttls != np.arange(len(ttls)) - np.repeat(ends - counts, counts) + 1
    plain: Bools = counts <= MAX_HOPS
    plain[np.repeat(np.arange(len(ends)), counts)[odd]] = False
    return plain
