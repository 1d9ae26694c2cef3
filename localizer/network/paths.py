"""Which components a 5-tuple crosses, and what its traces say about each of them.

A path is known from the newest complete trace, else from the topology as far as
the topology alone decides it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from localizer.network.routes import NOTHING, KnownPath, derived, traced
from localizer.network.topology import Basis, Topology
from localizer.network.traces import (
    EVIDENCE_NS,
    UNTRACED,
    FlowKey,
    HopProbe,
    Trace,
    TraceFindings,
    TraceTimes,
    keep,
    key_of,
    rise_ns_of,
    trace_of,
)
from schemas.enums import TraceCause
from schemas.records import PathTrace

__all__ = ["EVIDENCE_NS", "FlowKey", "PathBook"]

# Complete traces kept for each 5-tuple: one from before a fault survives those
# that were made during it, and a baseline is the least of several.
REFERENCES: Final = 4
# Round trips of healthy hops are known from traces without a cause alone: those for
# slowness, one every ten seconds, would soon be all that is kept.
CALM_REFERENCES: Final = 2
# Traces kept as evidence, and for how long: longer than any verdict waits.
EVIDENCE: Final = 6
# Of these, so many say what is passed now: more than one, since a hop may keep silent.
LATEST: Final = 2
# Paths that traces share: for each 5-tuple another one than now, and some to begin with.
SHARED_EACH: Final = 2
SHARED_LEAST: Final = 1_024
# 5-tuples remembered. Eight targets of two 5-tuples for 65,536 RNICs are a million;
# beyond the bound the one traced longest ago is forgotten.
MAX_FLOWS: Final = 2_000_000


@dataclass(slots=True)
class _Flow:
    complete: list[Trace] = field(default_factory=list)
    calm: list[Trace] = field(default_factory=list)
    recent: list[Trace] = field(default_factory=list)
    # As of a topology, since when, and whether there was a trace.
    account: tuple[tuple[Basis, int, bool], TraceFindings] | None = None


class PathBook:
    """Traces of all 5-tuples.

    Attributes
    ----------
    unknown_addresses
        Hops that answered with an address that no component of the topology has.
    forgotten
        5-tuples dropped because there were too many.
    """

    def __init__(self, topology: Topology, max_flows: int = MAX_FLOWS) -> None:
        self.unknown_addresses = 0
        self.forgotten = 0
        self._topology = topology
        self._max_flows = max_flows
        self._flows: OrderedDict[FlowKey, _Flow] = OrderedDict()
        # 5-tuples whose path may have changed, since last asked.
        self._changed: set[FlowKey] = set()
        self._times = TraceTimes()
        # Traces that saw the same share their path.
        self._shared: dict[
            tuple[str, str, tuple[str | None, ...], bool], tuple[Basis, KnownPath]
        ] = {}
        self._shared_version = -1
        self._untraced: dict[tuple[str, str], tuple[Basis, KnownPath]] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def add_trace(self, trace: PathTrace) -> None:
        """Take in a trace; the order in which traces come does not matter."""
        key = key_of(trace.src, trace.dst, trace.flow)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow()
        self._flows.move_to_end(key)
        made = trace_of(trace)
        # The target need not be in the topology: the record names it.
        for address in made.addresses[:-1] if trace.complete else made.addresses:
            if address is not None and self._topology.at_address(address) is None:
                self.unknown_addresses += 1
        if trace.complete:
            before = self.path(key) if flow.complete else None
            if before is not None and made.addresses == flow.complete[-1].addresses:
                made.path = flow.complete[-1].path
            keep(flow.complete, made, REFERENCES)
            if trace.cause is TraceCause.DISCOVERY:
                keep(flow.calm, made, CALM_REFERENCES)
            # One that is the same, but another object, is renewed in the index at no cost.
            if before is None or before.components is not self.path(key).components:
                self._changed.add(key)
        flow.account = None
        keep(flow.recent, made, EVIDENCE)
        newest_ns = flow.recent[-1].traced_ns
        flow.recent = [t for t in flow.recent if t.traced_ns >= newest_ns - EVIDENCE_NS]
        self._times.record_trace(key, newest_ns)
        while len(self._flows) > self._max_flows:
            gone, _ = self._flows.popitem(last=False)
            self._times.forget_flow(gone)
            self._changed.add(gone)
            self.forgotten += 1

    def pop_changes(self) -> set[FlowKey]:
        """Return the 5-tuples whose path may have changed since the last call.

        Not those whose path is another one by a change of the topology.
        """
        found, self._changed = self._changed, set()
        return found

    def traced_since(self, since_ns: int, most: int = MAX_FLOWS) -> list[FlowKey]:
        """Return the 5-tuples that were traced since then, sorted: of more, the latest."""
        return self._times.traced_since(since_ns, most)

    def traced_ns(self, key: FlowKey) -> int | None:
        """Return when a 5-tuple was traced last; None: never, or so long ago that it is over."""
        return self._times.last_ns(key)

    def is_traced(self, key: FlowKey) -> bool:
        """Say whether a complete trace of the 5-tuple is known."""
        flow = self._flows.get(key)
        return flow is not None and bool(flow.complete)

    def path(self, key: FlowKey, before_ns: int | None = None) -> KnownPath:
        """Return the path of a 5-tuple.

        Parameters
        ----------
        before_ns
            Prefer the newest trace from before this time: what the path was when
            something went wrong on it, not how traffic was routed around.
        """
        flow = self._flows.get(key)
        if flow is None or not flow.complete:
            return self._by_topology(key[0], key[1])
        chosen = flow.complete[-1]
        if before_ns is not None and chosen.traced_ns >= before_ns:
            chosen = next((t for t in reversed(flow.complete) if t.traced_ns < before_ns), chosen)
        return self._resolved(key, chosen)

    def hop_probes(
        self, key: FlowKey, since_ns: int, healthy_ns: int, latest: int = EVIDENCE
    ) -> list[HopProbe]:
        """Return what traces say of each hop.

        A hop that is silent counts only where the path is known and that node
        answered before: many never do.

        Parameters
        ----------
        since_ns
            Traces finished from then on are told.
        healthy_ns
            Those from before then say what is normal.
        latest
            At most so many of the latest traces are told.
        """
        flow = self._flows.get(key)
        if flow is None:
            return []
        before = [t for t in flow.complete if t.traced_ns < healthy_ns]
        model = (before or flow.complete[:1])[-1:]
        # Of a cluster that was never calm: whatever was before.
        calm = [t for t in flow.calm if t.traced_ns < healthy_ns] or before
        basis = (
            *self._topology.basis(key[0], key[1]),
            len(calm),
            *(t.traced_ns for t in (*calm, *model)),
        )
        found: list[HopProbe] = []
        for trace in flow.recent[-latest:]:
            if trace.traced_ns < since_ns:
                continue
            if trace.probes is None or trace.probes[0] != basis:
                trace.probes = (basis, self._probes(key, trace, calm, model))
            found += trace.probes[1]
        return found

    def findings_since(self, key: FlowKey, since_ns: int) -> TraceFindings:
        """Return what the traces since then say of a 5-tuple that is cut off.

        Of those that broke off: everything before the last hop that answered has been passed.
        Not that hop itself: a switch answers also when it forwards nothing.
        """
        flow = None if self._times.none_since(key, since_ns) else self._flows.get(key)
        if flow is None:
            return UNTRACED
        traced = (self._times.last_ns(key) or since_ns - 1) >= since_ns
        basis = (self._topology.basis(key[0], key[1]), since_ns, traced)
        if flow.account is None or flow.account[0] != basis:
            broken = list(self._broken_off(key, since_ns))
            account = TraceFindings(
                traced=traced,
                passed=frozenset(
                    component
                    for usual, last in broken
                    for component in usual.prefixes[last]
                    if component != usual.nodes[last]
                ),
                only_target_silent=any(last == len(u.nodes) - 2 for u, last in broken),
            )
            flow.account = basis, account if traced or broken else UNTRACED
        return flow.account[1]

    def _broken_off(self, key: FlowKey, since_ns: int) -> Iterator[tuple[KnownPath, int]]:
        """Yield traces that broke off since then: the usual path, the last hop that answered."""
        flow = self._flows.get(key)
        if flow is None or not flow.complete:
            return
        usual = self._resolved(key, flow.complete[-1])
        # What was passed a while ago may be broken since.
        for trace in flow.recent[-LATEST:]:
            if trace.traced_ns < since_ns or trace.complete:
                continue
            last = len(trace.addresses) - 1
            while last >= 0 and trace.addresses[last] is None:
                last -= 1
            if not 0 <= last < len(usual.nodes):
                continue
            # Only along the way that was known before: another one is another matter.
            if self._topology.at_address(trace.addresses[last] or "") == usual.nodes[last]:
                yield usual, last

    def _probes(
        self, key: FlowKey, trace: Trace, calm: list[Trace], model: list[Trace]
    ) -> list[HopProbe]:
        own = self._resolved(key, trace)
        usual = self._resolved(key, model[0]) if model else NOTHING
        probes: list[HopProbe] = []
        for index, address in enumerate(trace.addresses):
            expected = usual.nodes[index] if index < len(usual.nodes) else None
            target = expected is not None and index == len(usual.nodes) - 1
            late_ns = None
            if address is None:
                if expected is None:
                    continue
                crossed = usual.prefixes[index]
            elif expected is not None and own.nodes[index] in (expected, None):
                crossed = usual.prefixes[index]
                late_ns = rise_ns_of(trace, index, calm)
            else:
                if expected is not None:
                    # Another way than before: from here on only this trace counts.
                    usual = NOTHING
                crossed = own.prefixes[index]
                target = trace.complete and index == len(trace.addresses) - 1
            probes.append(
                HopProbe(key, trace.traced_ns, crossed, address is not None, late_ns, target)
            )
        return probes

    def _resolved(self, key: FlowKey, trace: Trace) -> KnownPath:
        topology = self._topology
        basis = topology.basis(key[0], key[1])
        if trace.path is None or trace.path[0] != basis:
            most = min(self._max_flows, SHARED_LEAST + SHARED_EACH * len(self._flows))
            if self._shared_version != topology.fabric_version or len(self._shared) >= most:
                self._shared, self._shared_version = {}, topology.fabric_version
            hops = (key[0], key[1], trace.addresses, trace.complete)
            found = self._shared.get(hops)
            if found is None or found[0] != basis:
                path = traced(topology, key[0], key[1], trace.addresses, complete=trace.complete)
                found = self._shared[hops] = basis, path
            trace.path = found
        return trace.path[1]

    def _by_topology(self, src: str, dst: str) -> KnownPath:
        basis = self._topology.basis(src, dst)
        known = self._untraced.get((src, dst))
        if known is not None and known[0] == basis:
            return known[1]
        if len(self._untraced) >= self._max_flows:
            self._untraced.clear()
        path = derived(self._topology, src, dst)
        self._untraced[src, dst] = (basis, path)
        return path
