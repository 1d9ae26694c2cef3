"""The hang watcher and the localizer as processes on a real broker: one hang, one joined fault.

Batches are made of the dumps of real jobs. Processes are killed while the job hangs.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ops.log.watch import Watch
from ops.running.processes import Child, ProcessGroup
from schemas import topics
from schemas.codec import Codec
from schemas.enums import AnomalyKind, AnomalyState, FaultLifecycle, HangClass, Layer
from schemas.kafka.connection import KafkaSettings
from schemas.records import Anomaly, CollectiveBatch, Communicator, FaultEvent, Hang
from schemas.units import SECOND_NS
from tests.collective_batches import CLUSTER, TASK, Arrival, Job, arrivals, moved
from tests.unit.localizer.made import anomaly

pytestmark = pytest.mark.broker
PATIENCE_S = 90.0
OPEN = FaultLifecycle.OPEN


class Bench:
    """Writes what collectors write, as fast as they do; runs the two processes."""

    def __init__(self, kafka: KafkaSettings, folder: Path, group: ProcessGroup) -> None:
        self.settings = KafkaSettings(
            bootstrap=kafka.bootstrap, cluster=CLUSTER, topic_prefix=kafka.topic_prefix
        )
        self.group = group
        self.config = folder / "skeletonhunter.toml"
        self.config.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\ncluster = "{CLUSTER}"\n'
            f'"topic.prefix" = "{kafka.topic_prefix}"\n',
            encoding="utf-8",
        )
        self._codec = Codec()
        self._producer = Producer(self.settings.librdkafka())
        self.hangs: list[Hang] = []
        self.faults: list[FaultEvent] = []

    def start(self, name: str, module: str) -> Child:
        """Start a process."""
        return self.group.start(
            name, [sys.executable, "-m", module, "--config", str(self.config), "--log-json"]
        )

    def write(self, record: Any, key: str) -> None:
        """Write a record to its topic."""
        topic = {
            Communicator: topics.COLLECTIVE_COMM, CollectiveBatch: topics.COLLECTIVE_OP,
            Anomaly: topics.ANOMALY,
        }[type(record)]  # fmt: skip
        self._producer.produce(
            self.settings.topic(topic.name), key=key, value=self._codec.encode(topic, record)
        )
        self._producer.poll(0)

    def mark(self) -> None:
        """Say in each partition that the worker has nothing to do."""
        now_ns = time.time_ns()
        for partition in range(topics.ANOMALY.partitions):
            idle = anomaly(AnomalyKind.PROGRESS, at=now_ns, onset=now_ns, state=AnomalyState.IDLE)
            self._producer.produce(
                self.settings.topic(topics.ANOMALY.name), key=b"~progress", partition=partition,
                value=self._codec.encode(topics.ANOMALY, idle),
            )  # fmt: skip

    def play(self, log: list[Arrival], watch: Watch) -> Iterator[float]:
        """Write records at their times; yield how many seconds of them have passed."""
        began_ns, first_ns = time.time_ns(), log[0].at_ns
        for place, arrival in enumerate(log):
            due_ns = began_ns + arrival.at_ns - first_ns
            while time.time_ns() < due_ns:
                self.mark()
                self.see(watch)
                yield (time.time_ns() - began_ns) / SECOND_NS
            later = moved(arrival, began_ns - first_ns)
            self.write(later.record, later.key)
            if place % 50 == 0:
                self._producer.flush(10)
        self._producer.flush(10)

    def repeat(self, log: list[Arrival]) -> None:
        """Write the latest whole picture of each rank once more, as of now."""
        whole = {a.key: a for a in log if getattr(a.record, "snapshot", False)}
        for arrival in whole.values():
            later = moved(arrival, time.time_ns() - log[-1].at_ns)
            self.write(later.record, later.key)
        assert self._producer.flush(30) == 0

    def see(self, watch: Watch) -> None:
        """Take what was published."""
        for seen in watch.poll(0.2):
            found = self.hangs if isinstance(seen.record, Hang) else self.faults
            found.append(seen.record)


@pytest.fixture
def bench(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Bench]:
    """Return a bench on topics of its own."""
    with ProcessGroup(tmp_path / "logs") as group:
        yield Bench(kafka, tmp_path, group)


def test_a_hang_is_one_fault_whoever_is_killed(bench: Bench, tmp_path: Path) -> None:
    """SIGKILL of the watcher before and while the job hangs, and of the localizer: one of each."""
    job = Job.load("stalled", tmp_path / "job")
    log = arrivals(job, longer_us=40_000_000)
    for name, module in (("hangs", "localizer.hangs"), ("localizer", "localizer")):
        bench.start(name, module)
    kills = [(6.0, "hangs"), (22.0, "hangs"), (26.0, "localizer"), (30.0, "hangs")]
    with Watch(
        bench.settings, [topics.COLLECTIVE_HANG, topics.FAULT_EVENT], from_start=True
    ) as watch:
        modules = {"hangs": "localizer.hangs", "localizer": "localizer"}
        for passed_s in bench.play(log, watch):
            if kills and passed_s > kills[0][0]:
                _, name = kills.pop(0)
                bench.group.kill(name)
                bench.start(name, modules[name])
            bench.group.check()
        deadline = time.monotonic() + PATIENCE_S
        while not (bench.hangs and bench.faults):
            bench.mark()
            bench.see(watch)
            assert time.monotonic() < deadline, (bench.hangs, bench.faults)
        bench.repeat(log)
        check_shown(bench)
        for _ in range(20):
            bench.mark()
            bench.see(watch)
    assert [h.state for h in bench.hangs if h.state is OPEN] == [OPEN]
    assert {h.hang_class for h in bench.hangs} == {HangClass.NEVER_LAUNCHED}
    assert [(h.hang_id, h.seq) for h in bench.hangs] == sorted(
        {(h.hang_id, h.seq) for h in bench.hangs}
    )
    assert [f.state for f in bench.faults if f.state is OPEN] == [OPEN]
    fault = bench.faults[0]
    assert (fault.fault_kind, fault.layer) == ("rank_never_launched", Layer.JOB)
    assert (fault.component_id, fault.tasks) == (f"{TASK}|1", (TASK,))
    assert fault.ranks == tuple(f"{TASK}|{rank}" for rank in range(4))


def check_shown(bench: Bench) -> None:
    """`job show` says what hangs, and where each rank stands."""
    command = [sys.executable, "-m", "ops.cli.start", "job", "show", TASK]
    command += ["--config", str(bench.config)]
    text = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert text.returncode == 1, text.stderr
    assert "hangs since" in text.stdout
    assert "NEVER_LAUNCHED (sure)" in text.stdout
    assert any(line.startswith("!1 ") for line in text.stdout.splitlines())
    shown = subprocess.run(
        [*command, "--json"], check=False, capture_output=True, text=True, timeout=120
    )
    document = json.loads(shown.stdout)
    assert document["hangs"]
    assert document["hang"]["ranks"] == [1]
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1, 2, 3]
    waiting = [
        one for rank in document["ranks"] for one in rank["communicators"] if one["waits_in"]
    ]
    assert len(waiting) == 3
    assert all(one["waited_us"] > 4_000_000 for one in waiting)
