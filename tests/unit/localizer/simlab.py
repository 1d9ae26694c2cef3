"""A lab without sockets: the lab's own shape, tables and routes, the worker's own detectors.

Only what is between them is made up here: what becomes of a probe on its way,
agents that send rounds, heartbeats and traces. Event time only.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena.world.topology import link_id
from localizer.config import CoreConfig
from localizer.core import Core
from localizer.facts.inputs import Event
from localizer.merge import Merge
from ops.lab.overlay import Overlay, TableChange
from ops.lab.routing import Router, flow_hash
from ops.lab.shape import EndpointSpec, LabShape
from ops.lab.topology import Topology, task_of
from probers.probing.trace import TypicalRtt
from schemas import topics
from schemas.enums import (
    AgentState,
    AnomalyState,
    PingListPhase,
    TargetOrigin,
    TraceCause,
    Transport,
)
from schemas.ids import path_id, state_id
from schemas.records import (
    ComponentState,
    Endpoint,
    FaultEvent,
    Heartbeat,
    PathTrace,
    PingList,
    PingTarget,
    TraceHop,
)
from schemas.units import MS_NS, SECOND_NS
from streams.config import DetectionConfig
from streams.core.machine import PartitionMachine
from streams.core.outputs import progress
from streams.core.partition import Identity

CLUSTER = "lab"
START = 1_700_000_000 * SECOND_NS
PARTITIONS = 4
TIMEOUT = 250 * MS_NS
# A packet that comes while a starved process is off the CPU waits for what is left of that time.
PAUSE = 500 * MS_NS
TRACE_GAP = 10 * SECOND_NS
# Silence after which the worker says that a partition is idle.
IDLE = 2 * SECOND_NS

Pairs = Callable[[EndpointSpec, EndpointSpec], bool]


@dataclass(slots=True)
class Effects:
    """What is wrong now: set by a test, read for each packet.

    `links`: link id → (loss, added delay in ns); `off`: nodes; `holes`: (node, endpoint to which
    it drops everything); `dead`: agents;
    `deaf`: agents that do not answer; `slow`: agent → delay of its own as a prober, in ns;
    `starved`: agent → share of the packets that its process, off the CPU for `PAUSE` again and
    again, holds up; `noise`: loss of any probe; `load`: factor on every round trip.
    """

    links: dict[str, tuple[float, int]] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    holes: set[tuple[str, str]] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    slow: dict[str, int] = field(default_factory=dict)
    starved: dict[str, float] = field(default_factory=dict)
    noise: float = 0.0
    load: float = 1.0


class CountedOverlay(Overlay):
    """Flow tables that count their changes."""

    changes = 0

    def apply(self, fault_id: str, change: TableChange) -> set[int]:
        """Put a fault into the tables, and count it."""
        self.changes += 1
        return super().apply(fault_id, change)

    def undo(self, fault_id: str) -> set[int]:
        """Take a fault out of the tables, and count it."""
        self.changes += 1
        return super().undo(fault_id)


@dataclass(frozen=True, slots=True)
class Way:
    """The way of a 5-tuple's packets under the current tables, and the way of the replies.

    The last node is missing where a table has a hole. `links[n]` leads to node `n + 1`.
    `returns`: the target's own table has an entry for the source.
    """

    nodes: tuple[str, ...]
    links: tuple[str, ...]
    reply: tuple[str, ...]
    reply_links: tuple[str, ...]
    returns: bool


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it stands in a topic."""

    topic: str
    key: str
    record: Any
    partition: int
    offset: int
    timestamp_ms: int


class SimLab:
    """Runs a lab second by second and keeps the log of all input topics of the localizer."""

    def __init__(
        self,
        shape: LabShape | None = None,
        *,
        seed: int = 1,
        flows: int = 4,
        pairs: Pairs | None = None,
        trace_refresh_s: int = 300,
        window_s: int = 10,
    ) -> None:
        self.shape = shape or LabShape()
        self.overlay = CountedOverlay(self.shape)
        self.router = Router(self.shape, self.overlay)
        self.effects = Effects()
        self.rng = random.Random(seed)
        self.now = START
        self.log: list[Record] = []
        self._refresh = trace_refresh_s * SECOND_NS
        self._offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seq: defaultdict[str, int] = defaultdict(int)
        self._traced: dict[tuple[str, str, int], int] = {}
        self._lost: dict[tuple[str, str, int], int] = {}
        self._slow: dict[tuple[str, str, int], int] = {}
        self._paces: defaultdict[tuple[str, str, int], TypicalRtt] = defaultdict(TypicalRtt)
        self._addresses = {
            name: f"10.0.{i // 250}.{i % 250}"
            for i, name in enumerate(
                [*self.shape.node_ids(), *(e.endpoint_id for e in self.shape.endpoints)]
            )
        }
        config = DetectionConfig(window_ns=window_s * SECOND_NS, lateness_ns=2 * SECOND_NS)
        self._machines = [PartitionMachine(config, Identity(CLUSTER, p)) for p in range(PARTITIONS)]
        self._rounds = [0] * PARTITIONS
        self._heard: dict[int, int] = {}
        self._by_id = {e.endpoint_id: e for e in self.shape.endpoints}
        wanted = pairs or (lambda a, b: a.rail == b.rail)
        self.targets = {
            agent: [
                (a, b, f)
                for a in self.shape.endpoints
                for b in self.shape.endpoints
                if a.agent_id == agent and a.host != b.host and wanted(a, b)
                for f in range(flows)
            ]
            for agent in self.shape.agent_ids()
        }
        self._ways: dict[tuple[str, str, int], Way] = {}
        self._ways_of = self.overlay.changes
        self._flows = flows
        self._publish_setup()

    def run(self, seconds: float) -> None:
        """Let time pass, a quarter of a second at a time."""
        end = self.now + round(seconds * SECOND_NS)
        agents = self.shape.agent_ids()
        while self.now < end:
            for index, agent in enumerate(agents):
                stagger = index * SECOND_NS // len(agents) // (250 * MS_NS) * (250 * MS_NS)
                if (self.now - stagger) % SECOND_NS == 0 and agent not in self.effects.dead:
                    self._round(agent)
                    self._heartbeat(agent)
            for partition in [p for p, at in self._heard.items() if self.now - at >= IDLE]:
                del self._heard[partition]
                at = self._machines[partition].progress_at
                idle = progress(CLUSTER, partition, AnomalyState.IDLE, at or 0)
                self.write(topics.ANOMALY.name, "~progress", idle, self.now, partition)
            self.now += 250 * MS_NS

    def publish_tables(self, hosts: set[int]) -> None:
        """Write the tables of some hosts as they are now."""
        for host in sorted(hosts):
            table = self.overlay.table(host, cluster=CLUSTER, captured_at=self.now // 1000)
            self.write(topics.OVERLAY_FLOWS.name, table.host_id, table, self.now)

    def write(self, topic: str, key: str, record: Any, at: int, partition: int = 0) -> None:
        """Append a record to a topic."""
        offset = self._offsets[topic, partition]
        self._offsets[topic, partition] += 1
        self.log.append(Record(topic, key, record, partition, offset, at // MS_NS))

    def read_port(
        self, name: str, text: str, *, read_s: float, at_s: float, source: str = "t"
    ) -> None:
        """Write what a reader saw at a port, times since the lab began."""
        read_at = (START + round(read_s * SECOND_NS)) // 1000
        record = ComponentState(
            cluster=CLUSTER, state_id=state_id(name, "port_state"), component_id=name,
            attribute="port_state", text=text, changed_at=read_at, observed_at=read_at,
            source=source,
        )  # fmt: skip
        at_ns = START + round(at_s * SECOND_NS)
        self.write(topics.COMPONENT_STATE.name, record.state_id, record, at_ns)

    def heartbeat(self, agent: str, at: int, state: AgentState = AgentState.RUNNING) -> None:
        """Write one heartbeat."""
        self._seq[agent] += 1
        beat = Heartbeat(
            cluster=CLUSTER, agent_id=agent, host_id=f"host:{agent[6:]}", incarnation=1,
            seq=self._seq[agent], sent_at=at // 1000, interval_ns=SECOND_NS, state=state,
            endpoints=4, targets_active=12, targets_waiting=0, rounds_sent=1, results_sent=1,
            rounds_dropped=0, replies_duplicate=0, replies_late=0, replies_foreign=0,
            packets_malformed=0, records_undecodable=0, broker_away=False,
        )  # fmt: skip
        self.write(topics.HEARTBEAT.name, agent, beat, at)

    def verdicts(self, config: CoreConfig | None = None) -> list[FaultEvent]:
        """Run a core over the whole log, as a service that keeps up would."""
        return localize(self.log, config or CoreConfig(cluster=CLUSTER))

    def _heartbeat(self, agent: str) -> None:
        self.heartbeat(agent, self.now + 50 * MS_NS)

    def _publish_setup(self) -> None:
        parts = Topology(self.shape, cluster=CLUSTER, addresses=self._addresses)
        for component in parts.components(self.now // 1000):
            self.write(topics.TOPOLOGY.name, component.component_id, component, self.now)
        task = task_of(self.shape, cluster=CLUSTER, submitted_at=self.now // 1000)
        self.write(topics.TASK.name, task.task_id, task, self.now)
        for e in self.shape.endpoints:
            endpoint = Endpoint(
                cluster=CLUSTER, endpoint_id=e.endpoint_id, agent_id=e.agent_id,
                container_id=e.container_id, host_id=e.host_id, task_id=self.shape.task_id,
                rail=e.rail, transport=Transport.UDP, address=self._addresses[e.endpoint_id],
                port=1, incarnation=1, registered_at=self.now // 1000,
            )  # fmt: skip
            self.write(topics.ENDPOINT.name, e.endpoint_id, endpoint, self.now)
        for agent, targets in self.targets.items():
            found = dict.fromkeys((a.endpoint_id, b.endpoint_id) for a, b, _ in targets)
            pinglist = PingList(
                cluster=CLUSTER, agent_id=agent, version=1, updated_at=self.now // 1000,
                phase=PingListPhase.PRELOAD,
                targets=tuple(
                    PingTarget(src=a, dst=b, task_id=self.shape.task_id,
                               origin=TargetOrigin.BASIC, flows=self._flows)
                    for a, b in found
                ),
            )  # fmt: skip
            self.write(topics.PINGLIST.name, agent, pinglist, self.now)
        self.publish_tables(set(range(self.shape.hosts)))

    def _way(self, src: EndpointSpec, dst: EndpointSpec, flow: int) -> Way:
        """Return the way of a 5-tuple; it is kept until the tables change."""
        if self._ways_of != self.overlay.changes:
            self._ways, self._ways_of = {}, self.overlay.changes
        at = (src.endpoint_id, dst.endpoint_id, flow)
        way = self._ways.get(at)
        if way is None:
            way = self._ways[at] = self._find_way(src, dst, flow)
        return way

    def _find_way(self, src: EndpointSpec, dst: EndpointSpec, flow: int) -> Way:
        a, b = src.endpoint_id.encode(), dst.endpoint_id.encode()
        key = flow_hash(a, b, a + bytes([flow]))
        nodes = self.router.walk(src, dst, key).nodes
        # The reply keeps the entropy, and the fabric's hash is symmetric.
        reply = (*nodes[-2::-1], src.endpoint_id)
        first = self.overlay.next_hop(dst.vswitch_id, src.endpoint_id)
        return Way(nodes, _links(nodes), reply, _links(reply), isinstance(first, str))

    def _cross(self, nodes: Sequence[str], links: Sequence[str], to: str) -> int | None:
        """Return the delay of a packet to an endpoint along nodes, ns; None: lost."""
        delay, effects = 100_000, self.effects
        if not effects.off and not effects.links and not effects.holes:
            return delay
        for index, node in enumerate(nodes):
            if node in effects.off or (node, to) in effects.holes:
                return None
            if index and (found := effects.links.get(links[index - 1])):
                loss, more = found
                if loss and self.rng.random() < loss:
                    return None
                delay += more
        return delay

    def _probe(self, src: EndpointSpec, dst: EndpointSpec, flow: int) -> int | None:
        """Return the round trip of one probe, ns; None: lost."""
        effects = self.effects
        if dst.agent_id in effects.dead or dst.agent_id in effects.deaf:
            return None
        if self.rng.random() < effects.noise:
            return None
        way = self._way(src, dst, flow)
        ends = way.nodes[-1] == dst.endpoint_id
        there = self._cross(way.nodes, way.links, dst.endpoint_id) if ends else None
        back = self._cross(way.reply, way.reply_links, src.endpoint_id) if way.returns else None
        if there is None or back is None:
            return None
        spread = self.rng.lognormvariate(0, 0.1) * effects.load
        return round((there + back) * spread) + effects.slow.get(src.agent_id, 0)

    def _round(self, agent: str) -> None:
        results: list[dict[str, Any]] = []
        targets = self.targets[agent]
        for place, (a, b, flow) in enumerate(targets):
            offset = place * 300 * MS_NS // max(1, len(targets))
            for attempt in range(3):
                rtt = self._probe(a, b, flow)
                held = self._held_up(a.agent_id), self._held_up(b.agent_id)
                if sum(held) >= TIMEOUT:
                    rtt = None
                offset_ns = offset + attempt * TIMEOUT
                results.append(self._result(a, b, flow, offset_ns, rtt=rtt, held=held))
                if rtt is not None:
                    break
            key = (a.endpoint_id, b.endpoint_id, flow)
            sent = self.now + offset
            lost = results[-1]["status"] != "OK" or results[-1]["sent_offset_ns"] != offset
            slow = not lost and self._paces[key].answered(results[-1]["rtt_ns"])
            if lost and sent - self._lost.get(key, 0) >= TRACE_GAP:
                self._lost[key] = sent
                self._trace(a, b, flow, sent + 2 * TIMEOUT, TraceCause.LOSS)
            elif slow and sent - self._slow.get(key, 0) >= TRACE_GAP:
                self._slow[key] = sent
                self._trace(a, b, flow, sent, TraceCause.LATENCY)
            elif sent >= self._traced.get(key, 0):
                jitter = self.rng.randrange(self._refresh // 4)
                self._traced[key] = sent + self._refresh - self._refresh // 8 + jitter
                self._trace(a, b, flow, sent, TraceCause.DISCOVERY)
        results.sort(key=lambda r: (r["sent_offset_ns"], r["src"], r["dst"], r["flow"]))
        self._publish_round(agent, results)

    def _held_up(self, agent: str) -> int:
        """Return for how long a starved agent's process holds up a packet, ns."""
        share = self.effects.starved.get(agent, 0.0)
        return self.rng.randrange(PAUSE) if share and self.rng.random() < share else 0

    def _result(
        self,
        a: EndpointSpec,
        b: EndpointSpec,
        flow: int,
        offset: int,
        *,
        rtt: int | None,
        held: tuple[int, int],
    ) -> dict[str, Any]:
        return {
            "src": a.endpoint_id, "dst": b.endpoint_id, "flow": flow, "sent_offset_ns": offset,
            "transport": "UDP", "status": "TIMEOUT" if rtt is None else "OK", "rtt_ns": rtt,
            "prober_delay_ns": 10_000 + self.effects.slow.get(a.agent_id, 0) + held[0],
            "responder_delay_ns": None if rtt is None else 10_000 + held[1], "clock": "KERNEL",
        }  # fmt: skip

    def _publish_round(self, agent: str, results: list[dict[str, Any]]) -> None:
        self._seq[f"{agent} rounds"] += 1
        partition = self.shape.agent_ids().index(agent) % PARTITIONS
        datum = {
            "cluster": CLUSTER, "agent_id": agent, "host_id": agent, "incarnation": 1,
            "round_seq": self._seq[f"{agent} rounds"], "started_at": self.now // 1000,
            "interval_ns": SECOND_NS, "pinglist_version": 1, "producer_version": None,
            "results": results,
        }  # fmt: skip
        self._rounds[partition] += 1
        self._heard[partition] = self.now
        for out in self._machines[partition].process(datum, self._rounds[partition]):
            if out.topic is topics.ANOMALY:
                self.write(out.topic.name, out.key, out.record, out.at_ms * MS_NS, partition)

    def _trace(
        self, src: EndpointSpec, dst: EndpointSpec, flow: int, done: int, cause: TraceCause
    ) -> None:
        found = self._way(src, dst, flow)
        way = found.nodes
        hops: list[TraceHop] = []
        for index in range(len(way)):
            node = way[index]
            if self._held_up(src.agent_id) >= TIMEOUT:
                rtt = None
            elif node == dst.endpoint_id:
                rtt = self._probe(src, dst, flow)
                if self._held_up(dst.agent_id) >= TIMEOUT:
                    rtt = None
            else:
                rtt = self._cross(way[: index + 1], found.links, dst.endpoint_id)
                if rtt is not None:
                    rtt = round(rtt * self.effects.load) + self.effects.slow.get(src.agent_id, 0)
            hops.append(
                TraceHop(
                    ttl=index + 1,
                    address=None if rtt is None else self._addresses[node],
                    rtt_ns=rtt,
                )
            )
        complete = way[-1] == dst.endpoint_id and hops[-1].address is not None
        if not complete:
            answered = max((h.ttl for h in hops if h.address is not None), default=0)
            hops = [*hops[:answered], TraceHop(ttl=answered + 1)]
        trace = PathTrace(
            cluster=CLUSTER, path_id=path_id(src.endpoint_id, dst.endpoint_id),
            src=src.endpoint_id, dst=dst.endpoint_id, flow=flow, agent_id=src.agent_id,
            traced_at=done // 1000, cause=cause, complete=complete,
            incomplete_reason=None if complete else "no answer", hops=tuple(hops),
        )  # fmt: skip
        self.write(topics.PATH_TRACE.name, trace.path_id, trace, done)


def _links(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the links between the nodes of a way."""
    return tuple(map(link_id, nodes, nodes[1:]))


def events(log: list[Record]) -> Iterator[tuple[Event | None, int | None]]:
    """Yield the events that each record makes known, with the watermark after it."""
    merge = Merge()
    for r in log:
        found = merge.accept_record(
            r.topic, r.key, r.record,
            partition=r.partition, offset=r.offset, timestamp_ms=r.timestamp_ms,
        )  # fmt: skip
        for event in found:
            yield event, merge.watermark_ns
        yield None, merge.watermark_ns


def localize(log: list[Record], config: CoreConfig, core: Core | None = None) -> list[FaultEvent]:
    """Run a core over a log; everything is read before anything is decided."""
    core = core or Core(config)
    watermark = None
    for event, watermark in events(log):  # noqa: B007 - the last one is wanted
        if event is not None:
            core.feed(event)
    return [] if watermark is None else core.advance(watermark)
