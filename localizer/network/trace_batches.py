"""Many traces as columns: whole ones, as nearly all are, and those that broke off.

A trace is whole if it is complete, and each of its hops answered. Of complete ones with gaps, and
of longer ones, objects are made (`localizer.network.traces`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from localizer.network.traces import FlowTrace, Trace
from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.columns.interpreter import NULL
from schemas.ids import FlowId

# Hops of a whole trace, the target included. A fabric of three tiers has five switches between two
# hosts, and each end may have an address for its virtual switch.
MAX_WHOLE: Final = 8
# Pads the hops.
NO_HOP: Final = -1
# A hop that did not answer.
SILENT: Final = -2

Rows = TypeVar("Rows", Int32s, Int64s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBatch:
    """Traces, whole or broken off, from one or several polls.

    Attributes
    ----------
    keys
        Their 5-tuples.
    ends
        Distinct endpoints; after batches were joined some may stand there twice, as addresses may.
    src, dst : (n,) int32
        Numbers of the endpoints of each 5-tuple.
    at_ns : (n,) int64
        Effective times.
    partition, offset : (n,) int64
        Places in the log.
    traced_ns : (n,) int64
        When they were finished.
    discovery : (n,) bool
        Whether they were made without a cause.
    complete : (n,) bool
        Whether the target answered, and so did all hops; the others broke off.
    addresses
        Distinct addresses that answered.
    hops : (n, w) int32
        Numbers of the addresses by ttl from 1, or `SILENT`, padded with `NO_HOP`; w is at most
        `MAX_WHOLE`.
    rtts_ns : (n, w) int64
        Round trips, `NULL` where there is none.
    """

    keys: list[FlowId]
    ends: list[str]
    src: Int32s
    dst: Int32s
    at_ns: Int64s
    partition: Int64s
    offset: Int64s
    traced_ns: Int64s
    discovery: Bools
    complete: Bools
    addresses: list[str]
    hops: Int32s
    rtts_ns: Int64s

    def __len__(self) -> int:
        return len(self.keys)

    def where(self, wanted: Bools) -> "TraceBatch":
        """Return the traces that are wanted."""
        return self if wanted.all() else self.select(np.flatnonzero(wanted))

    def distinct(self) -> Iterator["TraceBatch"]:
        """Yield the first traces of all 5-tuples, then the second ones, and so on."""
        if len(set(self.keys)) == len(self):
            yield self
            return
        before: Counter[FlowId] = Counter()
        ranks = np.zeros(len(self), np.int64)
        for row, key in enumerate(self.keys):
            ranks[row] = before[key]
            before[key] += 1
        for rank in range(int(ranks.max()) + 1):
            yield self.where(ranks == rank)

    def select(self, rows: Int64s) -> "TraceBatch":
        """Return some of the traces, in that order."""
        keys = self.keys
        ends, (src, dst) = _named(self.ends, np.stack([self.src[rows], self.dst[rows]]))
        addresses, hops = _named(self.addresses, self.hops[rows])
        return TraceBatch(
            keys=[keys[row] for row in rows.tolist()],
            ends=ends,
            src=src,
            dst=dst,
            at_ns=self.at_ns[rows],
            partition=self.partition[rows],
            offset=self.offset[rows],
            traced_ns=self.traced_ns[rows],
            discovery=self.discovery[rows],
            complete=self.complete[rows],
            addresses=addresses,
            hops=hops,
            rtts_ns=self.rtts_ns[rows],
        )

    def between(self, known: Sequence[bool]) -> Bools:
        """Return which 5-tuples have ends that are both known.

        Parameters
        ----------
        known
            By number of an end whether it is.
        """
        found = np.array(known, np.bool_)
        both: Bools = found[self.src] & found[self.dst]
        return both

    def in_order(self) -> "TraceBatch":
        """Return the traces by effective time and place in the log."""
        order = np.lexsort((self.offset, self.partition, self.at_ns))
        return self if (np.diff(order) > 0).all() else self.select(order)

    def flow_traces(self, rows: Sequence[int]) -> Iterator[FlowTrace]:
        """Yield what is kept of some of the traces as objects."""
        for row in rows:
            count = int((self.hops[row] != NO_HOP).sum())
            hops = self.hops[row, :count].tolist()
            trace = trace_of_row(
                int(self.traced_ns[row]),
                [None if number == SILENT else self.addresses[number] for number in hops],
                self.rtts_ns[row, :count].tolist(),
                complete=bool(self.complete[row]),
            )
            yield FlowTrace(self.keys[row], bool(self.discovery[row]), trace)


def _named(names: list[str], numbers: Int32s) -> tuple[list[str], Int32s]:
    """Return names without those that no number says, and the numbers of what is left.

    All names, if these are not much more than the numbers. What is below 0 stays.
    """
    if len(names) <= numbers.size:
        return names, numbers
    used = np.unique(numbers)
    used = used[used >= 0]
    left = np.where(numbers < 0, numbers, np.searchsorted(used, numbers)).astype(np.int32)
    return [names[number] for number in used.tolist()], left


def trace_of_row(
    traced_ns: int, addresses: Sequence[str | None], rtts_ns: Sequence[int], *, complete: bool
) -> Trace:
    """Return the object of a trace."""
    known = tuple([None if rtt_ns == NULL else rtt_ns for rtt_ns in rtts_ns])
    return Trace(traced_ns, tuple(addresses), known, complete)


def joined(batches: Sequence[TraceBatch]) -> TraceBatch:
    """Return the traces of several batches as one, in order."""
    if len(batches) == 1:
        return batches[0]
    width = max(batch.hops.shape[1] for batch in batches)
    # Numbers of addresses and of endpoints go on from batch to batch.
    hops, src, dst = [], [], []
    addresses: list[str] = []
    ends: list[str] = []
    for batch in batches:
        own = np.where(batch.hops < 0, batch.hops, batch.hops + np.int32(len(addresses)))
        hops.append(padded(own, width, NO_HOP))
        src.append(batch.src + np.int32(len(ends)))
        dst.append(batch.dst + np.int32(len(ends)))
        addresses += batch.addresses
        ends += batch.ends
    return TraceBatch(
        keys=[key for batch in batches for key in batch.keys],
        ends=ends,
        src=np.concatenate(src),
        dst=np.concatenate(dst),
        at_ns=np.concatenate([batch.at_ns for batch in batches]),
        partition=np.concatenate([batch.partition for batch in batches]),
        offset=np.concatenate([batch.offset for batch in batches]),
        traced_ns=np.concatenate([batch.traced_ns for batch in batches]),
        discovery=np.concatenate([batch.discovery for batch in batches]),
        complete=np.concatenate([batch.complete for batch in batches]),
        addresses=addresses,
        hops=np.concatenate(hops),
        rtts_ns=np.concatenate([padded(batch.rtts_ns, width, NULL) for batch in batches]),
    )


def padded(rows: Rows, width: int, fill: int) -> Rows:
    """Return rows with as many columns: themselves if they have them."""
    if rows.shape[1] == width:
        return rows
    found = np.full((len(rows), width), fill, rows.dtype)
    found[:, : rows.shape[1]] = rows
    return found
