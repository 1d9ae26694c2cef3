"""The stream worker on a real broker: any codec, any garbage, any crash; outputs exact."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from ops.broker.embedded import EmbeddedKafka
from ops.log.watch import Watch, WatchedRecord
from ops.running.processes import ProcessGroup
from ops.topics.admin import apply_topics
from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import KEPT_BYTES, WHOLE_BYTES_HEADER
from schemas.kafka.murmur2 import partition_of
from schemas.kafka.options import producer_options
from schemas.topics import MAX_MESSAGE_BYTES
from streams.edge.watchdog import STALLED_EXIT_CODE
from tests.integration.worker_harness import Harness, assert_exact
from tests.unit.schemas.valid import poison
from tests.unit.streams.worlds import Datum, Fault, World

pytestmark = pytest.mark.broker

SECONDS = 180
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Older rounds would be deleted by retention while the test runs.
RECENT_S = int(time.time()) // 3600 * 3600 - 3600
# Three agents in three partitions, two more beside them.
AGENTS = 5


@pytest.fixture
def harness(replay_kafka: KafkaSettings, tmp_path: Path) -> Iterator[Harness]:
    """Give a harness whose workers end with the test.

    Rounds arrive when they say, as if they had been sent over minutes.
    """
    with ProcessGroup(tmp_path / "logs") as group:
        yield Harness(replay_kafka, tmp_path, group)


@pytest.fixture
def live_harness(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Harness]:
    """Give the same where the broker says when rounds arrive: at once, from hours ago."""
    with ProcessGroup(tmp_path / "logs") as group:
        yield Harness(kafka, tmp_path, group)


def faulty_log(agents: int = AGENTS, seconds: int = SECONDS) -> list[Datum]:
    """Return rounds of some agents in order of time, with a cut, loss and delay."""
    rounds: list[Datum] = []
    for agent in range(agents):
        faults = [
            Fault(40, 70, frozenset({(0, 0)}), loss=1.0),
            Fault(60, 200, frozenset({(0, 1), (0, 2)}), loss=0.2),
            Fault(100, 150, frozenset({(1, 0), (1, 1)}), delay_ns=5_000_000),
        ]
        world = World(seed=agent, agent=f"agent-{agent}", faults=faults)
        rounds += world.rounds(seconds, RECENT_S)
    return sorted(rounds, key=lambda d: (d["started_at"], d["agent_id"]))


def slices(log: list[Datum], parts: int) -> list[list[Datum]]:
    """Cut a log into parts of nearly the same length."""
    return [log[len(log) * i // parts : len(log) * (i + 1) // parts] for i in range(parts)]


def test_outputs_are_exact_for_every_codec_and_poison_harms_nothing(harness: Harness) -> None:
    """A worker reads all codecs, dead-letters every bad round, and writes what the core makes."""
    worker = harness.start("worker")
    harness.wait_ready(worker)
    log = faulty_log()
    bad: list[Datum] = [
        {**log[0], "cluster": "elsewhere"},
        {**log[0], "started_at": -5},
        {**log[0], "started_at": (RECENT_S + SECONDS + 61) * 1_000_000, "round_seq": 9},
    ]
    for part, codec in zip(slices(log, len(CODECS)), CODECS, strict=True):
        harness.publish(part, codec)
        if codec == "snappy":
            harness.publish(bad, arrival_ms=(RECENT_S + SECONDS) * 1_000)
            for poison in (b"", b"\xc3\x01garbage!", b"\x00\x00\x00\x00\x07x", None):
                harness.publish_raw(poison, partition=1)
    harness.wait_processed(worker)
    assert assert_exact(harness) > 500
    letters = harness.dead_letters()
    assert len(letters) == 7
    assert all(b"probe.round.v1" in h["__connect.errors.topic"] for h in letters)
    assert sum(h.get("origin") == b"test" for h in letters) == 4

    # Every partition without new input says that it is idle, those never used too.
    harness.wait(
        lambda: all(harness.idle_marks(p) for p in harness.partitions()), "idle marks", worker
    )
    assert harness.stop("worker") == 0
    (stopped,) = harness.events(worker, "worker.stopped")
    assert stopped["undecodable"] == 4
    assert (stopped["foreign"], stopped["invalid"], stopped["clock_ahead"]) == (1, 1, 1)
    assert stopped["already_published"] == 0


def test_garbage_of_any_size_is_one_dead_letter_each(harness: Harness) -> None:
    """Also what fills its topic, and what is larger, but was compressed; the worker goes on."""
    worker = harness.start("worker")
    harness.wait_ready(worker)
    log = faulty_log(seconds=60)
    harness.publish(log[: len(log) // 2])
    sizes = (1_500_000, MAX_MESSAGE_BYTES - 200)
    for size in sizes:
        harness.publish_raw(os.urandom(size), partition=1)
    harness.publish_raw(bytes(3 * MAX_MESSAGE_BYTES), partition=1, compression="lz4")
    # More than a client inflates: it counts as one record, whose value tells why.
    harness.publish_raw(bytes(120_000_000), partition=1, compression="zstd")
    harness.publish(log[len(log) // 2 :])
    harness.wait_processed(worker)
    assert assert_exact(harness) > 100
    letters = harness.dead_letters()
    assert [int(letter["bytes"]) for letter in letters[:3]] == [*sizes, KEPT_BYTES]
    assert len(letters) == 4
    assert letters[2][WHOLE_BYTES_HEADER] == str(3 * MAX_MESSAGE_BYTES).encode()
    assert {letter["__connect.errors.partition"] for letter in letters} == {b"1"}
    assert harness.stop("worker") == 0
    assert len(harness.events(worker, "worker.ready")) == 1


def test_what_is_out_of_bounds_is_kept_and_nothing_stops(harness: Harness) -> None:
    """Each field of a round beyond its bounds, also a month ahead, and as a partition's first."""
    worker = harness.start("worker")
    harness.wait_ready(worker)
    log = faulty_log(seconds=60)
    bad = list(poison(topics.PROBE_ROUND.name, "lab", time.time_ns()))
    ahead = [{**log[0], "started_at": (time.time_ns() + 30 * 86_400 * 10**9) // 1000}]
    for part, rounds in ((ahead + bad, log[: len(log) // 2]), (bad, log[len(log) // 2 :])):
        harness.publish(part, arrival_ms=time.time_ns() // 10**6)
        harness.publish(rounds)
    harness.wait_processed(worker)
    assert assert_exact(harness) > 100
    assert len(harness.dead_letters()) == 2 * len(bad) + 1
    assert harness.stop("worker") == 0
    (stopped,) = harness.events(worker, "worker.stopped")
    assert stopped["invalid"] + stopped["clock_ahead"] == 2 * len(bad) + 1
    assert len(harness.events(worker, "worker.ready")) == 1


def test_killed_again_and_again_nothing_is_lost_or_written_twice(harness: Harness) -> None:
    """SIGKILL in the middle of windows, of batches and before the first commit: all is exact."""
    options = ("--instance-id", "w1", "--commit-s", "10")
    worker = harness.start("worker", *options)
    harness.wait_ready(worker)
    found = 0

    def more_windows() -> bool:
        return sum(harness.all_windows()) > found

    for part in slices(faulty_log(), 3):
        harness.publish(part[: len(part) // 2])
        # Outputs are there, their commit is not.
        harness.wait(more_windows, "windows", worker)
        harness.publish(part[len(part) // 2 :])
        harness.kill("worker")
        found = sum(harness.all_windows())
        worker = harness.start("worker", *options)
        harness.wait_ready(worker)
    harness.wait_processed(worker)
    assert assert_exact(harness) > 500
    # The kills hit: outputs of a predecessor were recognised.
    assert any(e["outputs_found"] for e in harness.events(worker, "partition.restored"))


def test_partitions_move_between_workers_without_a_trace(live_harness: Harness) -> None:
    """A second worker joins, the first leaves, the second is frozen and wakes: all is exact."""
    harness = live_harness
    first = harness.start("first")
    harness.wait_ready(first)
    parts = slices(faulty_log(), 5)
    harness.publish(parts[0])
    second = harness.start("second")
    harness.wait_ready(second)
    harness.publish(parts[1])
    harness.wait(
        lambda: bool(harness.events(second, "partition.restored")), "handed over", first, second
    )
    assert harness.stop("first") == 0
    third = harness.start("third")
    harness.wait_ready(third)
    before = len(harness.events(third, "partition.restored"))
    harness.publish(parts[2])
    os.kill(second.pid, signal.SIGSTOP)
    try:
        harness.publish(parts[3])
        # The broker gives the frozen worker's partitions away.
        harness.wait(
            lambda: len(harness.events(third, "partition.restored")) > before, "taken over", third
        )
    finally:
        os.kill(second.pid, signal.SIGCONT)
    harness.publish(parts[4])
    harness.wait_processed(second, third)
    assert assert_exact(harness) > 500


def test_worker_outlives_the_broker(tmp_path: Path) -> None:
    """The broker is killed and restarted under load: the same process goes on, outputs exact."""
    with EmbeddedKafka(announce=False) as broker, ProcessGroup(tmp_path / "logs") as group:
        settings = KafkaSettings(bootstrap=broker.bootstrap, topic_prefix="away.")
        apply_topics(settings)
        harness = Harness(settings, tmp_path, group)
        worker = harness.start("worker")
        harness.wait_ready(worker)
        parts = slices(faulty_log(), 2)
        harness.publish(parts[0])
        broker.kill()
        broker.restart()
        harness.publish(parts[1])
        harness.wait_processed(worker)
        assert assert_exact(harness) > 500


def test_programming_error_ends_the_process_and_commits_nothing(harness: Harness) -> None:
    """An exception in the core: non-zero exit, a trace in the log, the round is read again."""
    broken = harness.start_code(
        "broken",
        "import streams.detectors.loss as p\n"
        "def fail(self, results, *, decide):\n"
        "    if decide and not results.ok.all(): raise RuntimeError('a bug')\n"
        "    return []\n"
        "p.LossDetector.observe_results = fail\n",
    )
    harness.wait_ready(broken)
    log = faulty_log(agents=1, seconds=60)
    harness.publish(log)
    assert broken.process.wait(60) == 1
    assert "a bug" in broken.log.read_text(encoding="utf-8")
    assert all(offset <= 0 for offset in harness.committed().values())
    worker = harness.start("worker")
    harness.wait_processed(worker)
    assert assert_exact(harness) > 0


def test_stalled_worker_ends_itself(harness: Harness) -> None:
    """Rounds wait and none is taken: after the limit the watchdog ends the process."""
    stalled = harness.start_code(
        "stalled",
        "import streams.edge.engine as e, time\n"
        "def hang(self, batch): time.sleep(3600)\n"
        "e.Engine._process = hang\n",
        "--stall-s", "5",
    )  # fmt: skip
    harness.wait_ready(stalled)
    harness.publish(faulty_log(agents=1, seconds=5))
    try:
        assert stalled.process.wait(90) == STALLED_EXIT_CODE
    finally:
        # A hanging worker does not hear SIGTERM.
        stalled.process.kill()
    assert harness.events(stalled, "worker.stalled")


def test_hanging_client_ends_the_process(harness: Harness) -> None:
    """The thread that consumes hangs while nothing waits: the watchdog ends the process, too."""
    hanging = harness.start_code(
        "hanging",
        "import streams.edge.consumer as c, time\n"
        "def hang(self): time.sleep(3600)\n"
        "c.RoundConsumer.log_ends = hang\n",
        "--stall-s", "5",
    )  # fmt: skip
    try:
        assert hanging.process.wait(90) == STALLED_EXIT_CODE
    finally:
        hanging.process.kill()
    (stalled,) = harness.events(hanging, "worker.stalled")
    assert stalled["behind"] == 0
    assert stalled["consumer_silent_s"] >= 5


def test_wrong_partition_counts_are_refused(live_harness: Harness, kafka: KafkaSettings) -> None:
    """Windows with more partitions than rounds: exit code 3 and a sentence that says so."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions

    admin = AdminClient(kafka.librdkafka())
    name = kafka.topic(topics.PROBE_WINDOW.name)
    for future in admin.create_partitions([NewPartitions(name, 6)]).values():
        future.result()
    worker = live_harness.start("worker")
    assert worker.process.wait(60) == 3
    assert "same number of partitions" in worker.log_tail()


# Says which kernels have run by the time that a worker begins to take partitions.
KERNELS_RUN = """
from streams.core import absorb
from streams.edge import engine
begin = engine.Engine.__init__
def shown(self, *arguments):
    print("kernels:", len(absorb.absorb.signatures), flush=True)
    begin(self, *arguments)
engine.Engine.__init__ = shown
"""


def test_kernels_are_compiled_before_partitions_are_held(harness: Harness) -> None:
    """Compiling takes longer than a worker may hold partitions without a sign of life."""
    worker = harness.start_code("worker", KERNELS_RUN)
    harness.wait_ready(worker)
    assert "kernels: 1" in worker.log.read_text()


# A long look-back of few rounds.
SLOW_LOOKBACK = """
import time
from streams.core import feed
from streams.edge import session
session.WARMED_AT_ONCE = 1
warm = feed.Feed.warm
def slow(self, messages):
    print("rebuilding", flush=True)
    time.sleep(1)
    warm(self, messages)
feed.Feed.warm = slow
"""


def test_worker_that_rebuilds_hears_that_it_is_to_stop(harness: Harness) -> None:
    """Its look-back takes minutes: SIGTERM ends it at once, and the next worker goes on exactly."""
    log = faulty_log()
    first = harness.start("first")
    harness.wait_ready(first)
    harness.publish(log[: len(log) // 2])
    harness.wait_processed(first)
    assert harness.stop("first") == 0
    second = harness.start_code("second", SLOW_LOOKBACK)
    harness.wait(lambda: "rebuilding" in second.log.read_text(), "rebuilding", second)
    # Not killed, and so within the 30 s that `stop` waits; whole, it takes more than a minute.
    assert harness.stop("second") == 0
    third = harness.start("third")
    harness.publish(log[len(log) // 2 :])
    harness.wait_processed(third)
    assert assert_exact(harness) > 500


def test_where_the_records_of_a_path_stand(harness: Harness) -> None:
    """As docs/guide/tapping.md says: rounds, windows and anomalies by agent, traces by path."""
    worker = harness.start("worker")
    harness.wait_ready(worker)
    log = faulty_log(agents=8)
    harness.publish(log)
    harness.wait_processed(worker)
    count = len(harness.partitions())
    agent_of = {r["src"]: d["agent_id"] for d in log for r in d["results"]}
    records: list[WatchedRecord] = []
    wanted = (topics.PROBE_ROUND, topics.PROBE_WINDOW, topics.ANOMALY)
    with Watch(harness.settings, wanted, from_start=True) as watch:
        heard_s = time.monotonic()
        while time.monotonic() - heard_s < 2:
            found_now = list(watch.poll())
            records += found_now
            heard_s = time.monotonic() if found_now else heard_s
    elsewhere = compared = 0
    for found in records:
        expected = found.key
        if found.topic != topics.PROBE_ROUND.name:
            if not found.record.path_id:
                continue  # a mark of progress
            assert found.key == found.record.path_id
            expected = agent_of[found.record.src]
            compared += 1
            elsewhere += partition_of(found.key.encode(), count) != found.partition
        assert found.partition == partition_of(expected.encode(), count), found
    # Where their own key would put them they are by chance only.
    assert 0 < elsewhere < compared
    producer = Producer(producer_options(harness.settings))
    paths = {found.key for found in records if found.topic == topics.PROBE_WINDOW.name}
    wrong: list[str | bytes] = []

    def landed(error: KafkaError | None, message: Message) -> None:
        key = message.key() or b""
        if error is not None or message.partition() != partition_of(key, count):
            wrong.append(key)

    for path_id in paths:
        producer.produce(harness.name(topics.PATH_TRACE), b"", path_id, on_delivery=landed)
    assert producer.flush(30) == 0
    assert wrong == []
