"""Many faults in one second on a large fabric, and the anomalies and traces that each makes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from arena.faults.injection import Symptom
from arena.simulation.setup import Rec, symptom_state
from arena.world.topology import agent_id, endpoint_id, host_id, vswitch_id
from ops.bench.scale.localizer_world import NAME, PAIR_FLOWS, RAILS, SEGMENT_HOSTS, SPINES, World
from schemas import topics
from schemas.enums import AnomalyKind, AnomalyState, TraceCause
from schemas.ids import path_id
from schemas.records import Anomaly, FlowEntry, FlowTable
from schemas.units import MS_NS, SECOND_NS, US_NS

# Three probes in a row, half a second apart in all.
CONFIRM_NS: Final = 500 * MS_NS
TRACED_NS: Final = 700 * MS_NS
# Open anomalies are said again every five seconds.
REPEAT_NS: Final = 5 * SECOND_NS
# Mean time in which the loss test flags a 5-tuple.
LOSS_MEAN_NS: Final = 6 * SECOND_NS
# A window of latency closes so long after the fault, everywhere at once.
WINDOW_NS: Final = 8 * SECOND_NS
SLOW: Final = (AnomalyKind.LATENCY, AnomalyKind.WEAK_LATENCY)
RTT_NS: Final = 16_000
SHIFT_NS: Final = 200_000
# Of 50: what a fabric of this size has at once on a bad day, and more.
MIX: Final = {
    "cable cut": 14, "port down": 10, "leaf off": 2, "loss": 8, "slow": 8,
    "flow table": 4, "agent dead": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its sort, the component to name, its number (a host's for an agent)."""

    sort: str
    component_id: str
    number: int


def plan(world: World) -> list[Fault]:
    """Return fifty faults, each in a segment of its own as far as there are enough."""
    names, fabric = world.cluster.names, world.cluster.fabric
    sorts = [sort for sort, count in MIX.items() for _ in range(count)]
    found = []
    for place, sort in enumerate(sorts):
        segment = place * world.segments // len(sorts)
        host = segment * SEGMENT_HOSTS + place % SEGMENT_HOSTS
        rail = place % RAILS
        tor = segment * RAILS + rail
        if sort in ("cable cut", "loss", "slow"):
            number = fabric.numbers(5).start + tor * SPINES + place % SPINES
        elif sort == "port down":
            number = fabric.numbers(4).start + host * RAILS + rail
        elif sort == "leaf off":
            number = fabric.numbers(1).start + tor
        else:
            number = host
        name = {"flow table": vswitch_id(host), "agent dead": agent_id(host)}.get(sort)
        found.append(Fault(sort, name or names[number], number))
    return found


class Troubles:
    """What faults that begin at one time make happen, in the order of time.

    Parameters
    ----------
    at_ns
        When they begin.
    at_once
        Whether all anomalies are reported at one time, when the last of them is known; then
        their traces come within the second after it.
    """

    def __init__(
        self, world: World, faults: list[Fault], at_ns: int, *, at_once: bool = False
    ) -> None:
        self._world = world
        self._at_ns = at_ns
        self._rng = np.random.default_rng(1)
        self.faults = faults
        self.bad: set[int] = set()
        self.anomalies = 0
        self._recs = [rec for fault in faults for rec in self._of(fault)]
        if at_once:
            self._recs = _at_once(self._recs)
        self._recs.sort(key=lambda rec: rec.at_ns)

    @property
    def dead(self) -> frozenset[int]:
        """Hosts whose agents are dead."""
        return frozenset(f.number for f in self.faults if f.sort == "agent dead")

    def until(self, to_ns: int) -> Iterator[Rec]:
        """Yield what happens up to a time; what is open is repeated later."""
        due = sum(1 for _ in self._due(to_ns))
        ready = list(islice(self._recs, due))
        del self._recs[:due]
        for rec in ready:
            if isinstance(rec.record, Anomaly):
                again_ns = rec.at_ns + REPEAT_NS
                record = replace(rec.record, state=AnomalyState.ONGOING, event_at=again_ns // US_NS)
                self._recs.append(replace(rec, at_ns=again_ns, record=record))
            yield rec
        self._recs.sort(key=lambda rec: rec.at_ns)

    def _due(self, to_ns: int) -> Iterator[Rec]:
        for rec in self._recs:
            if rec.at_ns > to_ns:
                return
            yield rec

    def _crossing(self, number: int) -> list[int]:
        found: list[int] = np.flatnonzero(
            (self._world.cluster.flows.there == number).any(axis=1)
        ).tolist()
        return found

    def _of(self, fault: Fault) -> Iterator[Rec]:
        match fault.sort:
            case "agent dead":
                flows = np.flatnonzero(self._world.dst_host == fault.number).tolist()
                yield from self._cuts(flows, None)
            case "flow table":
                yield self._table(fault.number)
                # The entries of all targets of the first endpoint.
                mine = self._world.flows_of(fault.number)
                yield from self._cuts(mine[: len(mine) // RAILS], None)
            case "loss":
                yield from self._losses(fault.number)
            case "slow":
                yield from self._slow(fault.number)
            case _:
                if fault.sort == "port down":
                    symptom = Symptom(
                        fault.component_id, "port_state", text="down", usual_text="up"
                    )
                    yield symptom_state(NAME, symptom, self._at_ns - 600 * SECOND_NS, bad=False)
                    yield symptom_state(NAME, symptom, self._at_ns, bad=True)
                yield from self._cuts(self._crossing(fault.number), fault.number)

    def _cuts(self, flows: list[int] | range, broken_at: int | None) -> Iterator[Rec]:
        for flow in flows:
            onset_ns = self._at_ns + int(self._world.phase_ns[flow])
            yield self._anomaly(flow, AnomalyKind.CONNECTIVITY, onset_ns, CONFIRM_NS, counts=(3, 3))
            # Of what the underlay lets through, the last switch is heard and the target not.
            target = self._world.way(flow)[-1] if broken_at is None else broken_at
            yield self._world.trace(flow, onset_ns + TRACED_NS, TraceCause.LOSS, broken_at=target)

    def _losses(self, number: int) -> Iterator[Rec]:
        for flow in self._crossing(number):
            onset_ns = self._at_ns + int(self._world.phase_ns[flow])
            after_ns = SECOND_NS + int(self._rng.exponential(LOSS_MEAN_NS))
            yield self._anomaly(flow, AnomalyKind.LOSS, onset_ns, after_ns, counts=(20, 5))
            lost = bool(self._rng.random() < 0.3)
            yield self._world.trace(
                flow, onset_ns + TRACED_NS, TraceCause.LOSS, broken_at=number if lost else None
            )

    def _slow(self, number: int) -> Iterator[Rec]:
        for flow in self._crossing(number):
            onset_ns = self._at_ns + int(self._world.phase_ns[flow])
            after_ns = self._at_ns + WINDOW_NS - onset_ns
            # A worker reports both where every packet is delayed: the second says it is no queue.
            for kind in SLOW:
                yield self._anomaly(flow, kind, onset_ns, after_ns, counts=(10, 0))
            yield self._world.trace(
                flow, onset_ns + 3 * SECOND_NS, TraceCause.LATENCY, late=(number, SHIFT_NS)
            )

    def _anomaly(
        self, flow: int, kind: AnomalyKind, onset_ns: int, after_ns: int, *, counts: tuple[int, int]
    ) -> Rec:
        src, dst, index = self._world.key(flow)
        at_ns = onset_ns + after_ns
        late = kind in SLOW
        self.bad.add(flow)
        self.anomalies += 1
        record = Anomaly(
            cluster=NAME, anomaly_id=f"{src}>{dst}#{index}", kind=kind, state=AnomalyState.ONSET,
            path_id=path_id(src, dst), src=src, dst=dst, flow=index,
            agent_id=agent_id(int(self._world.src_host[flow])), event_at=at_ns // US_NS,
            onset_at=onset_ns // US_NS, detector="scale", sent=counts[0], lost=counts[1],
            value=float(RTT_NS + SHIFT_NS) if late else None,
            reference=float(RTT_NS) if late else None, unit="ns" if late else None,
            host_delay_ns=4_000 if late else None,
        )  # fmt: skip
        return Rec(at_ns, topics.ANOMALY.name, record.path_id, record)

    def _table(self, host: int) -> Rec:
        """Return a host's tables, without what its first endpoint's targets need."""
        flows, entries = self._world.cluster.flows, []
        for flow in self._world.flows_of(host)[::PAIR_FLOWS]:
            rnic, other = int(flows.src[flow]), int(flows.dst[flow])
            src, dst = (endpoint_id(*divmod(n, RAILS)) for n in (rnic, other))
            switch, nic = vswitch_id(host), self._world.cluster.names[rnic]
            entries.append(FlowEntry(node=src, dst=dst, next_hop=switch))
            if rnic % RAILS:
                entries.append(FlowEntry(node=switch, dst=dst, next_hop=nic))
                entries.append(FlowEntry(node=nic, dst=dst, next_hop=dst))
        table = FlowTable(
            cluster=NAME, host_id=host_id(host), captured_at=self._at_ns // US_NS,
            entries=tuple(entries),
        )  # fmt: skip
        return Rec(self._at_ns, topics.OVERLAY_FLOWS.name, table.host_id, table)


def spine_off(world: World) -> Fault:
    """Return the death of the first spine."""
    number = world.cluster.fabric.numbers(2).start
    return Fault("spine off", world.cluster.names[number], number)


def _at_once(recs: list[Rec]) -> list[Rec]:
    """Return the records with all anomalies at the time of the last, and traces after it."""
    onsets = [rec for rec in recs if isinstance(rec.record, Anomaly)]
    first_ns = min(rec.at_ns for rec in onsets)
    last_ns = max(rec.at_ns for rec in onsets)
    return [
        replace(rec, at_ns=last_ns)
        if isinstance(rec.record, Anomaly)
        else replace(rec, at_ns=rec.at_ns + last_ns - first_ns)
        for rec in recs
    ]
