"""What is kept of path.trace.v1 records, and what the probes of a trace say.

Also the times of the latest traces per 5-tuple, for as long as traces count as evidence.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from localizer.network.routes import KnownPath
from localizer.network.topology import Basis
from schemas.columns.arrays import Int64s
from schemas.enums import TraceCause
from schemas.ids import FlowId
from schemas.process.names import shared
from schemas.records import PathTrace
from schemas.units import SECOND_NS, us_to_ns

# What path.trace.v1 holds at most.
MAX_HOPS: Final = 64
# Time for which traces are evidence: longer than any verdict waits.
EVIDENCE_NS: Final = 120 * SECOND_NS
# Complete traces kept per 5-tuple: one from before a fault must survive those made during it, and a
# latency baseline is the least of several.
REFERENCES: Final = 4
# Traces kept as latency baseline. Only traces without a cause count: traces that were triggered by
# latency, one every ten seconds, would soon replace all others.
BASELINE_REFERENCES: Final = 2
# Traces kept as evidence.
EVIDENCE: Final = 6


@dataclass(frozen=True, slots=True)
class HopProbe:
    """One probe of a trace: what it had to cross, and the outcome.

    Attributes
    ----------
    rise_ns
        Round trip less the least one to that hop in the baseline traces; None if unanswered or
        without a baseline.
    target
        Whether the hop is the endpoint itself.
    beyond
        What lies between the hop and the next one, and that one, if from this hop on none answered.
    """

    flow: FlowId
    traced_ns: int
    components: tuple[str, ...]
    answered: bool
    rise_ns: int | None
    target: bool
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceFindings:
    """What the traces since a cut began say about the 5-tuple.

    Attributes
    ----------
    traced
        Whether there is a trace.
    passed
        Components that packets have certainly passed while the target did not answer.
    only_target_silent
        Whether in one of several traces every hop but the target answered; a forwarding hop may
        miss a probe now and then.
    """

    traced: bool
    passed: frozenset[str]
    only_target_silent: bool


UNTRACED: Final = TraceFindings(False, frozenset(), False)


@dataclass(slots=True)
class Trace:
    """A trace as it is kept."""

    traced_ns: int
    addresses: tuple[str | None, ...]
    rtts_ns: tuple[int | None, ...]
    complete: bool
    # Cached results with the versions that they depend on.
    path: tuple[Basis, KnownPath] | None = None
    probes: tuple[tuple[int, ...], list[HopProbe]] | None = None
    # What its plain path crosses, and for which version of the topology: of one that was kept as a
    # row (`localizer.network.flow_rows`), until its path is asked for.
    crossed: tuple[int, tuple[str, ...]] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FlowTrace:
    """What is kept of a record: whose trace it is, and whether it was made without a cause."""

    key: FlowId
    discovery: bool
    trace: Trace


@dataclass(slots=True)
class FlowTraces:
    """The traces of a 5-tuple that count, each list by time.

    Attributes
    ----------
    seen_ns
        When it was last traced, or found to be still probed.
    complete
        The newest complete traces.
    baseline
        The newest complete ones that were made without a cause.
    recent
        The newest of all, as evidence.
    """

    seen_ns: int = 0
    complete: list[Trace] = field(default_factory=list)
    baseline: list[Trace] = field(default_factory=list)
    recent: list[Trace] = field(default_factory=list)

    def insert(self, trace: Trace, *, discovery: bool) -> None:
        """Insert a trace; in whatever order traces come, the same are kept."""
        if trace.complete:
            insert_by_time(self.complete, trace, REFERENCES)
            if discovery:
                insert_by_time(self.baseline, trace, BASELINE_REFERENCES)
        insert_by_time(self.recent, trace, EVIDENCE)
        since_ns = self.recent[-1].traced_ns - EVIDENCE_NS
        if self.recent[0].traced_ns < since_ns:
            self.recent = [t for t in self.recent if t.traced_ns >= since_ns]


def key_of(src: str, dst: str, flow: int) -> FlowId:
    """Return the key of a 5-tuple; equal ids are one object, which saves memory."""
    return shared(src), shared(dst), flow


def flow_trace_of(record: PathTrace) -> FlowTrace:
    """Return what is kept of a record."""
    key = key_of(record.src, record.dst, record.flow)
    return FlowTrace(key, record.cause is TraceCause.DISCOVERY, trace_of(record))


def trace_of(trace: PathTrace) -> Trace:
    """Return the trace of a record; its hops may be incomplete and in any order."""
    hops = {hop.ttl: hop for hop in trace.hops if 1 <= hop.ttl <= MAX_HOPS}
    most = max(hops, default=0)
    found = [hops.get(ttl) for ttl in range(1, most + 1)]
    return Trace(
        traced_ns=us_to_ns(trace.traced_at),
        # A million traces have few distinct addresses.
        addresses=tuple(
            [None if hop is None or hop.address is None else shared(hop.address) for hop in found]
        ),
        rtts_ns=tuple([None if hop is None else hop.rtt_ns for hop in found]),
        complete=trace.complete,
    )


def insert_by_time(traces: list[Trace], new: Trace, most: int) -> None:
    """Insert a trace by time unless it is there already; drop the oldest beyond `most`."""
    if not traces:
        traces.append(new)
        return
    if any(t.traced_ns == new.traced_ns and t.addresses == new.addresses for t in traces):
        return
    late = new.traced_ns <= traces[-1].traced_ns
    traces.append(new)
    if late:
        traces.sort(key=lambda t: (t.traced_ns, tuple(a or "" for a in t.addresses)))
    del traces[: max(0, len(traces) - most)]


def rise_ns_of(trace: Trace, index: int, baseline: list[Trace]) -> int | None:
    """Return how much a hop's round trip exceeds the baseline; None if unknown."""
    rtt_ns = trace.rtts_ns[index]
    earlier = [
        known
        for t in baseline
        if index < len(t.rtts_ns)
        and (known := t.rtts_ns[index]) is not None
        and t.addresses[index] == trace.addresses[index]
    ]
    return None if rtt_ns is None or not earlier else rtt_ns - min(earlier)


class TraceTimes:
    """When each 5-tuple was last traced, grouped by second."""

    def __init__(self) -> None:
        self._newest_ns = 0
        self._oldest_s = 0
        self._traced_ns: dict[FlowId, int] = {}
        self._traced_in: defaultdict[int, set[FlowId]] = defaultdict(set)

    def record_trace(self, key: FlowId, traced_ns: int) -> None:
        """Record the time of a 5-tuple's latest trace; forget times beyond `EVIDENCE_NS`."""
        before_ns = self._traced_ns.get(key)
        if before_ns is not None and before_ns // SECOND_NS != traced_ns // SECOND_NS:
            self._traced_in[before_ns // SECOND_NS].discard(key)
        self._traced_ns[key] = traced_ns
        self._traced_in[traced_ns // SECOND_NS].add(key)
        self._forget_old(traced_ns)

    def record_traces(self, keys: Sequence[FlowId], traced_ns: Int64s) -> None:
        """Do the same for many 5-tuples, each once."""
        if not keys:
            return
        before, after = map(self._traced_ns.get, keys), traced_ns.tolist()
        for key, before_ns, after_ns in zip(keys, before, after, strict=True):
            if before_ns is not None and before_ns // SECOND_NS != after_ns // SECOND_NS:
                self._traced_in[before_ns // SECOND_NS].discard(key)
        self._traced_ns.update(zip(keys, after, strict=True))
        seconds = traced_ns // SECOND_NS
        for second in np.unique(seconds).tolist():
            rows = np.flatnonzero(seconds == second)
            mine = keys if len(rows) == len(keys) else [keys[row] for row in rows.tolist()]
            self._traced_in[second].update(mine)
        self._forget_old(int(traced_ns.max()))

    def _forget_old(self, traced_ns: int) -> None:
        self._newest_ns = max(self._newest_ns, traced_ns)
        oldest = (self._newest_ns - EVIDENCE_NS) // SECOND_NS
        while self._oldest_s < oldest:
            for gone in self._traced_in.pop(self._oldest_s, ()):
                del self._traced_ns[gone]
            # Skip seconds without a trace.
            self._oldest_s = min(oldest, min(self._traced_in, default=oldest))

    def traced_since(
        self, since_ns: int, most: int, among: Callable[[FlowId], bool]
    ) -> list[FlowId]:
        """Return `PathBook.traced_since`."""
        found: list[FlowId] = []
        for second in sorted(self._traced_in, reverse=True):
            if second < since_ns // SECOND_NS or len(found) >= most:
                break
            traced = (k for k in self._traced_in[second] if self._traced_ns[k] >= since_ns)
            found += sorted(filter(among, traced))
        return sorted(found[:most])

    def last_ns(self, key: FlowId) -> int | None:
        """Return when a 5-tuple was last traced; None if never or longer ago than `EVIDENCE_NS`."""
        return self._traced_ns.get(key)

    def none_since(self, key: FlowId, since_ns: int) -> bool:
        """Return whether a 5-tuple was certainly not traced since a time."""
        at_ns = self._traced_ns.get(key)
        return (self._oldest_s * SECOND_NS if at_ns is None else at_ns + 1) <= since_ns

    def forget_flow(self, key: FlowId) -> None:
        """Forget a 5-tuple."""
        at_ns = self._traced_ns.pop(key, None)
        if at_ns is not None:
            traced = self._traced_in[at_ns // SECOND_NS]
            traced.discard(key)
            # The number of a second that stays can hold a megabyte of free memory back.
            if not traced:
                del self._traced_in[at_ns // SECOND_NS]
