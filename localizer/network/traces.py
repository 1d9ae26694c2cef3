"""What a trace shows of its hops, and what is kept of it.

When 5-tuples were traced last: as long as it is evidence.
"""

from collections import defaultdict
from dataclasses import dataclass
from sys import intern
from typing import Final

from localizer.network.routes import KnownPath
from localizer.network.topology import Basis
from schemas.records import PathTrace
from schemas.units import SECOND_NS, us_to_ns

FlowKey = tuple[str, str, int]

# What path.trace.v1 holds at most.
MAX_HOPS: Final = 64


@dataclass(frozen=True, slots=True)
class HopProbe:
    """One probe of a trace: what it had to cross, and what became of it.

    `late_ns` is its round trip less the least seen to that hop in calm traces before; None
    where it did not answer or nothing is known from before. `target`: the last
    hop, the endpoint itself.
    """

    flow: FlowKey
    traced_ns: int
    components: tuple[str, ...]
    answered: bool
    rise_ns: int | None
    target: bool


@dataclass(frozen=True, slots=True)
class TraceFindings:
    """What traces say of a 5-tuple that is cut off, since that began.

    `traced`: there is one; `passed`: what packets have passed for certain while the target did
    not answer; `only_target_silent`: every hop answered but the last, in one of several, since
    a hop that forwards may keep silent now and then.
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
    # What was derived last, with what it was derived from.
    path: tuple[Basis, KnownPath] | None = None
    probes: tuple[tuple[int, ...], list[HopProbe]] | None = None


def key_of(src: str, dst: str, flow: int) -> FlowKey:
    """Return a 5-tuple's key; all of an endpoint share its name: to compare, and to hold."""
    return intern(src), intern(dst), flow


def trace_of(trace: PathTrace) -> Trace:
    """Return what a record tells of each hop; hops may be missing, or in any order."""
    hops = {hop.ttl: hop for hop in trace.hops if 1 <= hop.ttl <= MAX_HOPS}
    most = max(hops, default=0)
    found = [hops.get(ttl) for ttl in range(1, most + 1)]
    return Trace(
        traced_ns=us_to_ns(trace.traced_at),
        # Of a million traces few addresses are different ones.
        addresses=tuple(
            [None if hop is None or hop.address is None else intern(hop.address) for hop in found]
        ),
        rtts_ns=tuple([None if hop is None else hop.rtt_ns for hop in found]),
        complete=trace.complete,
    )


def keep(traces: list[Trace], new: Trace, most: int) -> None:
    """Insert by time what is not there yet; of too many, the oldest go."""
    if any(t.traced_ns == new.traced_ns and t.addresses == new.addresses for t in traces):
        return
    late = bool(traces) and new.traced_ns <= traces[-1].traced_ns
    traces.append(new)
    if late:
        traces.sort(key=lambda t: (t.traced_ns, tuple(a or "" for a in t.addresses)))
    del traces[: max(0, len(traces) - most)]


def rise_ns_of(trace: Trace, index: int, calm: list[Trace]) -> int | None:
    """Return a hop's round trip less the least in calm traces before; None: not known."""
    rtt_ns = trace.rtts_ns[index]
    earlier = [
        known
        for t in calm
        if index < len(t.rtts_ns)
        and (known := t.rtts_ns[index]) is not None
        and t.addresses[index] == trace.addresses[index]
    ]
    return None if rtt_ns is None or not earlier else rtt_ns - min(earlier)


# Longer than any verdict waits.
EVIDENCE_NS: Final = 120 * SECOND_NS


class TraceTimes:
    """Times of the latest traces, second by second."""

    def __init__(self) -> None:
        self._newest_ns = 0
        self._oldest_s = 0
        self._traced_ns: dict[FlowKey, int] = {}
        self._traced_in: defaultdict[int, set[FlowKey]] = defaultdict(set)

    def record_trace(self, key: FlowKey, traced_ns: int) -> None:
        """Remember when a 5-tuple was traced; forget what is no evidence any more."""
        before_ns = self._traced_ns.get(key)
        if before_ns is not None and before_ns // SECOND_NS != traced_ns // SECOND_NS:
            self._traced_in[before_ns // SECOND_NS].discard(key)
        self._traced_ns[key] = traced_ns
        self._traced_in[traced_ns // SECOND_NS].add(key)
        self._newest_ns = max(self._newest_ns, traced_ns)
        oldest = (self._newest_ns - EVIDENCE_NS) // SECOND_NS
        while self._oldest_s < oldest:
            for gone in self._traced_in.pop(self._oldest_s, ()):
                del self._traced_ns[gone]
            # Seconds without a trace are skipped.
            self._oldest_s = min(oldest, min(self._traced_in, default=oldest))

    def traced_since(self, since_ns: int, most: int) -> list[FlowKey]:
        """Return the 5-tuples that were traced since then, sorted: of more, the latest."""
        found: list[FlowKey] = []
        for second in sorted(self._traced_in, reverse=True):
            if second < since_ns // SECOND_NS or len(found) >= most:
                break
            found += sorted(k for k in self._traced_in[second] if self._traced_ns[k] >= since_ns)
        return sorted(found[:most])

    def last_ns(self, key: FlowKey) -> int | None:
        """Return when a 5-tuple was traced last; None: never, or so long ago that it is over."""
        return self._traced_ns.get(key)

    def none_since(self, key: FlowKey, since_ns: int) -> bool:
        """Say whether it is certain that a 5-tuple was not traced since then."""
        at_ns = self._traced_ns.get(key)
        return (self._oldest_s * SECOND_NS if at_ns is None else at_ns + 1) <= since_ns

    def forget_flow(self, key: FlowKey) -> None:
        """Forget a 5-tuple."""
        at_ns = self._traced_ns.pop(key, None)
        if at_ns is not None:
            self._traced_in[at_ns // SECOND_NS].discard(key)
