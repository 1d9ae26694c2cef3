"""What containers that come and go leave behind in the localizer: objects and CPU time.

Each container is a job of its own with one endpoint and an agent. It registers, is probed by a
resident agent and probes back, is traced, writes a state, and leaves with tombstones. Residents
send heartbeats all the time. Merge and core are those of the service.
"""

import gc
import time
from collections import defaultdict
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

from arena.world.topology import Cable, component
from localizer.config import CoreConfig
from localizer.core import Core
from localizer.merge import Merge
from ops.bench.rig.report import Figure, Parts, Say, figure
from schemas import topics
from schemas.enums import (
    AgentState,
    AnomalyState,
    ComponentKind,
    PingListPhase,
    TargetOrigin,
    TraceCause,
    Transport,
)
from schemas.ids import path_id, state_id
from schemas.records import (
    ComponentState,
    Endpoint,
    Heartbeat,
    PathTrace,
    PingList,
    PingTarget,
    Task,
    TaskEndpoint,
    TraceHop,
)
from schemas.units import MS_NS, SECOND_NS, US_NS
from streams.core.outputs import progress

NAME: Final = "life"
START_NS: Final = 1_700_000_000 * SECOND_NS
RESIDENTS: Final = 4
# 500 a minute, each for half a minute.
PER_SECOND: Final = 8
LIFE_S: Final = 30
# What left is forgotten after this time.
FORGOTTEN_S: Final = 1_000
# Containers before the first count; then until as many paths are forgotten as come.
FIRST_S: Final = 60
WARM_UP_S: Final = 1_000
MEASURED_S: Final = 600
NOT_COUNTED: Final = (ModuleType, type, FunctionType, BuiltinFunctionType)


class Containers:
    """A small cluster in which containers come and go, as records.

    Attributes
    ----------
    now_ns
        Arrival of what is written.
    came
        Containers that came.
    """

    def __init__(self, cluster: str = NAME, now_ns: int = START_NS) -> None:
        self.now_ns = now_ns
        self.came = 0
        self._cluster = cluster
        self._left = 0
        self._beats = 0
        for switch in ("leaf:0",):
            self._part(switch, ComponentKind.SWITCH, address="10.0.0.1")
        for n in range(RESIDENTS):
            host, rnic = f"host:{n}", f"rnic:{n}"
            self._part(host, ComponentKind.HOST)
            self._part(rnic, ComponentKind.RNIC, parent=host)
            cable = Cable.between(rnic, "leaf:0")
            self._part(cable.link_id, ComponentKind.LINK, cable=cable)
            self._part(f"agent-{n}", ComponentKind.AGENT, parent=host)
            self._register(f"ep:{n}", f"agent-{n}", n)

    def run(self, seconds: int, per_second: int) -> None:
        """Let time pass; so many containers come each second, and leave after `LIFE_S`."""
        for _ in range(seconds):
            self.now_ns += SECOND_NS
            for _ in range(per_second):
                self._come(self.came)
                self.came += 1
            while self._left < self.came - LIFE_S * per_second and per_second:
                self._leave(self._left)
            for agent in range(RESIDENTS):
                self.beat(f"agent-{agent}", agent)
            self.end_second()

    def drain(self) -> None:
        """Let all containers leave, and time pass until they are forgotten."""
        for number in range(self._left, self.came):
            self._leave(number)
        self.run(FORGOTTEN_S, 0)

    @property
    def present(self) -> range:
        """Numbers of the containers that are there."""
        return range(self._left, self.came)

    def write(self, topic: str, key: str, record: Any) -> None:
        """Write a record; None: a tombstone."""
        raise NotImplementedError

    def end_second(self) -> None:
        """Do what is due after each second's records."""
        raise NotImplementedError

    def _come(self, number: int) -> None:
        endpoint, agent, host = f"ep:c{number}", f"agent-c{number}", number % RESIDENTS
        self._part(endpoint, ComponentKind.ENDPOINT, parent=f"rnic:{host}", address=f"a{number}")
        member = TaskEndpoint(
            endpoint_id=endpoint, container_id=f"c{number}", host_id=f"host:{host}",
            agent_id=agent, rail=0,
        )  # fmt: skip
        task = Task(
            cluster=self._cluster, task_id=f"t{number}", submitted_at=self.now_ns // US_NS,
            endpoints=(member,),
        )  # fmt: skip
        self.write(topics.TASK.name, task.task_id, task)
        self._register(endpoint, agent, host)
        other = (host + 1) % RESIDENTS
        target = PingTarget(
            src=endpoint, dst=f"ep:{other}", task_id=task.task_id, origin=TargetOrigin.BASIC,
            flows=2,
        )  # fmt: skip
        pinglist = PingList(
            cluster=self._cluster, agent_id=agent, version=1,
            updated_at=0, phase=PingListPhase.PRELOAD, targets=(target,),
        )  # fmt: skip
        self.write(topics.PINGLIST.name, agent, pinglist)
        for flow in range(2):
            self._trace(endpoint, f"ep:{other}", flow, agent)
            self._trace(f"ep:{other}", endpoint, flow, f"agent-{other}")
        state = ComponentState(
            cluster=self._cluster, state_id=state_id(endpoint, "container"), component_id=endpoint,
            attribute="container", text="running", changed_at=0, observed_at=0, source="test",
        )  # fmt: skip
        self.write(topics.COMPONENT_STATE.name, state.state_id, state)
        self.beat(agent, host)

    def _leave(self, number: int) -> None:
        self._left = number + 1
        endpoint, agent = f"ep:c{number}", f"agent-c{number}"
        self.beat(agent, number % RESIDENTS, AgentState.LEAVING)
        for topic, key in (
            (topics.ENDPOINT, endpoint),
            (topics.PINGLIST, agent),
            (topics.COMPONENT_STATE, state_id(endpoint, "container")),
            (topics.TOPOLOGY, endpoint),
            (topics.TASK, f"t{number}"),
        ):
            self.write(topic.name, key, None)

    def _part(self, name: str, kind: ComponentKind, **more: Any) -> None:
        self.write(topics.TOPOLOGY.name, name, component(self._cluster, name, kind, 0, **more))

    def _register(self, endpoint: str, agent: str, host: int) -> None:
        found = Endpoint(
            cluster=self._cluster, endpoint_id=endpoint, agent_id=agent, container_id=endpoint,
            host_id=f"host:{host}", rail=0, transport=Transport.UDP, address=endpoint, port=1,
            incarnation=1, registered_at=0,
        )  # fmt: skip
        self.write(topics.ENDPOINT.name, endpoint, found)

    def _trace(self, src: str, dst: str, flow: int, agent: str) -> None:
        hops = (
            TraceHop(ttl=1, address="10.0.0.1", rtt_ns=10_000),
            TraceHop(ttl=2, address=f"@{dst}", rtt_ns=20_000),
        )
        trace = PathTrace(
            cluster=self._cluster, path_id=path_id(src, dst), src=src, dst=dst,
            flow=flow, agent_id=agent, traced_at=self.now_ns // US_NS,
            cause=TraceCause.DISCOVERY, complete=True, hops=hops,
        )  # fmt: skip
        self.write(topics.PATH_TRACE.name, trace.path_id, trace)

    def beat(self, agent: str, host: int, state: AgentState = AgentState.RUNNING) -> None:
        """Write an agent's heartbeat."""
        self._beats += 1
        # Containers do not last until their second heartbeat.
        interval_ns = (1 if "-c" not in agent else LIFE_S) * SECOND_NS
        beat = Heartbeat(
            cluster=self._cluster, agent_id=agent, host_id=f"host:{host}",
            incarnation=1, seq=self._beats, sent_at=self.now_ns // US_NS,
            interval_ns=interval_ns, state=state, endpoints=1,
            targets_active=1, targets_waiting=0, rounds_sent=0, results_sent=0, rounds_dropped=0,
            replies_duplicate=0, replies_late=0, replies_foreign=0, packets_malformed=0,
            records_undecodable=0, broker_away=False,
        )  # fmt: skip
        self.write(topics.HEARTBEAT.name, agent, beat)


class Life(Containers):
    """Such a cluster in front of the localizer's core."""

    def __init__(self, config: CoreConfig | None = None) -> None:
        self.core = Core(config or CoreConfig(cluster=NAME))
        self._merge = Merge()
        self._offsets: defaultdict[str, int] = defaultdict(int)
        super().__init__()

    def write(self, topic: str, key: str, record: Any) -> None:
        """Feed a record to the core."""
        self._offsets[topic] += 1
        for event in self._merge.accept_record(
            topic, key, record, partition=0, offset=self._offsets[topic],
            timestamp_ms=self.now_ns // MS_NS,
        ):  # fmt: skip
            self.core.feed(event)

    def end_second(self) -> None:
        """Mark the worker's progress, and decide."""
        mark = progress(NAME, 0, AnomalyState.ONGOING, self.now_ns // US_NS)
        self.write(topics.ANOMALY.name, "~progress", mark)
        self.core.advance(self.now_ns)

    def objects(self) -> int:
        """Return how many objects the localizer holds."""
        seen: set[int] = set()
        waiting: list[Any] = [self.core, self._merge]
        while waiting:
            one = waiting.pop()
            if id(one) in seen or isinstance(one, NOT_COUNTED):
                continue
            seen.add(id(one))
            waiting += gc.get_referents(one)
        return len(seen)


def life(runs: int, say: Say) -> list[Figure]:
    """Measure objects kept of a container that left, and whether CPU time grows."""
    del runs  # One long run.
    found = Life()
    found.run(FIRST_S, PER_SECOND)
    found.drain()
    before, came, costs = found.objects(), found.came, []
    found.run(WARM_UP_S, PER_SECOND)
    for _ in range(2):
        begin_s = time.process_time()
        found.run(MEASURED_S // 2, PER_SECOND)
        costs.append(time.process_time() - begin_s)
    found.drain()
    more, gone = found.objects() - before, found.came - came
    say(
        f"localizer, {gone:,} containers came and went: {before:,} objects before, "
        f"{more:+,} after, CPU time of the halves {costs[0]:.1f} s and {costs[1]:.1f} s"
    )
    return [
        figure("localizer: objects kept of a container that left", [max(0, more) / gone], "", 0.1),
        figure("… CPU time, second half against the first", [costs[1] / costs[0]], "×", 1.2),
    ]


PARTS: Final[Parts] = {"localizer-life": life}
