"""The skeleton job as a process, on a real broker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from typer.testing import CliRunner, Result

from ops.cli import skeleton as command
from ops.cli.errors import CliError
from ops.jobs.skeleton_topic import latest_skeleton
from ops.log.watch import Watch, WatchedRecord
from schemas.codec import Codec
from schemas.enums import PingListPhase, TargetOrigin, Transport
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.murmur2 import partition_of
from schemas.records import Endpoint, PingList, Task
from schemas.topics import (
    ENDPOINT,
    MAX_MESSAGE_BYTES,
    PINGLIST,
    RNIC_COUNTERS,
    SKELETON_TOPIC,
    TARGET,
    TASK,
    Topic,
)
from tests.unit.schemas.valid import poison
from tests.unit.skeleton_job.records import SUBMITTED_AT, counter_batches, task_record
from tests.unit.skeleton_job.traffic import Layout, Workload

pytestmark = pytest.mark.broker

TIMEOUT_S = 120.0
CODEC = Codec()
LAYOUT = Layout(dp=2, pp=2, rails=2, seconds=40)


class Wire:
    """Writes records, and follows what the job publishes."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.seen: list[WatchedRecord] = []
        self.watch = Watch(settings, [PINGLIST, TARGET, SKELETON_TOPIC], from_start=True)
        self._producer = Producer(
            {
                **settings.librdkafka(),
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "message.max.bytes": 2 * MAX_MESSAGE_BYTES,
            }
        )

    def put(self, topic: Topic, key: str, record: Any, *, at_us: int | None = None) -> None:
        """Write a record, raw bytes or a tombstone."""
        value = record if isinstance(record, bytes | None) else CODEC.encode(topic, record)
        stamp_ms = time.time_ns() // 10**6 if at_us is None else at_us // 1000
        self._producer.produce(
            self.settings.topic(topic.name), key=key.encode(), value=value, timestamp=stamp_ms
        )

    def flush(self) -> None:
        """Wait until all is written."""
        assert self._producer.flush(30) == 0

    def of(self, topic: Topic) -> list[WatchedRecord]:
        """Return all that was published on a topic so far."""
        self.seen += self.watch.poll(0.05)
        return [seen for seen in self.seen if seen.topic == topic.name]

    def lists(self) -> dict[str, PingList]:
        """Return the latest list of each agent."""
        latest = {seen.key: seen.record for seen in self.of(PINGLIST)}
        return {agent: record for agent, record in latest.items() if record is not None}

    def copies(self) -> dict[int, Endpoint]:
        """Return the latest registration in each partition of the topic of targets."""
        latest = {seen.partition: seen.record for seen in self.of(TARGET)}
        return {partition: record for partition, record in latest.items() if record is not None}

    def letters(self, topic: Topic, count: int) -> list[Message]:
        """Wait for so many dead letters of a topic, and return all there are."""
        name = self.settings.topic(topic.dlq)
        consumer = Consumer({**self.settings.librdkafka(), "group.id": "letters"})

        def kept() -> int:
            return int(consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=10)[1])

        try:
            eventually(lambda: kept() >= count, f"{count} dead letters in {name}")
            assert kept() == count
            consumer.assign([TopicPartition(name, 0, 0)])
            return consumer.consume(count, 10)
        finally:
            consumer.close()


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Wait until the condition gives something true, and return it."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {TIMEOUT_S} s")


@contextmanager
def job(
    settings: KafkaSettings, log: Path, *options: str, ends: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process until the block ends; it must then end by itself on SIGTERM if it `ends`."""
    command = [
        *(sys.executable, "-m", "skeleton_job", "--bootstrap", settings.bootstrap),
        *("--prefix", settings.topic_prefix, "--log-json"),
        *("--interval-s", "2", "--window-s", "40", "--explore-rotate-s", "86400", *options),
    ]
    with log.open("ab") as out:
        before = log.stat().st_size
        process = subprocess.Popen(command, stderr=out, stdout=out, env=dict(os.environ))
    try:
        eventually(
            lambda: b"skeleton.ready" in log.read_bytes()[before:] or process.poll() is not None,
            "ready",
        )
        assert process.poll() is None, log.read_text()
        yield process
        if ends:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def wire(kafka: KafkaSettings) -> Iterator[Wire]:
    """Return a writer and reader of this test's topics."""
    made = Wire(kafka)
    with made.watch:
        yield made


@pytest.fixture
def workload() -> Workload:
    """Return a job of which the last reading lies a moment back."""
    return Workload(LAYOUT, start_ns=time.time_ns() - (int(LAYOUT.seconds) + 3) * 10**9)


def submit(wire: Wire, workload: Workload, **changes: Any) -> Task:
    """Submit the workload's job, with changes."""
    task = replace(task_record(workload.job, cluster="default"), **changes)
    wire.put(TASK, task.task_id, task)
    wire.flush()
    return task


def submit_elsewhere(wire: Wire, workload: Workload) -> None:
    """Submit another job like it, of other endpoints and agents, whose names begin with x."""
    other = replace(task_record(workload.job, cluster="default"), task_id="job2")
    moved = tuple(
        replace(e, endpoint_id=f"x{e.endpoint_id}", agent_id=f"x{e.agent_id}")
        for e in other.endpoints
    )
    wire.put(TASK, "job2", replace(other, endpoints=moved))
    wire.flush()


def runtime_lists(wire: Wire) -> dict[str, PingList]:
    """Return the lists once all four are made from the skeleton."""
    lists = wire.lists()
    runtime = [p for p in lists.values() if p.phase is PingListPhase.RUNTIME]
    return lists if len(runtime) == 4 else {}


def show(wire: Wire, *arguments: str) -> Result:
    """Run `skeleton show`."""
    app = typer.Typer()
    command.register(app)
    options = ["--bootstrap", wire.settings.bootstrap, "--prefix", wire.settings.topic_prefix]
    return CliRunner().invoke(app, ["skeleton", "show", *arguments, *options])


def send_counters(wire: Wire, workload: Workload) -> None:
    """Send all readings of the job."""
    for batch in counter_batches(workload, cluster="default"):
        wire.put(RNIC_COUNTERS, batch.agent_id, batch, at_us=batch.started_at)
    wire.flush()


def test_a_new_job_has_its_basic_lists_at_once(
    wire: Wire, workload: Workload, tmp_path: Path
) -> None:
    """The preload list is made at submission, before any endpoint or counter is there."""
    with job(wire.settings, tmp_path / "log", "--interval-s", "60"):
        submitted_s = time.monotonic()
        submit(wire, workload)
        lists = eventually(lambda: len(found := wire.lists()) == 4 and found, "lists")
        delay_s = time.monotonic() - submitted_s
    # About a tenth of a second, and no interval; the rest is slack for a shared machine.
    assert delay_s < 20
    assert {t.origin for found in lists.values() for t in found.targets} == {TargetOrigin.BASIC}
    assert {found.phase for found in lists.values()} == {PingListPhase.PRELOAD}
    assert all(len(found.targets) == 2 * 3 for found in lists.values())
    # The list's time is the job's event time, its submission.
    assert {found.updated_at for found in lists.values()} == {SUBMITTED_AT}


def test_counters_bring_the_skeleton_and_a_restart_changes_nothing(
    wire: Wire, workload: Workload, tmp_path: Path
) -> None:
    """The skeleton replaces the basic list; a new process publishes nothing of what stands."""
    submit(wire, workload)
    send_counters(wire, workload)
    with job(wire.settings, tmp_path / "log"):
        lists = eventually(lambda: runtime_lists(wire), "runtime lists")
    wanted = {pair for a, b in workload.truth.pairs for pair in ((a, b), (b, a))}
    listed = {
        (t.src, t.dst)
        for found in lists.values()
        for t in found.targets
        if t.origin is TargetOrigin.SKELETON
    }
    assert listed >= wanted
    assert len(listed) <= 2 * len(wanted)
    skeleton = latest_skeleton(wire.settings, "job1")
    assert skeleton is not None
    assert (skeleton.dp, skeleton.pp, skeleton.tp) == (2, 2, 2)
    shown = show(wire, "job1", "--json")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["version"] == skeleton.version
    assert "DP 2 × PP 2 × TP 2" in show(wire, "job1").stdout
    unknown = show(wire, "nobody")
    assert isinstance(unknown.exception, CliError)
    assert unknown.exception.exit_code == 1
    before = len(wire.of(PINGLIST)), len(wire.of(SKELETON_TOPIC))
    with job(wire.settings, tmp_path / "log2"):
        # Another job's list shows that the new process has long seen all there was.
        submit_elsewhere(wire, workload)
        eventually(lambda: len(wire.lists()) == 8, "lists of the other job")
        eventually(lambda: b"skeleton.inferred" in (tmp_path / "log2").read_bytes(), "an inference")
    mine = [seen for seen in wire.of(PINGLIST) if not seen.key.startswith("x")]
    assert (len(mine), len(wire.of(SKELETON_TOPIC))) == before


def test_a_standby_takes_over(wire: Wire, workload: Workload, tmp_path: Path) -> None:
    """The job that leads is killed: the next one's lists come, each once."""
    log = tmp_path / "standby"
    submit(wire, workload)
    with ExitStack() as stack:
        leader = stack.enter_context(job(wire.settings, tmp_path / "leader", ends=False))
        eventually(lambda: len(wire.lists()) == 4, "lists")
        stack.enter_context(job(wire.settings, log))
        assert "skeleton.standby" in log.read_text()
        leader.kill()
        killed_s = time.monotonic()
        submit_elsewhere(wire, workload)
        eventually(lambda: len(wire.lists()) == 8, "lists of the new job")
        # The session of the one that was killed lasts six; Kafka would let it last 45.
        assert time.monotonic() - killed_s < 30
        assert "skeleton.leading" in log.read_text()
    published = [(seen.key, seen.record.version) for seen in wire.of(PINGLIST)]
    assert sorted(published) == sorted((agent, 1) for agent in wire.lists())


def test_versions_grow_over_restarts_and_ended_jobs_leave(
    wire: Wire, workload: Workload, tmp_path: Path
) -> None:
    """A job that ended while no process ran leaves the lists, with a version above the last."""
    task = submit(wire, workload)
    rnic = task.endpoints[0]
    here = Endpoint(
        cluster="default",
        endpoint_id=rnic.endpoint_id,
        agent_id=rnic.agent_id,
        container_id=rnic.container_id,
        host_id=rnic.host_id,
        task_id=task.task_id,
        rail=rnic.rail,
        transport=Transport.UDP,
        address="127.0.0.1",
        port=1,
        incarnation=1,
        registered_at=task.submitted_at,
    )
    wire.put(ENDPOINT, here.endpoint_id, here)
    wire.flush()
    with job(wire.settings, tmp_path / "log"):
        first = eventually(lambda: len(found := wire.lists()) == 4 and found, "lists")
        probers = {
            a for a, made in first.items() if rnic.endpoint_id in {t.dst for t in made.targets}
        }
        needing = {partition_of(a.encode(), 4) for a in {*probers, rnic.agent_id}}
        eventually(
            lambda: wire.copies() == dict.fromkeys(needing, here), "copies of a registration"
        )
    assert probers
    submit(wire, workload, ended_at=task.submitted_at + 1)
    with job(wire.settings, tmp_path / "log"):
        eventually(lambda: set(wire.lists()) == {rnic.agent_id}, "tombstones of absent agents")
        last = wire.lists()[rnic.agent_id]
        assert last.targets == ()
        assert last.version == first[rnic.agent_id].version + 1
        own = partition_of(rnic.agent_id.encode(), 4)
        eventually(lambda: wire.copies() == {own: here}, "tombstones of copies for former probers")


def test_poison_goes_to_the_dead_letters_and_nothing_stops(
    wire: Wire, workload: Workload, tmp_path: Path
) -> None:
    """Garbage on every input, foreign clusters and a fast clock are refused, counted, survived."""
    ahead = next(counter_batches(workload, cluster="default"))
    ahead = replace(ahead, started_at=(time.time_ns() + 3600 * 10**9) // 1000)
    task = replace(task_record(workload.job, cluster="other"), task_id="foreign")
    for topic in (TASK, ENDPOINT, RNIC_COUNTERS, PINGLIST, SKELETON_TOPIC):
        wire.put(topic, "h0", b"garbage")
    wire.put(TASK, "h0", os.urandom(MAX_MESSAGE_BYTES - 200))
    wire.put(TASK, "foreign", task)
    wire.put(TASK, "not its key", replace(task, cluster="default"))
    wire.put(RNIC_COUNTERS, ahead.agent_id, ahead)
    wire.flush()
    with job(wire.settings, tmp_path / "log"):
        submit(wire, workload)
        eventually(lambda: len(wire.lists()) == 4, "lists")
    for topic, count in ((TASK, 4), (RNIC_COUNTERS, 2), (PINGLIST, 1), (SKELETON_TOPIC, 1)):
        wire.letters(topic, count)
    (letter,) = wire.letters(ENDPOINT, 1)
    headers = dict(letter.headers() or [])
    assert letter.value() == b"garbage"
    assert headers["__connect.errors.connector.name"] == b"skeleton"
    log = (tmp_path / "log").read_text()
    assert '"poison": 9' in log


def test_what_is_out_of_bounds_is_kept_and_nothing_stops(
    wire: Wire, workload: Workload, tmp_path: Path
) -> None:
    """Each field of each input beyond its bounds, on both sides: lists come all the same."""
    inputs = (TASK, ENDPOINT, RNIC_COUNTERS, PINGLIST, SKELETON_TOPIC)
    written = {t: list(poison(t.name, "default", time.time_ns())) for t in inputs}
    with job(wire.settings, tmp_path / "log"):
        eventually(lambda: "skeleton.ready" in (tmp_path / "log").read_text(), "ready")
        for topic in (TASK, ENDPOINT, RNIC_COUNTERS):
            for datum in written[topic]:
                # A record without a key is refused for that.
                key = str(datum[topic.key_field]) or "none"
                wire.put(topic, key, CODEC.encode_datum(topic, datum))
        wire.flush()
        submit(wire, workload)
        eventually(lambda: len(wire.lists()) == 4, "lists")
    for topic in (TASK, ENDPOINT, RNIC_COUNTERS):
        assert len(written[topic]) > 5
        wire.letters(topic, len(written[topic]))
    # Its own topics are read at the start.
    for topic in (PINGLIST, SKELETON_TOPIC):
        for datum in written[topic]:
            wire.put(topic, str(datum[topic.key_field]) or "none", CODEC.encode_datum(topic, datum))
    wire.flush()
    with job(wire.settings, tmp_path / "again"):
        eventually(lambda: "skeleton.ready" in (tmp_path / "again").read_text(), "ready again")
    for topic in (PINGLIST, SKELETON_TOPIC):
        wire.letters(topic, len(written[topic]))


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--interval-s", "x"), 2, "--interval-s='x': a number from 1 to 3600"),
        (("--prefix", "none."), 3, "skeletonhunter topics apply"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    kafka: KafkaSettings, options: tuple[str, ...], code: int, says: str
) -> None:
    """Wrong settings exit 2, missing topics 3, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "skeleton_job", "--bootstrap", kafka.bootstrap, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
