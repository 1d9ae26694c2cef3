"""The messages of simulated agents: rounds, heartbeats, traces, counters. Pure.

An agent probes the targets of its ping list, between endpoints that are registered. As in
`ops.bench.rig.load`, results are encoded a few times for each list, and each round is a fresh
header before one of these bodies. Round trips have no long tail: an outlier would come back with
its body and look like a shift. Rounds with losses are encoded again only when the fault changes,
since a dead component loses the same probes each second. What differs from second to second is
filled into forms (`ops.bench.cluster.encoding`).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from arena.simulation.agents import (
    CONFIRM,
    DELAY_SIGMA,
    LATE_NS,
    PACE_NS,
    PROBER_DELAY_NS,
    RESPONDER_DELAY_NS,
    TIMEOUT_NS,
)
from arena.simulation.tracing import GAP_NS
from arena.world.cluster import Cluster
from arena.world.latency import PROBE_SIGMA
from arena.world.topology import agent_id, endpoint_id, host_id
from ops.bench.cluster.encoding import LOST, OK, Form, TraceWriter, encode_results
from ops.bench.cluster.paths import Dead, Paths, rnic_of
from ops.bench.cluster.shape import CLUSTER, RAILS, ClusterShape
from ops.bench.rig.load import SPREAD_NS
from probers.clock import TokenBucket
from probers.probing.plan import spread_ns, stagger_ns
from probers.probing.rounds import RESOLUTION_NS, round_down_ns
from schemas.codec import Codec
from schemas.columns.arrays import Floats, Int64s
from schemas.columns.pieces import known_number_bytes, number_bytes
from schemas.enums import AgentState, TraceCause
from schemas.records import PingList
from schemas.topics import HEARTBEAT, PATH_TRACE, PROBE_ROUND, RNIC_COUNTERS, Topic
from schemas.trace_budget import trace_budget
from schemas.units import MS_NS, SECOND_NS, US_NS

# Counters are read ten times a second.
TICKS: Final = 10
TICK_NS: Final = SECOND_NS // TICKS
NO_TROUBLE: Final = (
    "rounds_dropped", "replies_duplicate", "replies_late", "replies_foreign",
    "packets_malformed", "records_undecodable", "targets_waiting",
)  # fmt: skip


def heartbeat(flows: int) -> dict[str, Any]:
    """Return what a heartbeat says of an agent that is well, but who it is and what it counted."""
    return dict.fromkeys(NO_TROUBLE, 0) | {
        "interval_ns": SECOND_NS, "state": AgentState.RUNNING.value, "state_reason": None,
        "endpoints": RAILS, "targets_active": flows, "broker_away": False,
        "host_delay_ns": PROBER_DELAY_NS,
    }  # fmt: skip


def samples(host: int) -> list[dict[str, Any]]:
    """Return a second of a host's counters that stand still: inference is measured elsewhere."""
    return [
        {
            "endpoint_id": endpoint_id(host, rail), "rail": rail,
            "tick_offset_ns": tick * TICK_NS, "read_delay_ns": 20_000, "tx_bytes": 10**12,
            "rx_bytes": 10**12, "counter_bits": 64, "missing_reason": None,
        }
        for tick in range(TICKS)
        for rail in range(RAILS)
    ]  # fmt: skip


# A round is published when its last probe is decided.
COLLECT_NS: Final = SPREAD_NS + 50 * MS_NS
BODIES: Final = 8
# Middles of equal parts of a normal distribution, of which no neighbour follows another.
SCATTER: Final = ndtri((np.arange(BODIES) + 0.5) / BODIES)
STRIDE: Final = 3
# Agents know of faults so long ahead, at most.
LEAD_S: Final = 10


class Outgoing(NamedTuple):
    """A message on its way; `due_ns` is when it leaves."""

    topic: Topic
    key: bytes
    value: bytes
    at_ms: int
    due_ns: int
    results: int = 0


@dataclass
class Ready:
    """What an agent's rounds are made of while the same is broken.

    Attributes
    ----------
    cut : 5-tuples that get nothing through
    collect_ns : how long after its begin a round's last probe is decided
    bodies : encoded results
    """

    cut: list[int] = field(default_factory=list)
    collect_ns: int = COLLECT_NS
    bodies: list[bytes] = field(default_factory=list)


def scatter_of(count: int, ready: Ready) -> Floats:
    """Return by how much the round trips of the next body differ from what is usual, (count,).

    In standard deviations. Over all bodies each 5-tuple has all of `SCATTER`, so that another set
    of bodies is no rise; where something is cut, one body comes again each second, and is low.
    """
    if ready.cut:
        return np.full(count, -1.0)
    found: Floats = SCATTER[(np.arange(count) + STRIDE * len(ready.bodies)) % BODIES]
    return found


@dataclass
class Agent:
    """One agent: its list as it came, its 5-tuples, the rounds that it has ready."""

    host: int
    phase_ns: int
    # Traces that it may begin because of losses.
    losses: TokenBucket
    key: bytes = b""
    version: int | None = None
    pinglist: PingList | None = None
    paths: Paths | None = None
    seq: int = 0
    beats: int = 0
    # Of which weather `ready` is, and what is made for the next one.
    weather: int = -1
    ready: "Ready" = field(default_factory=Ready)
    ahead: tuple[int, "Ready"] | None = None
    # What it had ready when nothing was broken.
    whole: "Ready | None" = None
    # Of a list and its 5-tuples: what is filled in each second.
    head: Form | None = None
    beat: Form | None = None
    beat_flows: int = 0
    counters: Form | None = None


class Fleet:
    """All agents of the cluster.

    Parameters
    ----------
    now_ns
        When the agents start: their incarnation.
    """

    def __init__(self, shape: ClusterShape, codec: Codec, now_ns: int) -> None:
        self.shape = shape
        self._codec = codec
        self._rng = np.random.default_rng(shape.seed)
        self._started_ns = now_ns
        self._traces = TraceWriter(codec)
        self._target0 = Cluster(shape.fabric, ()).endpoint0
        numbers = shape.fabric.numbers
        self._switches = range(numbers(1).start, numbers(3).stop)
        self.here: set[int] = set()
        # What is dead, and from when on (begin of a round).
        self._weathers: list[tuple[int, Dead]] = [(0, frozenset())]
        # As lists tell it in a cluster of so many.
        budget = trace_budget(shape.agents)
        self.agents = [
            Agent(
                host, stagger_ns(agent_id(host), SECOND_NS),
                TokenBucket(budget * SECOND_NS / GAP_NS, budget), agent_id(host).encode(),
            )
            for host in range(shape.agents)
        ]  # fmt: skip
        self.by_phase = sorted(self.agents, key=lambda agent: agent.phase_ns)

    def listed(self, name: str, made: PingList | None) -> None:
        """Let an agent follow a list, or have none."""
        agent = self.agents[int(name.removeprefix("agent-h"))]
        agent.pinglist, agent.paths = made, None
        agent.head = agent.beat = agent.counters = None
        agent.version = None if made is None else made.version

    def registered(self, endpoint: str, *, here: bool) -> None:
        """Let an endpoint come or leave."""
        (self.here.add if here else self.here.discard)(rnic_of(endpoint))

    def touched(self, hosts: Sequence[int]) -> None:
        """Let agents look again at which of their targets are there."""
        for host in hosts:
            self.agents[host].paths = self.agents[host].beat = None

    def break_down(self, dead: Dead, now_ns: int) -> None:
        """Let components be dead in rounds that begin then or later; all others work.

        Told some seconds ahead, agents have time to make the rounds of it one after another.
        """
        self._weathers.append((now_ns, dead))

    def probing(self, host: int) -> bool:
        """Say whether a host's agent probes anything."""
        paths = self.agents[host].paths
        return paths is not None and len(paths) > 0

    def prepare(self, agent: Agent, now_ns: int) -> Iterator[Outgoing]:
        """Make all that a round needs, and trace all that the agent probes."""
        paths = self._paths(agent, now_ns)
        while len(paths) and len(agent.ready.bodies) < BODIES:
            self._make(paths, agent.ready)
        for place in range(len(paths)):
            yield self._trace(agent, paths, place, now_ns, TraceCause.DISCOVERY)

    def settled(self, begin_ns: int) -> None:
        """Let traces come round as in a cluster that has lived for long."""
        for agent in self.agents:
            if agent.paths is not None:
                agent.paths.settle(begin_ns, self._rng)

    def second(self, agent: Agent, started_ns: int) -> Iterator[Outgoing]:
        """Yield what an agent publishes of the round that began then."""
        started = number_bytes(started_ns // US_NS)
        yield self._heartbeat(agent, started_ns, started)
        paths = self._paths(agent, started_ns)
        if not len(paths):
            return
        self._set_weather(agent, paths, started_ns)
        self._look_ahead(agent, paths, started_ns)
        ready = agent.ready
        if len(ready.bodies) < BODIES and not (ready.cut and ready.bodies):
            self._make(paths, ready)
        body = ready.bodies[agent.seq % len(ready.bodies)]
        agent.seq += 1
        due_ns = started_ns + ready.collect_ns
        head = self._head(agent, started)
        count = len(paths) + CONFIRM * len(ready.cut)
        at_ms = started_ns // MS_NS
        yield Outgoing(PROBE_ROUND, agent.key, head + body, at_ms, due_ns, count)
        for place in paths.due(started_ns, ready.cut, self._rng):
            yield self._trace(agent, paths, place, started_ns, TraceCause.DISCOVERY)
        for place in paths.lost_due(started_ns, ready.cut, agent.losses):
            yield self._trace(agent, paths, place, due_ns, TraceCause.LOSS)
        if agent.host % self.shape.counters_every == 0:
            yield self._counters(agent, started_ns)

    def _paths(self, agent: Agent, now_ns: int) -> Paths:
        if agent.paths is None:
            targets = () if agent.pinglist is None else agent.pinglist.targets
            agent.paths = Paths.of(targets, self.here, self.shape.fabric, now_ns=now_ns)
            agent.ready, agent.ahead, agent.whole, agent.weather = Ready(), None, None, -1
        return agent.paths

    def _set_weather(self, agent: Agent, paths: Paths, started_ns: int) -> None:
        number = len(self._weathers) - 1
        while self._weathers[number][0] > started_ns:
            number -= 1
        if number == agent.weather:
            return
        known, agent.weather = agent.ahead, number
        if known is not None and known[0] == number:
            agent.ready, agent.ahead = known[1], None
        else:
            agent.ready = self._of_weather(agent, paths, number)

    def _of_weather(self, agent: Agent, paths: Paths, number: int) -> Ready:
        """Return what the agent has for a weather, or nothing yet but what is cut."""
        if not agent.ready.cut:
            agent.whole = agent.ready
        cut = paths.cut(self._weathers[number][1])
        if cut == agent.ready.cut:
            return agent.ready
        return Ready(cut) if cut or agent.whole is None else agent.whole

    def _look_ahead(self, agent: Agent, paths: Paths, started_ns: int) -> None:
        """Make a round of the next weather: not all agents in the second in which it comes."""
        number = len(self._weathers) - 1
        turn = started_ns // SECOND_NS % LEAD_S == agent.host % LEAD_S
        if self._weathers[number][0] <= started_ns or not turn:
            return
        if agent.ahead is None or agent.ahead[0] != number:
            ready = self._of_weather(agent, paths, number)
            if not ready.bodies:
                self._make(paths, ready)
            agent.ahead = number, ready

    def _of(self, agent: Agent) -> dict[str, Any]:
        return {
            "cluster": CLUSTER, "agent_id": agent.key.decode(), "host_id": host_id(agent.host),
            "incarnation": self._started_ns, "pinglist_version": agent.version,
            "producer_version": "0.1.0",
        }  # fmt: skip

    def _head(self, agent: Agent, started: bytes) -> bytes:
        """Return a round up to its results, which are its last field."""
        if agent.head is None:
            datum = self._of(agent) | {"interval_ns": SECOND_NS, "results": []}
            agent.head = Form(self._codec, PROBE_ROUND, datum, "round_seq", "started_at")
        # What is cut off is the mark that the array ends.
        return agent.head.fill(known_number_bytes(agent.seq), started)[:-1]

    def _make(self, paths: Paths, ready: Ready) -> None:
        """Encode the results of one more round."""
        rng, count = self._rng, len(paths)
        slots = np.array(spread_ns(count, SPREAD_NS), np.float64)
        offset = slots + rng.exponential(LATE_NS, count) + PACE_NS * rng.random(count)
        rtt = paths.base_ns * np.exp(PROBE_SIGMA * scatter_of(count, ready))
        delays = np.exp(rng.normal(0.0, DELAY_SIGMA, (2, count)))
        # Told as agents tell them, in multiples.
        delays_ns = np.array([[PROBER_DELAY_NS], [RESPONDER_DELAY_NS]]) * delays
        offset_ns, prober_ns, responder_ns = _whole(
            RESOLUTION_NS * np.floor(np.vstack([offset, delays_ns]) / RESOLUTION_NS)
        )
        rtt_ns = _whole(rtt)
        sent = SentProbes(offset_ns)
        for place in ready.cut:
            sent.lose(place)
        places = np.array(sent.places, np.int64)
        ready.bodies.append(
            encode_results(
                paths.names, places, np.array(sent.status, np.int64),
                sent_offset_ns=np.array(sent.offset_ns, np.int64), rtt_ns=rtt_ns[places],
                prober_delay_ns=prober_ns[places], responder_delay_ns=responder_ns[places],
            )
        )  # fmt: skip
        decided_ns = sent.offset_ns[-1] + TIMEOUT_NS
        ready.collect_ns = max(COLLECT_NS, decided_ns) if ready.cut else COLLECT_NS

    def _trace(
        self, agent: Agent, paths: Paths, place: int, at_ns: int, cause: TraceCause
    ) -> Outgoing:
        dead = self._weathers[max(agent.weather, 0)][1]
        key, value = self._traces.write(
            (paths.src[place], paths.dst[place], paths.flow[place]),
            paths.hops(place, self._switches, self._target0, dead),
            agent=agent.key.decode(), at_ns=at_ns, cause=cause,
        )  # fmt: skip
        return Outgoing(PATH_TRACE, key, value, at_ns // MS_NS, at_ns)

    def _heartbeat(self, agent: Agent, at_ns: int, at: bytes) -> Outgoing:
        agent.beats += 1
        flows = 0 if agent.paths is None else len(agent.paths)
        if agent.beat is None or agent.beat_flows != flows:
            datum = self._of(agent) | heartbeat(flows)
            gaps = ("seq", "sent_at", "rounds_sent", "results_sent")
            agent.beat, agent.beat_flows = Form(self._codec, HEARTBEAT, datum, *gaps), flows
        counts = known_number_bytes(agent.seq), known_number_bytes(agent.seq * flows)
        value = agent.beat.fill(known_number_bytes(agent.beats), at, *counts)
        return Outgoing(HEARTBEAT, agent.key, value, at_ns // MS_NS, at_ns)

    def _counters(self, agent: Agent, started_ns: int) -> Outgoing:
        if agent.counters is None:
            datum = self._of(agent) | {"tick_ns": TICK_NS, "samples": samples(agent.host)}
            agent.counters = Form(self._codec, RNIC_COUNTERS, datum, "started_at")
        whole_us = started_ns // SECOND_NS * SECOND_NS // US_NS
        value = agent.counters.fill(number_bytes(whole_us))
        at_ns = started_ns + SECOND_NS
        return Outgoing(RNIC_COUNTERS, agent.key, value, started_ns // MS_NS, at_ns)


def _whole(values: NDArray[np.float64]) -> Int64s:
    return np.rint(values).astype(np.int64)


class SentProbes:
    """The probes of a round in the order sent.

    Attributes
    ----------
    places : of their 5-tuples
    offset_ns, status : of each
    """

    def __init__(self, offset_ns: Int64s) -> None:
        order = np.argsort(offset_ns, kind="stable")
        self.places: list[int] = order.tolist()
        self.offset_ns: list[int] = offset_ns[order].tolist()
        self.status = [OK] * len(order)

    def lose(self, place: int) -> None:
        """Let the probe of a 5-tuple be lost, and all that confirm it."""
        at = self.places.index(place)
        status, sent_ns = LOST[at % len(LOST)], self.offset_ns[at]
        self.status[at] = status
        for attempt in range(1, CONFIRM + 1):
            again_ns = round_down_ns(sent_ns + attempt * TIMEOUT_NS)
            at = bisect_right(self.offset_ns, again_ns)
            self.offset_ns.insert(at, again_ns)
            self.places.insert(at, place)
            self.status.insert(at, status)
