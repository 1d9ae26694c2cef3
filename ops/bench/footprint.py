"""Measures what one agent costs its host: memory and CPU at 4 RNICs x 10 targets x 1 Hz."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from ops.broker.embedded import EmbeddedKafka
from ops.pipeline import to_toml
from ops.processes import ProcessGroup
from ops.topic_admin import apply_topics
from ops.watch import Watch
from schemas import topics
from schemas.connection import KafkaSettings, settings_from_table
from schemas.enums import PingListPhase, TargetOrigin
from schemas.records import Heartbeat, PingList, PingTarget
from schemas.registry import codec_for

CLUSTER: Final = "bench"
RNICS: Final = 4
TARGETS_PER_RNIC: Final = 10
MEASURED: Final = "measured"
PEER: Final = "peer"
ACTIVE_TIMEOUT_S: Final = 30.0
# Let the first traces and allocations pass before measuring.
SETTLE_S: Final = 5.0
HEARTBEAT_WAIT_S: Final = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the agent took over `seconds`."""

    rss_mb: float
    cpu_percent: float
    probes_per_s: float
    seconds: float


def run(folder: Path, seconds: float) -> Footprint:
    """Run one agent against the endpoints of another and measure the first."""
    folder.mkdir(parents=True, exist_ok=True)
    with EmbeddedKafka(announce=False) as kafka, ProcessGroup(folder / "logs") as group:
        settings = settings_from_table(kafka.bootstrap, {"cluster": CLUSTER})
        apply_topics(settings)
        peer_rnics = RNICS * TARGETS_PER_RNIC
        for name, count in ((PEER, peer_rnics), (MEASURED, RNICS)):
            config = folder / f"{name}.toml"
            config.write_text(_agent_toml(kafka.bootstrap, name, count, folder), encoding="utf-8")
            group.start(name, [sys.executable, "-m", "probers", "--config", str(config)])
        with Watch(settings, [topics.HEARTBEAT]) as watch:
            _publish_list(settings)
            active = watch.until(
                lambda seen: (
                    isinstance(seen.record, Heartbeat)
                    and seen.record.agent_id == MEASURED
                    and seen.record.targets_active == peer_rnics
                ),
                ACTIVE_TIMEOUT_S,
                idle=group.check,
            )
            if active is None:
                raise TimeoutError(
                    f"not all {peer_rnics} targets active after {ACTIVE_TIMEOUT_S} s:\n"
                    f"{group.child(MEASURED).log_tail()}"
                )
            time.sleep(SETTLE_S)
            return _measure(watch, group.child(MEASURED).pid, seconds)


def _measure(watch: Watch, pid: int, seconds: float) -> Footprint:
    before = _newest_heartbeat(watch)
    cpu_before, started = _cpu_s(pid), time.monotonic()
    rss_mb = 0.0
    while time.monotonic() < started + seconds:
        rss_mb = max(rss_mb, _rss_mb(pid))
        time.sleep(0.5)
    took = time.monotonic() - started
    cpu = _cpu_s(pid) - cpu_before
    after = _newest_heartbeat(watch)
    results = after.results_sent - before.results_sent
    return Footprint(
        rss_mb=rss_mb,
        cpu_percent=100 * cpu / took,
        probes_per_s=results * 1e6 / (after.sent_at - before.sent_at),
        seconds=took,
    )


def _newest_heartbeat(watch: Watch) -> Heartbeat:
    newest: Heartbeat | None = None
    deadline = time.monotonic() + HEARTBEAT_WAIT_S
    while time.monotonic() < deadline:
        for seen in watch.poll(0.1):
            if isinstance(seen.record, Heartbeat) and seen.record.agent_id == MEASURED:
                newest = seen.record
    if newest is None:
        raise TimeoutError(f"no heartbeat of the agent within {HEARTBEAT_WAIT_S} s")
    return newest


def _agent_toml(bootstrap: str, name: str, rnics: int, folder: Path) -> str:
    head = to_toml(
        {
            "kafka": {"bootstrap.servers": bootstrap, "cluster": CLUSTER},
            "agent": {
                "id": name,
                "host_id": f"host-{name}",
                "container_id": name,
                "task_id": "bench",
                "interval_ms": 1000,
            },
        }
    )
    tables = []
    for rail in range(rnics):
        counters = folder / "sys" / name / str(rail) / "counters"
        counters.mkdir(parents=True, exist_ok=True)
        for counter in ("port_xmit_data", "port_rcv_data"):
            (counters / counter).write_text("123456789\n", encoding="utf-8")
        tables.append(
            f'[[agent.rnic]]\nrail = {rail}\naddress = "127.0.0.1"\nport = 0\n'
            f'counters = "{counters}"\n'
        )
    return head + "\n" + "\n".join(tables)


def _publish_list(settings: KafkaSettings) -> None:
    targets = tuple(
        PingTarget(
            src=f"{MEASURED}/r{rail}",
            dst=f"{PEER}/r{rail * TARGETS_PER_RNIC + target}",
            task_id="bench",
            origin=TargetOrigin.BASIC,
            flows=1,
        )
        for rail in range(RNICS)
        for target in range(TARGETS_PER_RNIC)
    )
    record = PingList(
        cluster=CLUSTER,
        agent_id=MEASURED,
        version=1,
        updated_at=int(time.time() * 1e6),
        phase=PingListPhase.PRELOAD,
        targets=targets,
    )
    producer = Producer({**settings.librdkafka(), "partitioner": "murmur2_random"})
    producer.produce(
        settings.topic(topics.PINGLIST.name),
        key=MEASURED,
        value=codec_for(settings).encode(topics.PINGLIST, record),
    )
    producer.flush(10)


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(x for x in status.splitlines() if x.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
