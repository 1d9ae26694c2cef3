"""A large leaf-spine fabric as the localizer reads it: topology, ping lists, traces, heartbeats.

The fabric, its names and its routes are the arena's (`arena.world.fabric`); what it says is in
records of the localizer's topics, made when they are asked for: a million traces at once
would weigh more than what is measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from arena.simulation.setup import Rec, host_endpoints, job_lists, job_task, topology
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import NOWHERE, Fabric, FabricShape, address
from arena.world.topology import agent_id, endpoint_id, host_id
from localizer.facts.heartbeats import HeartbeatBatch
from localizer.facts.inputs import Event
from localizer.network.trace_batches import NO_HOP, SILENT, TraceBatch
from localizer.network.trace_reader import Places
from localizer.network.traces import flow_trace_of
from schemas import topics
from schemas.columns.arrays import Int64s
from schemas.columns.interpreter import NULL
from schemas.enums import AgentState, TraceCause
from schemas.ids import path_id
from schemas.records import Heartbeat, PathTrace, TraceHop
from schemas.units import SECOND_NS, US_NS

NAME: Final = "scale"
BEGIN_NS: Final = 1_700_000_000 * SECOND_NS
RAILS: Final = 8
SEGMENT_HOSTS: Final = 16
# Few enough that one of them carries an eighth of all 5-tuples: its death is a storm.
SPINES: Final = 8
TARGETS: Final = 8
PAIR_FLOWS: Final = 2
# As agents trace healthy paths by default.
REFRESH_NS: Final = 300 * SECOND_NS
HOP_RTT_NS: Final = 150_000


class WideCluster(Cluster):
    """A cluster whose endpoints probe only other segments: every 5-tuple crosses a spine."""

    def pairs(self, job: int) -> Iterator[tuple[int, int]]:
        """Yield (prober, target) RNICs, in the order of the ping lists."""
        shape, plan = self.fabric.shape, self.jobs[job]
        segments = plan.hosts // shape.segment_hosts
        steps = _strides(segments, self.targets)
        for host in range(plan.hosts):
            for rail in range(self.rails):
                for step in steps:
                    other = (host + step * shape.segment_hosts) % plan.hosts
                    yield host * self.rails + rail, other * self.rails + rail


def _strides(segments: int, count: int) -> list[int]:
    """Return distances in segments, none twice: 1, -1, 2, -2, and so on."""
    found: dict[int, int] = {}
    for distance in range(1, segments):
        for step in (distance, -distance):
            found.setdefault(step % segments, step)
    return list(found.values())[:count]


@dataclass(frozen=True)
class World:
    """A cluster of so many segments of 16 hosts and 8 rails, and what it says about itself."""

    segments: int

    @cached_property
    def cluster(self) -> Cluster:
        """The hosts on their fabric, one job on all of them."""
        hosts = self.segments * SEGMENT_HOSTS
        shape = FabricShape(hosts=hosts, rails=RAILS, segment_hosts=SEGMENT_HOSTS, spines=SPINES)
        job = JobPlan(task_id="job", first_host=0, hosts=hosts)
        return WideCluster(Fabric(shape), (job,), targets=TARGETS, flows=PAIR_FLOWS)

    @property
    def hosts(self) -> int:
        """Hosts, and agents."""
        return self.cluster.fabric.shape.hosts

    @property
    def links(self) -> int:
        """Cables."""
        return len(self.cluster.fabric.ends)

    @property
    def paths(self) -> int:
        """5-tuples."""
        return len(self.cluster.flows)

    def flows_of(self, host: int) -> range:
        """Return the 5-tuples of a host's endpoints, by endpoint; all hosts have as many."""
        each = self.paths // self.hosts
        return range(host * each, (host + 1) * each)

    @cached_property
    def src_host(self) -> Int64s:
        """Hosts of the probers, by 5-tuple."""
        return self.cluster.host_of(self.cluster.flows.src)

    @cached_property
    def dst_host(self) -> Int64s:
        """Hosts of the targets, by 5-tuple."""
        return self.cluster.host_of(self.cluster.flows.dst)

    @cached_property
    def phase_ns(self) -> Int64s:
        """When in its second each 5-tuple is probed."""
        spread = np.random.default_rng(self.segments)
        phase: Int64s = spread.integers(0, SECOND_NS, self.paths)
        return phase

    def key(self, flow: int) -> tuple[str, str, int]:
        """Return the 5-tuple of a number."""
        flows = self.cluster.flows
        ends = (endpoint_id(*divmod(int(n), RAILS)) for n in (flows.src[flow], flows.dst[flow]))
        return (*ends, int(flows.flow[flow]))  # type: ignore[return-value]

    def way(self, flow: int) -> list[int]:
        """Return the components of a 5-tuple, in order."""
        row: list[int] = self.cluster.flows.there[flow].tolist()
        return [number for number in row if number != NOWHERE]

    def setup(self, at_ns: int) -> Iterator[Rec]:
        """Yield what stands in the state topics."""
        yield from topology(NAME, self.cluster, at_ns)
        yield job_task(NAME, self.cluster, 0, at_ns, None)
        yield from job_lists(NAME, self.cluster, 0, at_ns)
        for host in range(self.hosts):
            yield from host_endpoints(NAME, self.cluster, 0, host, at_ns)

    def trace(
        self,
        flow: int,
        at_ns: int,
        cause: TraceCause = TraceCause.DISCOVERY,
        *,
        broken_at: int | None = None,
        late: tuple[int, int] | None = None,
    ) -> Rec:
        """Return the trace of a 5-tuple.

        Parameters
        ----------
        broken_at
            Component beyond which, itself included, nothing answers.
        late
            A component and by how much (ns) all answers from behind it are late.
        """
        src, dst, index = self.key(flow)
        fabric = self.cluster.fabric
        switches = range(fabric.numbers(1).start, fabric.numbers(3).stop)
        hops: list[TraceHop] = []
        more_ns, whole = 0, True
        for number in self.way(flow):
            whole = whole and number != broken_at
            more_ns += late[1] if late is not None and number == late[0] else 0
            last = number == self.cluster.endpoint0 + int(self.cluster.flows.dst[flow])
            if whole and (last or number in switches):
                ttl = len(hops) + 1
                rtt_ns = HOP_RTT_NS + 5_000 * ttl + more_ns
                hops.append(TraceHop(ttl=ttl, address=address(number), rtt_ns=rtt_ns))
        if not whole:
            hops.append(TraceHop(ttl=len(hops) + 1))
        trace = PathTrace(
            cluster=NAME, path_id=path_id(src, dst), src=src, dst=dst, flow=index,
            agent_id=agent_id(int(self.src_host[flow])), traced_at=at_ns // US_NS, cause=cause,
            complete=whole, incomplete_reason=None if whole else "no answer", hops=tuple(hops),
        )  # fmt: skip
        return Rec(at_ns, topics.PATH_TRACE.name, trace.path_id, trace)

    def heartbeats(self, second: int, begin_ns: int, dead: frozenset[int]) -> Iterator[Rec]:
        """Yield the heartbeats of a second, one of every host that is not dead."""
        for host in range(self.hosts):
            if host in dead:
                continue
            at_ns = begin_ns + second * SECOND_NS + host * SECOND_NS // self.hosts
            beat = Heartbeat(
                cluster=NAME, agent_id=agent_id(host), host_id=host_id(host), incarnation=1,
                seq=second + 1, sent_at=at_ns // US_NS, interval_ns=SECOND_NS,
                state=AgentState.RUNNING, endpoints=RAILS, targets_active=RAILS * TARGETS,
                targets_waiting=0, rounds_sent=second, results_sent=second, rounds_dropped=0,
                replies_duplicate=0, replies_late=0, replies_foreign=0, packets_malformed=0,
                records_undecodable=0, broker_away=False,
            )  # fmt: skip
            yield Rec(at_ns, topics.HEARTBEAT.name, beat.agent_id, beat)

    def refreshes(self, second: int, begin_ns: int, left_out: frozenset[int]) -> Iterator[Rec]:
        """Yield the healthy paths' traces of a second: each comes round after 300 s."""
        rounds = REFRESH_NS // SECOND_NS
        for flow in range(second % rounds, self.paths, rounds):
            if flow not in left_out:
                yield self.trace(flow, begin_ns + second * SECOND_NS + int(self.phase_ns[flow]))


class Numbered:
    """Turns records into events of the core, with their places in the log."""

    def __init__(self) -> None:
        self._offset = 0

    def event(self, rec: Rec) -> Event:
        """Return the event of a record."""
        self._offset += 1
        record: Any = rec.record
        return Event(rec.at_ns, rec.topic, rec.key, 0, self._offset, record)


def heartbeat_batch(events: Sequence[Event]) -> HeartbeatBatch:
    """Return heartbeats as the service reads them of a poll."""
    in_log = np.array([(e.at_ns, e.partition, e.offset) for e in events], np.int64)
    return HeartbeatBatch.of_records([event.record for event in events], Places(*in_log.T))


def trace_batch(events: Sequence[Event]) -> TraceBatch:
    """Return traces as the service reads them of a poll."""
    kept = [flow_trace_of(event.record) for event in events]
    ends: dict[str, int] = {}
    addresses: dict[str | None, int] = {None: SILENT}
    width = max(len(one.trace.addresses) for one in kept)
    hops = np.full((len(kept), width), NO_HOP, np.int32)
    rtts_ns = np.full((len(kept), width), NULL, np.int64)
    for row, one in enumerate(kept):
        count = len(one.trace.addresses)
        hops[row, :count] = [addresses.setdefault(address, len(addresses) - 1)
                             for address in one.trace.addresses]  # fmt: skip
        rtts_ns[row, :count] = [NULL if rtt_ns is None else rtt_ns for rtt_ns in one.trace.rtts_ns]
    src = [ends.setdefault(one.key[0], len(ends)) for one in kept]
    dst = [ends.setdefault(one.key[1], len(ends)) for one in kept]
    return TraceBatch(
        keys=[one.key for one in kept], ends=list(ends), src=np.array(src, np.int32),
        dst=np.array(dst, np.int32), at_ns=np.array([event.at_ns for event in events]),
        partition=np.array([event.partition for event in events]),
        offset=np.array([event.offset for event in events]),
        traced_ns=np.array([one.trace.traced_ns for one in kept]),
        discovery=np.array([one.discovery for one in kept]),
        complete=np.array([one.trace.complete for one in kept]),
        addresses=[str(address) for address in addresses][1:], hops=hops, rtts_ns=rtts_ns,
    )  # fmt: skip
