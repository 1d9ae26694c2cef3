"""The messages of simulated agents: rounds, heartbeats, traces, counters. Pure.

An agent probes the targets of its ping list, between endpoints that are registered. As in
`ops.bench.rig.load`, results are encoded a few times for each list, and each round is a fresh
header before one of these bodies. Round trips have no long tail: an outlier would come back with
its body and look like a shift. Rounds with losses are encoded again only when the fault changes,
since a dead component loses the same probes each second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from arena.simulation.agents import (
    CONFIRM,
    DELAY_SIGMA,
    LATE_NS,
    PACE_NS,
    PROBER_DELAY_NS,
    RESPONDER_DELAY_NS,
    TIMEOUT_NS,
    TRANSPORT,
)
from arena.simulation.tracing import REFRESH_NS
from arena.world.cluster import Cluster
from arena.world.latency import PROBE_SIGMA
from arena.world.topology import agent_id, endpoint_id, host_id
from ops.bench.cluster.paths import Dead, Paths, rnic_of
from ops.bench.cluster.shape import CLUSTER, RAILS, ClusterShape
from ops.bench.rig.load import OK, SPREAD_NS, lose, round_body, round_head
from probers.probing.plan import spread_ns, stagger_ns
from probers.probing.rounds import RESOLUTION_NS
from schemas.codec import Codec
from schemas.enums import AgentState, ClockSource, TraceCause
from schemas.records import PingList
from schemas.topics import HEARTBEAT, PATH_TRACE, PROBE_ROUND, RNIC_COUNTERS, Topic
from schemas.units import MS_NS, SECOND_NS, US_NS

# Counters are read ten times a second.
TICKS: Final = 10
TICK_NS: Final = SECOND_NS // TICKS
NO_TROUBLE: Final = (
    "rounds_dropped", "replies_duplicate", "replies_late", "replies_foreign",
    "packets_malformed", "records_undecodable", "targets_waiting",
)  # fmt: skip


def heartbeat(seq: int, rounds: int, flows: int, at_ns: int) -> dict[str, Any]:
    """Return what a heartbeat says of an agent that is well, but who it is."""
    return dict.fromkeys(NO_TROUBLE, 0) | {
        "seq": seq, "sent_at": at_ns // US_NS, "interval_ns": SECOND_NS,
        "state": AgentState.RUNNING.value, "state_reason": None, "endpoints": RAILS,
        "targets_active": flows, "rounds_sent": rounds, "results_sent": rounds * flows,
        "broker_away": False, "host_delay_ns": PROBER_DELAY_NS,
    }  # fmt: skip


def counters(started_ns: int) -> dict[str, Any]:
    """Return the header of a second of counters, but who sends it."""
    whole_s = started_ns // SECOND_NS
    return {"started_at": whole_s * SECOND_NS // US_NS, "tick_ns": TICK_NS, "samples": []}


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


@dataclass
class Agent:
    """One agent: its list as it came, its 5-tuples, the rounds that it has ready."""

    host: int
    phase_ns: int
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
    counters: bytes | None = None


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
        self._target0 = Cluster(shape.fabric, ()).endpoint0
        self.here: set[int] = set()
        # What is dead, and from when on (begin of a round).
        self._weathers: list[tuple[int, Dead]] = [(0, frozenset())]
        self.agents = [
            Agent(host, stagger_ns(agent_id(host), SECOND_NS), agent_id(host).encode())
            for host in range(shape.agents)
        ]
        self.by_phase = sorted(self.agents, key=lambda agent: agent.phase_ns)

    def listed(self, name: str, made: PingList | None) -> None:
        """Let an agent follow a list, or have none."""
        agent = self.agents[int(name.removeprefix("agent-h"))]
        agent.pinglist, agent.paths = made, None
        agent.version = None if made is None else made.version

    def registered(self, endpoint: str, *, here: bool) -> None:
        """Let an endpoint come or leave."""
        (self.here.add if here else self.here.discard)(rnic_of(endpoint))

    def touched(self, hosts: Sequence[int]) -> None:
        """Let agents look again at which of their targets are there."""
        for host in hosts:
            self.agents[host].paths = None
            self.agents[host].counters = None

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
            self._make(agent, paths, agent.ready)
        for place in range(len(paths)):
            yield self._trace(agent, paths, place, now_ns, TraceCause.DISCOVERY)

    def settled(self, begin_ns: int) -> None:
        """Let traces come round as in a cluster that has lived for long."""
        for agent in self.agents:
            if agent.paths is not None:
                spread = self._rng.integers(0, REFRESH_NS, len(agent.paths))
                agent.paths.trace_ns[:] = begin_ns + spread

    def second(self, agent: Agent, started_ns: int) -> Iterator[Outgoing]:
        """Yield what an agent publishes of the round that began then."""
        yield self._heartbeat(agent, started_ns)
        paths = self._paths(agent, started_ns)
        if not len(paths):
            return
        self._set_weather(agent, paths, started_ns)
        self._look_ahead(agent, paths, started_ns)
        ready = agent.ready
        if len(ready.bodies) < BODIES and not (ready.cut and ready.bodies):
            self._make(agent, paths, ready)
        body = ready.bodies[agent.seq % len(ready.bodies)]
        agent.seq += 1
        due_ns = started_ns + ready.collect_ns
        head = round_head(self._codec, self._header(agent), agent.seq, started_ns // US_NS)
        count = len(paths) + CONFIRM * len(ready.cut)
        at_ms = started_ns // MS_NS
        yield Outgoing(PROBE_ROUND, agent.key, head + body, at_ms, due_ns, count)
        for place in paths.due(started_ns, ready.cut, self._rng):
            yield self._trace(agent, paths, place, started_ns, TraceCause.DISCOVERY)
        for place in paths.lost_due(started_ns, ready.cut):
            yield self._trace(agent, paths, place, due_ns, TraceCause.LOSS)
        if agent.host % self.shape.counters_every == 0:
            yield self._counters(agent, started_ns)

    def _paths(self, agent: Agent, now_ns: int) -> Paths:
        if agent.paths is None:
            targets = () if agent.pinglist is None else agent.pinglist.targets
            agent.paths = Paths.of(
                targets, self.here, self.shape.fabric, now_ns=now_ns, rng=self._rng
            )
            agent.ready, agent.ahead, agent.whole, agent.weather = Ready(), None, None, -1
        return agent.paths

    def _set_weather(self, agent: Agent, paths: Paths, started_ns: int) -> None:
        number = max(n for n, (since_ns, _) in enumerate(self._weathers) if since_ns <= started_ns)
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
                self._make(agent, paths, ready)
            agent.ahead = number, ready

    def _of(self, agent: Agent) -> dict[str, Any]:
        return {
            "cluster": CLUSTER, "agent_id": agent.key.decode(), "host_id": host_id(agent.host),
            "incarnation": self._started_ns, "pinglist_version": agent.version,
            "producer_version": "0.1.0",
        }  # fmt: skip

    def _header(self, agent: Agent) -> dict[str, Any]:
        return self._of(agent) | {"interval_ns": SECOND_NS}

    def _make(self, agent: Agent, paths: Paths, ready: Ready) -> None:
        """Encode the results of one more round."""
        rng, count = self._rng, len(paths)
        slots = np.array(spread_ns(count, SPREAD_NS), np.float64)
        offset = slots + rng.exponential(LATE_NS, count) + PACE_NS * rng.random(count)
        rtt = paths.base_ns * np.exp(rng.normal(0.0, PROBE_SIGMA, count))
        delays = np.exp(rng.normal(0.0, DELAY_SIGMA, (2, count)))
        # Told as agents tell them, in multiples.
        offset, prober, responder = (
            RESOLUTION_NS * np.floor(c / RESOLUTION_NS)
            for c in (offset, PROBER_DELAY_NS * delays[0], RESPONDER_DELAY_NS * delays[1])
        )
        columns = (offset, rtt, prober, responder)
        results = [
            {
                "src": src, "dst": dst, "flow": flow, "sent_offset_ns": at, "transport": TRANSPORT,
                "status": OK, "rtt_ns": trip, "prober_delay_ns": prober,
                "responder_delay_ns": responder, "clock": ClockSource.HARDWARE.value,
            }
            for src, dst, flow, at, trip, prober, responder in zip(
                paths.src, paths.dst, paths.flow,
                *(np.rint(c).astype(np.int64).tolist() for c in columns), strict=True,
            )
        ]  # fmt: skip
        cut = [results[n] for n in ready.cut]
        results.sort(key=lambda r: int(r["sent_offset_ns"]))
        for lost in cut:
            # Places move: what is sent again is put in between.
            lose(results, results.index(lost), again=CONFIRM, answered=False)
        decided_ns = int(results[-1]["sent_offset_ns"]) + TIMEOUT_NS
        ready.collect_ns = max(COLLECT_NS, decided_ns) if ready.cut else COLLECT_NS
        ready.bodies.append(round_body(self._codec, self._header(agent), results))

    def _trace(
        self, agent: Agent, paths: Paths, place: int, at_ns: int, cause: TraceCause
    ) -> Outgoing:
        datum = paths.trace(
            place, agent.key.decode(), at_ns, fabric=self.shape.fabric, target0=self._target0,
            cause=cause, dead=self._weathers[max(agent.weather, 0)][1],
        )  # fmt: skip
        value = self._codec.encode_datum(PATH_TRACE, datum)
        return Outgoing(PATH_TRACE, datum["path_id"].encode(), value, at_ns // MS_NS, at_ns)

    def _heartbeat(self, agent: Agent, at_ns: int) -> Outgoing:
        agent.beats += 1
        flows = 0 if agent.paths is None else len(agent.paths)
        datum = self._of(agent) | heartbeat(agent.beats, agent.seq, flows, at_ns)
        value = self._codec.encode_datum(HEARTBEAT, datum)
        return Outgoing(HEARTBEAT, agent.key, value, at_ns // MS_NS, at_ns)

    def _counters(self, agent: Agent, started_ns: int) -> Outgoing:
        header = self._of(agent) | counters(started_ns)
        # What is cut off is the mark that the array ends.
        head = self._codec.encode_datum(RNIC_COUNTERS, header)[:-1]
        if agent.counters is None:
            datum = header | {"samples": samples(agent.host)}
            whole = self._codec.encode_datum(RNIC_COUNTERS, datum)
            if not whole.startswith(head):
                raise RuntimeError("the samples are no longer the last field of counters")
            agent.counters = whole[len(head) :]
        at_ns = started_ns + SECOND_NS
        return Outgoing(RNIC_COUNTERS, agent.key, head + agent.counters, started_ns // MS_NS, at_ns)
