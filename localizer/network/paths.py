"""The traces of all 5-tuples, and the path of each: which components it crosses.

In: path.trace.v1 records in any order. Out: a `KnownPath` per 5-tuple, from its newest complete
trace, or else from the topology as far as that determines the path.

Of a 5-tuple whose traces all show one path rows of arrays are kept (`localizer.network.flow_rows`),
until it is asked for single hops.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from typing import Final, NamedTuple

import numpy as np

from localizer.network import flow_rows
from localizer.network.flow_rows import FlowRows
from localizer.network.plain_routes import Ends, PlainRoutes
from localizer.network.routes import NOTHING, KnownPath, derived, traced
from localizer.network.topology import Basis, Topology
from localizer.network.trace_batches import TraceBatch
from localizer.network.traces import (
    EVIDENCE,
    EVIDENCE_NS,
    UNTRACED,
    FlowTrace,
    FlowTraces,
    HopProbe,
    Trace,
    TraceFindings,
    TraceTimes,
    flow_trace_of,
    rise_ns_of,
)
from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.ids import FlowId
from schemas.process import memory
from schemas.records import PathTrace

__all__ = ["EVIDENCE_NS", "PathBook"]

# Number of latest traces that say what packets pass now: more than one, since a hop may miss a
# probe.
LATEST: Final = 2
# Cached paths of 5-tuples without a trace: so many for each 5-tuple with one, and a minimum.
UNTRACED_EACH: Final = 2
UNTRACED_LEAST: Final = 1_024
# 5-tuples kept. Eight targets with two 5-tuples each for 65,536 RNICs are a million.
MAX_FLOWS: Final = 2_000_000
# Of these, 5-tuples with an end that nobody registered.
MAX_STRANGERS: Final = 16_384


# What a row crosses of which nobody has asked.
NOT_ASKED: Final[tuple[int, tuple[str, ...]]] = (-1, ())
# What `PathBook.hop_probes` derives its result from: the traces that count, those that may be a
# baseline, and the topology.
TraceBasis = tuple[tuple[Trace, ...], tuple[Trace, ...], tuple[Trace, ...], Basis] | None


class FindingsBasis(NamedTuple):
    """What findings hold for: `traced` says whether there is any trace since then."""

    topology: Basis
    since_ns: int
    traced: bool


CachedFindings = tuple[FindingsBasis, TraceFindings]


class PathBook:
    """The traces of all 5-tuples.

    Attributes
    ----------
    unknown_addresses
        Hops that answered with an address that no component of the topology has.
    refused
        Traces of 5-tuples beyond the bounds.
    """

    def __init__(self, topology: Topology, max_flows: int = MAX_FLOWS) -> None:
        self.unknown_addresses = 0
        self.refused = 0
        self._topology = topology
        self._max_flows = max_flows
        # The one traced longest ago first; a number is a row of `_rows`.
        self._flows: OrderedDict[FlowId, FlowTraces | int] = OrderedDict()
        self._rows = FlowRows()
        self._findings: dict[FlowId, CachedFindings] = {}
        self._plain = PlainRoutes(topology)
        # What rows cross that were asked for, and the version of the topology for which.
        self._asked: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._strangers: set[FlowId] = set()
        # 5-tuples whose path may have changed since `pop_changes`.
        self._changed: dict[FlowId, None] = {}
        self._times = TraceTimes()
        self._untraced: dict[tuple[str, str], tuple[Basis, KnownPath]] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def add_trace(self, trace: PathTrace, now_ns: int = 0, *, registered: bool = True) -> None:
        """Add a trace; the result does not depend on the order of traces.

        Parameters
        ----------
        now_ns
            Present.
        registered
            Whether both ends are registered.
        """
        self.add(flow_trace_of(trace), now_ns, registered=registered)

    def add(self, found: FlowTrace, now_ns: int, *, registered: bool) -> None:
        """Do the same with what is kept of a record."""
        key, made = found.key, found.trace
        flow = self._flow(key)
        if registered and self._strangers:
            self._strangers.discard(key)
        if flow is None:
            full = not registered and len(self._strangers) >= MAX_STRANGERS
            if full or len(self._flows) >= self._max_flows:
                self.refused += 1
                return
            flow = self._flows[key] = FlowTraces()
            if not registered:
                self._strangers.add(key)
        else:
            self._flows.move_to_end(key)
        flow.seen_ns = now_ns
        if made.complete:
            shown, nodes = made.addresses[:-1], self._add_complete(flow, found).nodes
        else:
            shown, nodes = made.addresses, tuple(self._topology.at_addresses(made.addresses))
            flow.insert(made, discovery=found.discovery)
        # The target's address need not be in the topology: the record names the target.
        if None in nodes:
            self.unknown_addresses += nodes.count(None) - shown.count(None)
        self._findings.pop(key, None)
        self._times.record_trace(key, flow.recent[-1].traced_ns)

    def add_batch(self, batch: TraceBatch, now_ns: int) -> None:
        """Add traces of registered 5-tuples: as one by one, for much less where rows hold them.

        Parameters
        ----------
        now_ns
            Present.
        """
        flows = self._flows
        for part in batch.distinct():
            known = list(map(flows.get, part.keys))
            rows = np.array([row if isinstance(row, int) else -1 for row in known], np.int64)
            held = rows >= 0
            new = part.complete & np.array([flow is None for flow in known], np.bool_)
            if len(flows) + int(new.sum()) > self._max_flows:
                new[:] = False
            if new.any():
                new[new] = self._add_first(part.where(new), now_ns)
            if held.any():
                held[held] = self._add_later(part.where(held), rows[held], now_ns)
            for found in part.flow_traces(np.flatnonzero(~(new | held)).tolist()):
                self.add(found, now_ns, registered=True)

    def _add_first(self, batch: TraceBatch, now_ns: int) -> Bools:
        """Add whole traces of new 5-tuples that show their paths plainly; return which they are."""
        crossed, plain = self._plain.crossed(
            Ends(batch.ends, batch.src, batch.dst), batch.hops, batch.addresses
        )
        if not plain.any():
            return plain
        if not plain.all():
            batch, crossed = batch.where(plain), crossed[plain]
        rows = self._rows.add_flows(batch, now_ns)
        self._rows.set_crossed(np.array(rows, np.int64), crossed, self._topology.version)
        self._flows.update(zip(batch.keys, rows, strict=True))
        self._changed |= dict.fromkeys(batch.keys)
        self._times.record_traces(batch.keys, batch.traced_ns)
        return plain

    def _add_later(self, batch: TraceBatch, rows: Int64s, now_ns: int) -> Bools:
        """Add traces of 5-tuples that have rows; return which show the paths that these have."""
        good = self._bring_up_to_date(batch.keys, rows) & self._rows.shows_path(rows, batch)
        batch = batch.where(good)
        newest_ns, crowded = self._rows.add_traces(rows[good], batch, now_ns)
        for key in batch.keys:
            self._flows.move_to_end(key)
            self._findings.pop(key, None)
        self._times.record_traces(batch.keys, newest_ns)
        for number in crowded:
            self._flow(batch.keys[number])
        return good

    def plain_rows(self, keys: Sequence[FlowId]) -> tuple[Int32s, Bools]:
        """Return what the paths of many 5-tuples cross, of those kept as rows of arrays.

        Returns
        -------
        crossed : (k, most) int32
            Numbers of components in order (`component_names`), padded with 0, of those found.
        found : (n,) bool
            Which 5-tuples were found; `components` knows the others.
        """
        known = self._flows.get
        rows = np.array([row if isinstance(row, int) else -1 for row in map(known, keys)], np.int64)
        found = rows >= 0
        if found.any():
            places = np.flatnonzero(found)
            found[places] = self._bring_up_to_date([keys[n] for n in places.tolist()], rows[places])
        return self._rows.crossed[rows[found]], found

    @property
    def component_names(self) -> list[str]:
        """Ids of the components by the numbers of the last `plain_rows`."""
        return self._plain.names

    def _bring_up_to_date(self, keys: Sequence[FlowId], rows: Int64s) -> Bools:
        """Compute what rows cross where the topology has changed; return which are plain paths."""
        stale = np.flatnonzero(self._rows.version[rows] != self._topology.version)
        stale = np.array(
            [
                n
                for n in stale.tolist()
                if not self._is_fresh(keys[n], int(self._rows.version[rows[n]]))
            ],
            np.int64,
        )
        if len(stale):
            crossed, _ = self._plain.crossed(
                Ends.of([keys[n] for n in stale.tolist()]),
                self._rows.hops_of(rows[stale]),
                self._rows.addresses,
            )
            self._rows.set_crossed(rows[stale], crossed, self._topology.version)
        found: Bools = self._rows.crossed[rows, 0] != flow_rows.NOTHING
        return found

    def _is_fresh(self, key: FlowId, version: int) -> bool:
        """Return whether what a plain path crosses is what it was in a version of the topology."""
        fabric, src, dst = self._topology.basis(key[0], key[1])
        return fabric <= version and 0 < src <= version and 0 < dst <= version

    def _flow(self, key: FlowId) -> FlowTraces | None:
        """Return what is known of a 5-tuple as objects, from now on."""
        flow = self._flows.get(key)
        if not isinstance(flow, int):
            return flow
        found = self._flows[key] = self._objects(key, flow)
        self._drop_row(flow)
        return found

    def _objects(self, key: FlowId, row: int) -> FlowTraces:
        """Return the traces of a row as objects."""
        found = FlowTraces(int(self._rows.seen_ns[row]))
        for trace, discovery in self._rows.traces(row):
            found.insert(trace, discovery=discovery)
        newest = found.complete[-1]
        newest.crossed = self._asked.get(row)
        # Of others the path is computed when somebody asks: in a storm few are asked for.
        if len(found.complete) > 1:
            self._resolved(key, newest)
            for trace in found.complete:
                trace.path = newest.path
        return found

    def _row_components(self, key: FlowId, row: int) -> tuple[str, ...] | None:
        """Return what the path of a row crosses; None if the row does not say."""
        version = self._topology.version
        known = self._asked.get(row)
        if known is not None and known[0] == version:
            return known[1]
        if not self._is_fresh(key, int(self._rows.version[row])):
            return None
        names = self._plain.names
        found = tuple([names[one] for one in self._rows.crossed[row].tolist() if one])
        if not found:
            return None
        if known is not None and known[1] == found:
            found = known[1]
        self._asked[row] = version, found
        return found

    def _drop_row(self, row: int) -> None:
        self._rows.drop(row)
        self._asked.pop(row, None)

    def _add_complete(self, flow: FlowTraces, found: FlowTrace) -> KnownPath:
        """Add a complete trace to those of its 5-tuple; return its path."""
        key, made = found.key, found.trace
        before = self.path(key) if flow.complete else None
        if before is not None and made.addresses == flow.complete[-1].addresses:
            made.path = flow.complete[-1].path
        # At once, while what it is made of is in the processor's cache.
        path = self._resolved(key, made)
        flow.insert(made, discovery=found.discovery)
        # A path that is equal but another object is updated in the index, too, at no cost.
        if before is None or before.components is not self.path(key).components:
            self._changed[key] = None
        return path

    def forget_ends(self, gone: Set[str]) -> None:
        """Forget the 5-tuples from and to some endpoints; looks at all 5-tuples."""
        for key in [k for k in self._flows if k[0] in gone or k[1] in gone]:
            self._forget_flow(key)

    def forget_untraced(
        self, before_ns: int, now_ns: int = 0, probed: Container[FlowId] = ()
    ) -> None:
        """Forget the 5-tuples that were last traced before a time, except those still probed.

        An agent may trace again only what loses probes. If the others were forgotten, what a
        component loses would be compared with nothing.
        """
        while self._flows:
            key, flow = next(iter(self._flows.items()))
            seen_ns = self._rows.seen_ns[flow] if isinstance(flow, int) else flow.seen_ns
            if seen_ns >= before_ns:
                break
            if key in probed:
                if isinstance(flow, int):
                    self._rows.seen_ns[flow] = now_ns
                else:
                    flow.seen_ns = now_ns
                self._flows.move_to_end(key)
            else:
                self._forget_flow(key)
        # Paths of what departed stay in the cache otherwise.
        if len(self._untraced) > UNTRACED_LEAST + UNTRACED_EACH * len(self._flows):
            self._untraced = {}
        self._rows.forget_addresses()
        self._plain.forget_departed()
        memory.shrink_tables(self)
        memory.shrink_tables(self._times)

    def _forget_flow(self, key: FlowId) -> None:
        flow = self._flows.pop(key)
        if isinstance(flow, int):
            self._drop_row(flow)
        self._strangers.discard(key)
        self._findings.pop(key, None)
        self._times.forget_flow(key)
        self._changed[key] = None

    def pop_changes(self) -> dict[FlowId, None]:
        """Return the 5-tuples with a new path since the last call, in the order of their traces.

        Changes by the topology are not included.
        """
        found, self._changed = self._changed, {}
        return found

    def traced_since(
        self,
        since_ns: int,
        most: int = MAX_FLOWS,
        *,
        among: Callable[[FlowId], bool] = lambda _: True,
    ) -> list[FlowId]:
        """Return the 5-tuples traced since a time, sorted; of more than `most` the latest.

        `among`: only those of which it is true.
        """
        return self._times.traced_since(since_ns, most, among)

    def traced_ns(self, key: FlowId) -> int | None:
        """Return when a 5-tuple was last traced; None if never or longer ago than `EVIDENCE_NS`."""
        return self._times.last_ns(key)

    def is_traced(self, key: FlowId) -> bool:
        """Return whether a complete trace of the 5-tuple is known."""
        flow = self._flows.get(key)
        return isinstance(flow, int) or (flow is not None and bool(flow.complete))

    def broke_off_at(self, key: FlowId) -> str | None:
        """Return the last hop that answered the latest trace of a 5-tuple that was never whole.

        None if one was complete, or if no hop of the topology answered.
        """
        flow = self._flows.get(key)
        if flow is None or isinstance(flow, int) or flow.complete or not flow.recent:
            return None
        answered = (a for a in reversed(flow.recent[-1].addresses) if a is not None)
        last = next(answered, None)
        return None if last is None else self._topology.at_address(last)

    def components(self, key: FlowId, before_ns: int | None = None) -> tuple[str, ...]:
        """Return what the path of a 5-tuple crosses: the same object while nothing changes.

        Parameters
        ----------
        before_ns
            As for `path`.
        """
        flow = self._flows.get(key)
        if isinstance(flow, int):
            found = self._row_components(key, flow)
            if found is not None:
                return found
        elif flow is not None and flow.complete:
            trace = _chosen(flow, before_ns)
            if trace.path is None and trace.crossed is not None:
                version, found = trace.crossed
                if version == self._topology.version or self._is_fresh(key, version):
                    return found
        return self.path(key, before_ns).components

    def look_up(self, keys: Iterable[FlowId]) -> None:
        """Prepare `components` of many 5-tuples, for less than one by one."""
        version = self._topology.version
        rows: dict[int, FlowId] = {}
        for key in keys:
            row = self._flows.get(key)
            if isinstance(row, int) and self._asked.get(row, NOT_ASKED)[0] != version:
                rows[row] = key
        if not rows:
            return
        places = np.array(list(rows), np.int64)
        self._bring_up_to_date(list(rows.values()), places)
        names = self._plain.names
        for row, numbers in zip(rows, self._rows.crossed[places].tolist(), strict=True):
            found = tuple([names[number] for number in numbers if number])
            known = self._asked.get(row, NOT_ASKED)[1]
            if found:
                self._asked[row] = version, known if known == found else found

    def path(self, key: FlowId, before_ns: int | None = None) -> KnownPath:
        """Return the path of a 5-tuple.

        Parameters
        ----------
        before_ns
            Prefer the newest trace from before this time: the path when the fault began, not after
            traffic was rerouted.
        """
        flow = self._flow(key)
        if flow is None or not flow.complete:
            return self._by_topology(key[0], key[1])
        return self._resolved(key, _chosen(flow, before_ns))

    def hop_probes(
        self, key: FlowId, since_ns: int, healthy_ns: int, latest: int = EVIDENCE
    ) -> list[HopProbe]:
        """Return the single probes of a 5-tuple's traces.

        A hop that does not answer counts only if the path is known and that node answered before:
        many nodes never answer.

        Parameters
        ----------
        since_ns
            Only traces finished from then on.
        healthy_ns
            Traces from before then are the baseline.
        latest
            Only this many of the latest traces.
        """
        flow = self._flow(key)
        if flow is None:
            return []
        before = [t for t in flow.complete if t.traced_ns < healthy_ns]
        model = (before or flow.complete[:1])[-1:]
        # Without a trace from a baseline time, any earlier trace is the baseline.
        baseline = [t for t in flow.baseline if t.traced_ns < healthy_ns] or before
        basis = (
            *self._topology.basis(key[0], key[1]),
            len(baseline),
            *(t.traced_ns for t in (*baseline, *model)),
        )
        found: list[HopProbe] = []
        for trace in flow.recent[-latest:]:
            if trace.traced_ns < since_ns:
                continue
            if trace.probes is None or trace.probes[0] != basis:
                trace.probes = (basis, self._probes(key, trace, baseline, model))
            found += trace.probes[1]
        return found

    def basis_of(self, key: FlowId, since_ns: int, latest: int = EVIDENCE) -> TraceBasis:
        """Return what `hop_probes` depends on: while it is equal, so is the result.

        For the same baseline time; the other arguments are the same.
        """
        flow = self._flow(key)
        if flow is None:
            return None
        return (
            tuple([trace for trace in flow.recent[-latest:] if trace.traced_ns >= since_ns]),
            tuple(flow.complete),
            tuple(flow.baseline),
            self._topology.basis(key[0], key[1]),
        )

    def findings_since(self, key: FlowId, since_ns: int) -> TraceFindings:
        """Return what the traces since a time say about a 5-tuple that is cut off.

        An incomplete trace shows that everything before the last answering hop was passed. The hop
        itself does not count: a switch may answer although it forwards nothing.
        """
        flow = None if self._times.none_since(key, since_ns) else self._flows.get(key)
        if flow is None:
            return UNTRACED
        basis = self._findings_basis(key, since_ns)
        known = self._findings.get(key)
        if known is None or known[0] != basis:
            # Objects for the moment only: all that a storm has cut off are asked for.
            now = self._objects(key, flow) if isinstance(flow, int) else flow
            broken = list(self._broken_off(key, now, since_ns))
            findings = TraceFindings(
                traced=basis.traced,
                passed=frozenset(
                    component
                    for usual, last in broken
                    for component in usual.prefixes[last]
                    if component != usual.nodes[last]
                ),
                only_target_silent=any(last == len(u.nodes) - 2 for u, last in broken),
            )
            known = self._findings[key] = basis, findings if basis.traced or broken else UNTRACED
        return known[1]

    def look_up_findings(self, wanted: Iterable[tuple[FlowId, int]]) -> None:
        """Prepare `findings_since` of many 5-tuples, for less than one by one.

        Parameters
        ----------
        wanted
            5-tuples and since when.
        """
        asked: list[tuple[FlowId, int, FindingsBasis]] = []
        for key, since_ns in wanted:
            row = self._flows.get(key)
            if not isinstance(row, int) or self._times.none_since(key, since_ns):
                continue
            basis = self._findings_basis(key, since_ns)
            known = self._findings.get(key)
            if known is None or known[0] != basis:
                asked.append((key, row, basis))
        if not asked:
            return
        rows = np.array([row for _, row, _ in asked], np.int64)
        plain = self._bring_up_to_date([key for key, _, _ in asked], rows)
        since = np.array([basis.since_ns for _, _, basis in asked], np.int64)
        hop, address, before_target, certain = self._rows.broke_off(rows, since, LATEST)
        broken = hop >= 0
        crossed = self._rows.crossed[rows]
        node = self._plain.nodes_at(address[broken], self._rows.addresses)
        passed = np.zeros(len(rows), np.int64)
        passed[broken] = (crossed[broken] == node[:, None]).argmax(axis=1)
        names = self._plain.names
        for place in np.flatnonzero(plain & certain).tolist():
            key, _, basis = asked[place]
            numbers = crossed[place, : passed[place]].tolist()
            findings = TraceFindings(
                traced=basis.traced,
                passed=frozenset([names[number] for number in numbers]),
                only_target_silent=before_target.item(place),
            )
            self._findings[key] = basis, findings if basis.traced or broken[place] else UNTRACED

    def _findings_basis(self, key: FlowId, since_ns: int) -> FindingsBasis:
        traced = (self._times.last_ns(key) or since_ns - 1) >= since_ns
        return FindingsBasis(self._topology.basis(key[0], key[1]), since_ns, traced)

    def _broken_off(
        self, key: FlowId, flow: FlowTraces, since_ns: int
    ) -> Iterator[tuple[KnownPath, int]]:
        """Yield incomplete traces since then: the usual path, and the last hop that answered."""
        if not flow.complete:
            return
        usual = self._resolved(key, flow.complete[-1])
        # An earlier trace is no evidence: what it passed may have failed since.
        for trace in flow.recent[-LATEST:]:
            if trace.traced_ns < since_ns or trace.complete:
                continue
            last = len(trace.addresses) - 1
            while last >= 0 and trace.addresses[last] is None:
                last -= 1
            if not 0 <= last < len(usual.nodes):
                continue
            # Only if the hop is on the usual path: of another path this shows nothing.
            if self._topology.at_address(trace.addresses[last] or "") == usual.nodes[last]:
                yield usual, last

    def _probes(
        self, key: FlowId, trace: Trace, baseline: list[Trace], model: list[Trace]
    ) -> list[HopProbe]:
        own = self._resolved(key, trace)
        usual = self._resolved(key, model[0]) if model else NOTHING
        probes: list[HopProbe] = []
        answered = [index for index, address in enumerate(trace.addresses) if address is not None]
        silent_from = len(trace.addresses) if trace.complete else max(answered, default=-1) + 1
        for index, address in enumerate(trace.addresses):
            expected = usual.nodes[index] if index < len(usual.nodes) else None
            target = expected is not None and index == len(usual.nodes) - 1
            late_ns = None
            beyond: tuple[str, ...] = ()
            if address is None:
                if expected is None:
                    continue
                crossed = usual.prefixes[index]
                if index >= silent_from and index + 1 < len(usual.nodes):
                    before = frozenset(crossed)
                    beyond = tuple(c for c in usual.prefixes[index + 1] if c not in before)
            elif expected is not None and own.nodes[index] in (expected, None):
                crossed = usual.prefixes[index]
                late_ns = rise_ns_of(trace, index, baseline)
            else:
                if expected is not None:
                    # The path differs from the usual one: from here on only this trace counts.
                    usual = NOTHING
                crossed = own.prefixes[index]
                target = trace.complete and index == len(trace.addresses) - 1
            probes.append(
                HopProbe(
                    key, trace.traced_ns, crossed, address is not None, late_ns, target, beyond
                )
            )
        return probes

    def _resolved(self, key: FlowId, trace: Trace) -> KnownPath:
        topology = self._topology
        basis = topology.basis(key[0], key[1])
        if trace.path is None or trace.path[0] != basis:
            if trace.crossed is not None and self._is_fresh(key, trace.crossed[0]):
                path = self._plain_path(key, trace, trace.crossed[1])
            else:
                path = traced(topology, key[0], key[1], trace.addresses, complete=trace.complete)
            trace.path, trace.crossed = (basis, path), None
        return trace.path[1]

    def _plain_path(self, key: FlowId, trace: Trace, components: tuple[str, ...]) -> KnownPath:
        """Return the plain path of a whole trace that crosses these components."""
        # Each hop forwards packets, and is crossed once.
        nodes = [str(node) for node in self._topology.at_addresses(trace.addresses[:-1])]
        lengths = [components.index(node) + 1 for node in nodes]
        return KnownPath(components, (*nodes, key[1]), (*lengths, len(components)), whole=True)

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


def _chosen(flow: FlowTraces, before_ns: int | None) -> Trace:
    """Return the newest complete trace, of several the newest from before a time."""
    chosen = flow.complete[-1]
    if before_ns is not None and chosen.traced_ns >= before_ns:
        return next((t for t in reversed(flow.complete) if t.traced_ns < before_ns), chosen)
    return chosen
