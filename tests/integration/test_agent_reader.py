"""The agent's reader on a real broker: whole topics, their ends, a second reading."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from ops.log.entry import Entry
from ops.topics.admin import TopicAdmin, apply_topics
from probers.clock import Instant, SystemClock
from probers.lists.consumer import TopicReader
from probers.lists.inbox import Record
from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from schemas.units import MS_NS
from tests.integration.data_tools import produce

pytestmark = pytest.mark.broker

WAIT_S = 120
LARGE = 10
# Partition of agent-a, of four.
OWN = 2


class FastClock(SystemClock):
    """A clock that goes a quarter of a second further with each reading."""

    ahead_ns = 0

    def now(self) -> Instant:
        """Return this moment."""
        self.ahead_ns += 250 * MS_NS
        now = super().now()
        return Instant(now.monotonic_ns + self.ahead_ns, now.realtime_ns + self.ahead_ns)


def entry(key: bytes | None, value: bytes | None, partition: int) -> Entry:
    """Return a record to write."""
    return Entry(partition=partition, offset=0, timestamp_ms=None, key=key, value=value)


@pytest.fixture
def reader(kafka: KafkaSettings) -> Iterator[TopicReader]:
    """Return a reader of both topics that an agent reads."""
    made = TopicReader(
        kafka,
        SystemClock(),
        (topics.PINGLIST, topics.ENDPOINT),
        others=(topics.TARGET,),
        client_id="agent-a",
        log=EventLog("test"),
    )
    yield made
    made.close()


def read(reader: TopicReader, done: Callable[[list[Record]], bool]) -> list[Record]:
    """Poll as the agent does until the condition holds."""
    records: list[Record] = []
    deadline = time.monotonic() + WAIT_S
    while not done(records):
        assert time.monotonic() < deadline, records
        records.extend(reader.poll())
        time.sleep(0.01)
    return records


def test_everything_is_read_from_the_beginning_of_every_partition(
    kafka: KafkaSettings, reader: TopicReader
) -> None:
    """Records of all partitions, tombstones among them, then the end; of lists, its own one."""
    produce(kafka, topics.ENDPOINT, [entry(b"e%d" % n, b"v", n % 4) for n in range(40)])
    produce(kafka, topics.PINGLIST, [entry(b"a", None, 1), entry(b"b", b"x", OWN)])
    assert not reader.read_to_end
    records = read(reader, lambda _: reader.read_to_end)
    endpoints = [r for r in records if r.topic is topics.ENDPOINT]
    assert {r.key for r in endpoints} == {b"e%d" % n for n in range(40)}
    assert {r.partition for r in endpoints} == {0, 1, 2, 3}
    lists = [r for r in records if r.topic is topics.PINGLIST]
    assert {(r.key, r.value) for r in lists} == {(b"b", b"x")}
    assert not any(r.replayed for r in records)


def test_a_second_reading_is_marked_and_new_records_are_not(
    kafka: KafkaSettings, reader: TopicReader
) -> None:
    """After `reread` the topic comes again, replayed, up to its end; what is new is new."""
    produce(kafka, topics.ENDPOINT, [entry(b"e%d" % n, b"v", n % 4) for n in range(12)])
    read(reader, lambda _: reader.read_to_end)
    reader.reread(topics.ENDPOINT)
    assert not reader.read_to_end
    again = read(reader, lambda _: reader.read_to_end)
    assert {r.key for r in again} == {b"e%d" % n for n in range(12)}
    assert all(r.replayed for r in again)
    produce(kafka, topics.ENDPOINT, [entry(b"new", b"v", 3)])
    (fresh,) = read(reader, bool)
    assert (fresh.key, fresh.replayed) == (b"new", False)


def test_another_topic_is_followed_and_left(kafka: KafkaSettings, reader: TopicReader) -> None:
    """It is read to its end, as new each time; of a personal topic one partition."""
    produce(kafka, topics.ENDPOINT, [entry(b"e", b"v", 0)])
    produce(kafka, topics.TARGET, [entry(b"own", b"v", OWN), entry(b"other", b"v", 1)])
    assert [r.key for r in read(reader, lambda _: reader.read_to_end)] == [b"e"]
    for topic, key in ((topics.TARGET, b"own"), (topics.ENDPOINT, b"e"), (topics.TARGET, b"own")):
        reader.follow(topic)
        assert not reader.read_to_end
        found = read(reader, lambda _: reader.read_to_end)
        assert [(r.topic, r.key, r.replayed) for r in found] == [(topic, key, False)]
    reader.leave(topics.ENDPOINT)
    produce(kafka, topics.ENDPOINT, [entry(b"unread", b"v", 0)])
    produce(kafka, topics.TARGET, [entry(b"more", b"v", OWN)])
    assert [r.key for r in read(reader, bool)] == [b"more"]


def test_large_records_do_not_hold_back_the_next(kafka: KafkaSettings, reader: TopicReader) -> None:
    """Each is larger than what is fetched ahead; a client waits a second after it by default."""
    read(reader, lambda _: reader.read_to_end)
    large = [entry(b"large", bytes(900_000), OWN)] * LARGE
    produce(kafka, topics.PINGLIST, [*large, entry(b"behind", b"v", OWN)])
    began_s = time.monotonic()
    records = read(reader, lambda found: len(found) > LARGE)
    assert records[-1].key == b"behind"
    assert time.monotonic() - began_s < LARGE / 2


def test_topics_that_are_missing_are_waited_for(
    kafka: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent may start before `topics apply`: it asks again, and says so once."""
    wrong = KafkaSettings(bootstrap=kafka.bootstrap, topic_prefix=kafka.topic_prefix + "nowhere.")
    reader = TopicReader(
        wrong, SystemClock(), (topics.ENDPOINT,), client_id="agent-a", log=EventLog("test")
    )
    deadline = time.monotonic() + WAIT_S
    while "topic.missing" not in caplog.messages and time.monotonic() < deadline:
        begin = time.monotonic()
        assert reader.poll() == []
        # It asks and does not wait for the answer; the rest is slack for a machine that stalls.
        assert time.monotonic() - begin < 10
        time.sleep(0.05)
    assert caplog.messages.count("topic.missing") == 1
    assert not reader.read_to_end
    reader.close()


def test_a_topic_that_was_made_anew_is_read_anew(kafka: KafkaSettings, reader: TopicReader) -> None:
    """Offsets that were seen before are new records: not replayed, and it is told."""
    produce(kafka, topics.ENDPOINT, [entry(b"e%d" % n, b"v", n % 4) for n in range(40)])
    read(reader, lambda _: reader.read_to_end)
    assert reader.take_restarts() == 0
    admin = TopicAdmin(kafka)
    admin.delete([kafka.topic(topics.ENDPOINT.name)])
    apply_topics(kafka)
    produce(kafka, topics.ENDPOINT, [entry(b"new%d" % n, b"v", n % 4) for n in range(4)])
    fresh = read(reader, lambda found: len(found) >= 4)
    assert {r.key for r in fresh} == {b"new0", b"new1", b"new2", b"new3"}
    assert not any(r.replayed for r in fresh)
    assert reader.take_restarts() == 4


def test_a_topic_one_can_do_without_is_read_when_it_comes(
    kafka: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Its absence is said once, and what is written to it later is read without a restart."""
    target = kafka.topic(topics.TARGET.name)
    TopicAdmin(kafka).delete([target])
    deadline = time.monotonic() + WAIT_S
    looking = Consumer({**kafka.librdkafka(), "group.id": "looks"})
    while target in looking.list_topics(timeout=WAIT_S).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    looking.close()
    made = TopicReader(
        kafka,
        FastClock(),
        (topics.PINGLIST, topics.TARGET),
        others=(topics.ENDPOINT,),
        client_id="agent-a",
        log=EventLog("test"),
    )
    read(made, lambda _: made.read_to_end)
    assert not made.has(topics.TARGET)
    assert caplog.messages.count("topic.missing") == 1
    apply_topics(kafka)
    produce(kafka, topics.TARGET, [entry(b"own", b"v", OWN), entry(b"other", b"v", 1)])
    (fresh,) = read(made, bool)
    assert (fresh.topic, fresh.key, fresh.replayed) == (topics.TARGET, b"own", False)
    assert made.has(topics.TARGET)
    read(made, lambda _: made.read_to_end)
    made.close()
