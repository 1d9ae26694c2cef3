"""One real agent with simulated peers and a broker that can be stopped, to be measured."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from ops.bench.agent.peers import LOOPBACK, Peers, Traffic
from ops.bench.rig import process_cost
from ops.bench.rig.process_cost import Memory
from ops.bench.rig.publisher import Publisher
from ops.bench.rig.waiting import wait_until
from ops.broker.embedded import EmbeddedKafka
from ops.log.watch import Watch
from ops.running.pipeline import to_toml
from ops.running.processes import ProcessGroup
from ops.topics.admin import apply_topics
from schemas import topics
from schemas.enums import PingListPhase, TargetOrigin, Transport
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.kafka.registry import codec_for
from schemas.records import Endpoint, Heartbeat, PingList, PingTarget, ProbeRound


def build_tree(description: str, root: Path) -> None:
    r"""Create a host's sysfs and procfs below `root` from a description.

    A line that begins with `/` names a folder. The lines after it are the folder's files
    (`name text`, with `\n` for a line break) and symbolic links (`name -> target`). `#` begins a
    comment.
    """
    folder = root
    for line in description.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("/"):
            folder = root / line.removeprefix("/")
            folder.mkdir(parents=True, exist_ok=True)
            continue
        file, _, text = line.partition(" ")
        if text.startswith("-> "):
            (folder / file).symlink_to(text.removeprefix("-> "))
        else:
            (folder / file).write_text(text.replace("\\n", "\n") + "\n", encoding="utf-8")


CLUSTER: Final = "bench"
MEASURED: Final = "measured"
# Described after a ConnectX-6's driver; every RNIC of the agent gets a tree of its own.
TREE: Final = Path("tests/data/sysfs/connectx6.txt")
PORT: Final = Path("sys/class/infiniband/mlx5_0/ports/1")
ACTIVE_TIMEOUT_S: Final = 60.0
BACK_TIMEOUT_S: Final = 120.0
# Let the first traces, allocations and looks at the host pass.
SETTLE_S: Final = 10.0
SAMPLE_S: Final = 1.0
POLL_S: Final = 0.2
# A heartbeat and a round that are younger than this are not of the outage.
RECENT_S: Final = 3.0
FOLLOWED: Final = (topics.HEARTBEAT, topics.PROBE_ROUND, topics.ENDPOINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the agent has to do: RNICs x targets x 1 Hz."""

    rnics: int = 8
    targets: int = 10

    def __str__(self) -> str:
        return f"{self.rnics} RNICs × {self.targets} targets × 1 Hz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the agent took over a stretch of time."""

    seconds: float
    cpu_s: float
    memory: list[Memory]
    traffic: list[Traffic]

    @property
    def cpu_percent(self) -> float:
        """Share of one core."""
        return 100 * self.cpu_s / self.seconds

    @property
    def pss_bytes(self) -> int | None:
        """The largest share of memory, shared pages divided; None: unknown."""
        return max((m.pss_bytes for m in self.memory if m.pss_bytes is not None), default=None)


@dataclass(slots=True)
class AgentOutput:
    """What has come from the agent through Kafka."""

    # Number of each round, as often as it came.
    rounds: dict[int, int] = field(default_factory=dict)
    newest_round_us: int = 0
    heartbeat: Heartbeat | None = None
    # Where each RNIC answers.
    ports: dict[int, int] = field(default_factory=dict)

    def observe(self, record: object) -> None:
        """Count a record, if it is the agent's."""
        if getattr(record, "agent_id", None) != MEASURED:
            return
        if isinstance(record, ProbeRound):
            self.rounds[record.round_seq] = self.rounds.get(record.round_seq, 0) + 1
            self.newest_round_us = max(self.newest_round_us, record.started_at)
        elif isinstance(record, Heartbeat):
            self.heartbeat = record
        elif isinstance(record, Endpoint):
            self.ports[record.rail] = record.port


class AgentRig:
    """Broker, peers and agent, from the start of the block to its end."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self._folder = folder
        self.shape = shape
        self._stack = ExitStack()
        self.output = AgentOutput()
        self._watch: Watch | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            # Ordinary children are started before there is a second thread here.
            self.kafka = stack.enter_context(EmbeddedKafka(announce=False))
            self._group = stack.enter_context(ProcessGroup(self._folder / "logs"))
            self.settings = settings_from_table(self.kafka.bootstrap, {"cluster": CLUSTER})
            apply_topics(self.settings)
            self._start_agent()
            self._peers = stack.enter_context(Peers(self.shape.targets, self.shape.rnics))
            self._follow()
            _publish_world(self.settings, self.shape, self._peers)
            self._wait_active()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._stack.close()

    @property
    def pid(self) -> int:
        """Process id of the agent."""
        return self._group.child(MEASURED).pid

    def take_broker(self) -> None:
        """Kill the broker."""
        self._forget()
        self.kafka.kill()

    def give_broker(self) -> None:
        """Start the broker again, with what it had, and wait until the agent has published all.

        Raises
        ------
        TimeoutError
            If the agent is not heard within two minutes, or still has something to tell.
        """
        self.kafka.restart()
        self._follow()
        self._wait(_is_back, BACK_TIMEOUT_S, "the agent is not back")

    def measure(self, seconds: float) -> Usage:
        """Watch the agent for so long."""
        cpu_s, before = process_cost.cpu_s(self.pid), self._peers.traffic()
        started = time.monotonic()
        memory: list[Memory] = []
        while (now := time.monotonic()) < started + seconds or not memory:
            self._group.check()
            memory.append(process_cost.memory(self.pid))
            wait_s = min(SAMPLE_S, max(0.0, started + seconds - now))
            self.listen(wait_s)
        took = time.monotonic() - started
        return Usage(
            seconds=took,
            cpu_s=process_cost.cpu_s(self.pid) - cpu_s,
            memory=memory,
            traffic=[_less(a, b) for a, b in zip(self._peers.traffic(), before, strict=True)],
        )

    def listen(self, seconds: float) -> None:
        """Observe what the agent publishes for some seconds."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            if self._watch is None:
                time.sleep(left_s)
                return
            for seen in self._watch.poll(left_s):
                self.output.observe(seen.record)

    def _follow(self) -> None:
        """Read all that the agent has published, from the beginning."""
        self.output = AgentOutput()
        end = time.monotonic() + BACK_TIMEOUT_S
        while self._watch is None:
            try:
                self._watch = Watch(self.settings, FOLLOWED, from_start=True)
            except ConnectionError:
                # A broker that has just come back does not lead all its partitions yet.
                if time.monotonic() > end:
                    raise
                time.sleep(POLL_S)

    def _forget(self) -> None:
        """Read no more: a client whose broker is away would be as busy as who is measured."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None, None, None)

    def _wait(self, done: Callable[[AgentOutput], bool], timeout_s: float, otherwise: str) -> None:
        def asked() -> bool:
            self.listen(POLL_S)
            return done(self.output)

        try:
            wait_until(asked, timeout_s, otherwise, check=self._group.check, poll_s=0)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self._group.child(MEASURED).log_tail()}") from None

    def _start_agent(self) -> None:
        description = TREE.read_text(encoding="utf-8")
        tables = []
        for rail in range(self.shape.rnics):
            root = self._folder / "hosts" / str(rail)
            build_tree(description, root)
            tables.append(
                f'[[agent.rnic]]\nrail = {rail}\naddress = "{LOOPBACK}"\nport = 0\n'
                f'counters = "{root / PORT}"\n'
            )
        first = self._folder / "hosts" / "0"
        head = to_toml(
            {
                "kafka": {"bootstrap.servers": self.kafka.bootstrap, "cluster": CLUSTER},
                "agent": {
                    "id": MEASURED,
                    "host_id": f"host-{MEASURED}",
                    "container_id": MEASURED,
                    "task_id": "bench",
                    "sysfs": str(first / "sys"),
                    "procfs": str(first / "proc"),
                },
            }
        )
        config = self._folder / "agent.toml"
        config.write_text(head + "\n" + "\n".join(tables), encoding="utf-8")
        self._group.start(MEASURED, [sys.executable, "-m", "probers", "--config", str(config)])

    def _wait_active(self) -> None:
        count = self.shape.rnics * self.shape.targets

        def active(heard: AgentOutput) -> bool:
            beat = heard.heartbeat
            return (
                beat is not None
                and beat.targets_active == count
                and len(heard.ports) == self.shape.rnics
            )

        self._wait(active, ACTIVE_TIMEOUT_S, f"not all {count} targets active")
        self._peers.probe([self.output.ports[rail] for rail in range(self.shape.rnics)])
        self.listen(SETTLE_S)


def _is_back(heard: AgentOutput) -> bool:
    """Whether the agent is heard, and rounds come as they are made."""
    beat = heard.heartbeat
    recent_us = (time.time() - RECENT_S) * 1e6
    return (
        beat is not None
        and beat.sent_at > recent_us
        and not beat.broker_away
        and heard.newest_round_us > recent_us
    )


def _less(a: Traffic, b: Traffic) -> Traffic:
    return Traffic(
        probes=a.probes - b.probes,
        replies=a.replies - b.replies,
        asked=a.asked - b.asked,
        answered=a.answered - b.answered,
        payload_bytes=a.payload_bytes - b.payload_bytes,
    )


def _publish_world(settings: KafkaSettings, shape: Shape, peers: Peers) -> None:
    """Register the peers, and tell the agent to probe them."""
    publisher = Publisher(settings)
    codec = codec_for(settings)
    now_us = int(time.time() * 1e6)

    def put(topic: topics.Topic, key: str, record: object) -> None:
        publisher.publish(topic.name, key, codec.encode(topic, record), now_us // 1000)

    for host in range(shape.targets):
        for rail in range(shape.rnics):
            name = f"peer{host}/r{rail}"
            endpoint = Endpoint(
                cluster=CLUSTER,
                endpoint_id=name,
                agent_id=f"agent-peer{host}",
                container_id=f"peer{host}",
                host_id=f"peer{host}",
                rail=rail,
                transport=Transport.UDP,
                address=LOOPBACK,
                port=peers.port(host, rail),
                incarnation=1,
                registered_at=now_us,
            )
            put(topics.ENDPOINT, name, endpoint)
    targets = tuple(
        PingTarget(
            src=f"{MEASURED}/r{rail}",
            dst=f"peer{host}/r{rail}",
            task_id="bench",
            origin=TargetOrigin.BASIC,
            flows=1,
        )
        for rail in range(shape.rnics)
        for host in range(shape.targets)
    )
    record = PingList(
        cluster=CLUSTER,
        agent_id=MEASURED,
        version=1,
        updated_at=now_us,
        phase=PingListPhase.PRELOAD,
        targets=targets,
    )
    put(topics.PINGLIST, MEASURED, record)
    publisher.finish()
