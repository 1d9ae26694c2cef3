"""Agents under attack: a flood at the port of one of two that probe each other; silent targets."""

import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from ops.bench.rig import process_cost
from ops.bench.rig.report import Figure, figure
from ops.broker.embedded import EmbeddedKafka
from ops.log.watch import Watch
from ops.running.pipeline import to_toml
from ops.running.processes import ProcessGroup
from ops.topics.admin import apply_topics
from probers.transports.sockets import SO_TIMESTAMPNS, kernel_time_ns
from schemas import topics
from schemas.enums import PingListPhase, ProbeStatus, TargetOrigin, Transport
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.kafka.registry import codec_for
from schemas.records import Endpoint, Heartbeat, PingList, PingTarget, ProbeRound

COMMAND: Final = "make bench-agent"
CLUSTER: Final = "bench"
LOOPBACK: Final = "127.0.0.1"
FLOWS: Final = 8
INTERVAL_MS: Final = 100
READY_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2
# The last rounds of a stretch come a little later: probes time out, and batches wait.
AFTER_S: Final = 2.5
FLOOD_S: Final = 20.0
OFFERED_HZ: Final = 160_000.0
REACHED_BAR_HZ: Final = 150_000.0
LOSS_BAR_PERCENT: Final = 1.0
KEY: Final = "00112233445566778899aabbccddeeff" * 2
# Whether the agents have a key, what the strangers send, and from how many ports.
FLOODS: Final = (
    (True, "garbage", 1),
    (True, "foreign-key", 64),
    (False, "garbage", 1),
    (False, "unsealed", 1),
    (False, "unsealed", 64),
)
SILENT_TARGETS: Final = 3_000
SILENT_S: Final = 20.0
RATE_HZ: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What two agents saw of each other over some time.

    Attributes
    ----------
    probes, lost : by agent, whose own probes they are; a repetition counts as a probe
    cpu_percent : by agent, of a core
    reached_hz : packets a second that the strangers sent; 0: there were none
    """

    probes: dict[str, int]
    lost: dict[str, int]
    cpu_percent: dict[str, float]
    reached_hz: float

    def loss(self, agent: str) -> float:
        """Return the share of the agent's own probes that were lost."""
        return self.lost[agent] / max(1, self.probes[agent])


@dataclass(slots=True)
class _Seen:
    rounds: list[ProbeRound] = field(default_factory=list)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    beats: dict[str, Heartbeat] = field(default_factory=dict)
    reasons: dict[str, set[str]] = field(default_factory=dict)

    def observe(self, record: object) -> None:
        if isinstance(record, ProbeRound):
            self.rounds.append(record)
        elif isinstance(record, Endpoint):
            self.endpoints[record.agent_id] = record
        elif isinstance(record, Heartbeat):
            self.beats[record.agent_id] = record
            if record.state_reason is not None:
                self.reasons.setdefault(record.agent_id, set()).add(record.state_reason)


class TwoAgents:
    """A broker and two agents, each other's only target."""

    names: Final = ("victim", "peer")

    def __init__(self, group: ProcessGroup, settings: KafkaSettings, watch: Watch) -> None:
        self._group = group
        self._settings = settings
        self._watch = watch
        self._seen = _Seen()

    @property
    def heartbeats(self) -> dict[str, Heartbeat]:
        """The latest of each agent."""
        return self._seen.beats

    @property
    def reasons(self) -> dict[str, set[str]]:
        """What the heartbeats of each agent gave as a reason for being degraded."""
        return self._seen.reasons

    def pid(self, agent: str) -> int:
        """Process id of an agent."""
        return self._group.child(agent).pid

    def wait_until_probing(self) -> None:
        """Wait until both have an active target.

        Raises
        ------
        TimeoutError
            If that takes a minute.
        """
        end = time.monotonic() + READY_TIMEOUT_S
        while not all(
            name in self._seen.endpoints
            and (beat := self._seen.beats.get(name)) is not None
            and beat.targets_active
            for name in self.names
        ):
            if time.monotonic() > end:
                tails = "\n".join(self._group.child(name).log_tail() for name in self.names)
                raise TimeoutError(f"the agents do not probe each other:\n{tails}")
            self._listen(POLL_S)
        self._listen(AFTER_S)

    def measure(
        self, seconds: float, kind: str | None = None, rate_hz: float = 0, sources: int = 1
    ) -> Stretch:
        """Watch both for so long, while strangers flood the victim's port if a kind is given."""
        cpu_s = {name: process_cost.cpu_s(self.pid(name)) for name in self.names}
        began_us = time.time_ns() // 1_000
        flooder = None
        if kind is not None:
            port = self._seen.endpoints["victim"].port
            flooder = subprocess.Popen(
                [sys.executable, "-m", "ops.bench.agent.flooder", LOOPBACK, str(port),
                 str(rate_hz), str(seconds), kind, str(sources)],
                stdout=subprocess.PIPE,
            )  # fmt: skip
        self._listen(seconds)
        ended_us = time.time_ns() // 1_000
        cpu_percent = {
            name: 100 * (process_cost.cpu_s(self.pid(name)) - cpu_s[name]) / seconds
            for name in self.names
        }
        reached_hz = 0.0
        if flooder is not None:
            reached_hz = float(flooder.communicate()[0])
        self._listen(AFTER_S)
        probes, lost = dict.fromkeys(self.names, 0), dict.fromkeys(self.names, 0)
        for one in self._seen.rounds:
            if began_us <= one.started_at <= ended_us:
                probes[one.agent_id] += len(one.results)
                lost[one.agent_id] += sum(r.status is not ProbeStatus.OK for r in one.results)
        return Stretch(probes=probes, lost=lost, cpu_percent=cpu_percent, reached_hz=reached_hz)

    def _listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            self._group.check()
            for seen in self._watch.poll(min(left_s, POLL_S)):
                self._seen.observe(seen.record)


@contextmanager
def two_agents(folder: Path, *, key: str | None) -> Iterator[TwoAgents]:
    """Yield two agents that probe each other; with a key, their packets are sealed."""
    with ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedKafka(announce=False))
        group = stack.enter_context(ProcessGroup(folder / "logs"))
        settings = settings_from_table(kafka.bootstrap, {"cluster": CLUSTER})
        apply_topics(settings)
        for name in TwoAgents.names:
            config = _write_config(
                folder, settings, name, key, interval_ms=INTERVAL_MS,
                spread_ms=INTERVAL_MS // 2, flows=FLOWS, confirm=0,
            )  # fmt: skip
            group.start(name, [sys.executable, "-m", "probers", "--config", str(config)])
        _publish_lists(settings)
        wanted = (topics.HEARTBEAT, topics.PROBE_ROUND, topics.ENDPOINT)
        with Watch(settings, wanted, from_start=True) as watch:
            agents = TwoAgents(group, settings, watch)
            agents.wait_until_probing()
            yield agents


def _write_config(
    folder: Path, settings: KafkaSettings, name: str, key: str | None, **more: int
) -> Path:
    options: dict[str, object] = {
        "id": name, "host_id": name, **more,
    }  # fmt: skip
    if key is not None:
        path = folder / "probe.key"
        path.write_text(key + "\n", encoding="utf-8")
        path.chmod(0o600)
        options["probe_key_file"] = str(path)
    head = to_toml(
        {
            "kafka": {"bootstrap.servers": settings.bootstrap, "cluster": CLUSTER},
            "agent": options,
        }
    )
    config = folder / f"{name}.toml"
    rnic = f'[[agent.rnic]]\nrail = 0\naddress = "{LOOPBACK}"\nport = 0\n'
    config.write_text(f"{head}\n{rnic}", encoding="utf-8")
    return config


def _publish_lists(settings: KafkaSettings) -> None:
    lists = [
        (topics.PINGLIST, name, _list_of(name, [f"{other}/r0"], FLOWS))
        for name, other in (TwoAgents.names, TwoAgents.names[::-1])
    ]
    _publish(settings, lists)


def _list_of(agent: str, targets: Sequence[str], flows: int) -> PingList:
    pairs = tuple(
        PingTarget(
            src=f"{agent}/r0", dst=dst, task_id="bench", origin=TargetOrigin.BASIC, flows=flows
        )
        for dst in targets
    )
    return PingList(
        cluster=CLUSTER, agent_id=agent, version=1, updated_at=time.time_ns() // 1_000,
        phase=PingListPhase.PRELOAD, targets=pairs,
    )  # fmt: skip


def _publish(settings: KafkaSettings, records: Sequence[tuple[topics.Topic, str, object]]) -> None:
    producer = Producer({**settings.librdkafka(), "partitioner": "murmur2_random"})
    codec = codec_for(settings)
    for topic, key, record in records:
        producer.produce(settings.topic(topic.name), key=key, value=codec.encode(topic, record))
        producer.poll(0)
    if producer.flush(10):
        raise TimeoutError("the broker did not accept ping lists and registrations")


def flood(runs: int, say: Callable[[str], None], *, seconds: float) -> list[Figure]:
    """Measure what two agents lose of each other's answers while strangers flood one."""
    lasts_s = min(seconds, FLOOD_S)
    seen: dict[str, list[Stretch]] = {}
    for _ in range(runs):
        for sealed in (True, False):
            with (
                tempfile.TemporaryDirectory(prefix="skeletonhunter-bench-") as name,
                two_agents(Path(name), key=KEY if sealed else None) as agents,
            ):
                for kind, sources in ((k, n) for with_key, k, n in FLOODS if with_key is sealed):
                    what = f"{'with' if sealed else 'without'} a key, {kind} from {sources} ports"
                    stretch = agents.measure(lasts_s, kind, OFFERED_HZ, sources)
                    seen.setdefault(what, []).append(stretch)
                    say(f"{what}: {stretch}")
    rows = []
    for what, spans in seen.items():
        rows += [
            figure(
                f"flood {what}: loss of the {whose} own probes",
                [100 * span.loss(agent) for span in spans],
                "%", bar=LOSS_BAR_PERCENT, sense="<=", command=COMMAND, worst=True,
            )
            for agent, whose in (("peer", "peer's"), ("victim", "flooded agent's"))
        ]  # fmt: skip
        rows.append(
            figure(
                f"flood {what}: packets sent", [span.reached_hz for span in spans], "/s",
                bar=REACHED_BAR_HZ, sense=">=", command=COMMAND, worst=True,
            )
        )  # fmt: skip
        rows.append(
            figure(
                f"flood {what}: CPU of the flooded agent",
                [span.cpu_percent["victim"] for span in spans], "% of a core",
                bar=None, sense="<=", command=COMMAND, worst=True,
            )
        )  # fmt: skip
    return rows


def silent(runs: int, say: Callable[[str], None], *, seconds: float) -> list[Figure]:
    """Measure how many packets an agent sends to targets that never answer."""
    busiest = []
    for _ in range(runs):
        with (
            tempfile.TemporaryDirectory(prefix="skeletonhunter-bench-") as name,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        ):
            sink.bind((LOOPBACK, 0))
            sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
            with _agent_with_silent_targets(Path(name), sink.getsockname()[1]):
                busiest.append(float(_busiest_second(sink, min(seconds, SILENT_S))))
        say(f"busiest second: {busiest[-1]:.0f} packets")
    return [
        figure(
            f"{SILENT_TARGETS:,} silent targets, max_rate_hz {RATE_HZ:,}: packets in the busiest "
            "second", busiest, "/s", bar=RATE_HZ, sense="<=", command=COMMAND, worst=True,
        )
    ]  # fmt: skip


@contextmanager
def _agent_with_silent_targets(folder: Path, port: int) -> Iterator[None]:
    targets = [f"silent{n}/r0" for n in range(SILENT_TARGETS)]
    with EmbeddedKafka(announce=False) as kafka, ProcessGroup(folder / "logs") as group:
        settings = settings_from_table(kafka.bootstrap, {"cluster": CLUSTER})
        apply_topics(settings)
        now_us = time.time_ns() // 1_000
        registered = [
            Endpoint(
                cluster=CLUSTER, endpoint_id=dst, agent_id=f"agent-{n}", container_id=f"c{n}",
                host_id=f"h{n}", rail=0, transport=Transport.UDP, address=LOOPBACK, port=port,
                incarnation=1, registered_at=now_us,
            )
            for n, dst in enumerate(targets)
        ]  # fmt: skip
        _publish(settings, [(topics.ENDPOINT, e.endpoint_id, e) for e in registered])
        _publish(settings, [(topics.PINGLIST, "victim", _list_of("victim", targets, 1))])
        config = _write_config(folder, settings, "victim", None, max_rate_hz=RATE_HZ)
        group.start("victim", [sys.executable, "-m", "probers", "--config", str(config)])
        yield


def _busiest_second(sink: socket.socket, seconds: float) -> int:
    """Return the most packets in any second, from the first packet on."""
    sink.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sink.settimeout(READY_TIMEOUT_S)
    recent: deque[int] = deque()
    most, end_ns = 0, None
    while True:
        try:
            _, ancillary, _, _ = sink.recvmsg(2048, 256)
        except TimeoutError:
            return most
        at_ns = kernel_time_ns(ancillary)
        if at_ns is None:
            continue
        end_ns = at_ns + int(seconds * 1e9) if end_ns is None else end_ns
        recent.append(at_ns)
        while recent[0] <= at_ns - 10**9:
            recent.popleft()
        most = max(most, len(recent))
        if at_ns > end_ns:
            return most
