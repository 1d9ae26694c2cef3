"""`topics plan | apply | describe` against a real broker."""

import json
import time
import uuid
from collections.abc import Iterator

import pytest
import typer
from confluent_kafka import Consumer, Message, Producer
from typer.testing import CliRunner

from ops.cli import topics as topics_cli
from ops.topics.admin import TopicAdmin, apply_topics
from ops.topics.plan import Configure, Options, plan, wanted_topics
from schemas.bounds import MAX_AHEAD_NS
from schemas.kafka.clients import offsets_at, read_to_end
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import reader_options
from schemas.topics import FAULT_EVENT, MAX_MESSAGE_BYTES, PROBE_ROUND, PROBE_WINDOW, TOPICS
from schemas.units import MS_NS

pytestmark = pytest.mark.broker


@pytest.fixture
def empty(kafka_bootstrap: str) -> Iterator[KafkaSettings]:
    """Give settings with a prefix under which there is nothing yet."""
    settings = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=f"e{uuid.uuid4().hex[:10]}.")
    yield settings
    TopicAdmin(settings).delete([t.name for t in wanted_topics(settings.topic_prefix)])


def run(settings: KafkaSettings, *arguments: str) -> tuple[int, str]:
    """Run `topics ...` on the test's prefix; return exit code and output."""
    app = typer.Typer()
    topics_cli.register(app)
    where = ("--bootstrap", settings.bootstrap, "--prefix", settings.topic_prefix)
    result = CliRunner().invoke(app, ["topics", *arguments, *where])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.output


def test_plan_changes_nothing_and_apply_makes_everything(empty: KafkaSettings) -> None:
    """The plan shows what apply then does; a second apply finds nothing to do."""
    code, planned = run(empty, "plan")
    assert code == 0
    assert planned.count("+ ") == 2 * len(TOPICS)
    assert run(empty, "plan") == (0, planned)

    code, output = run(empty, "apply")
    assert code == 0
    assert output.startswith(planned)
    assert f"{2 * len(TOPICS)} changes made" in output

    assert run(empty, "apply") == (0, "all topics are as the contract wants them\n")
    code, output = run(empty, "plan", "--json")
    assert json.loads(output) == {"differences": [], "applied": False}


def test_apply_grows_and_configures_but_never_shrinks(empty: KafkaSettings) -> None:
    """Partitions are added; asking for fewer is refused with exit code 1 and changes nothing."""
    admin, name = TopicAdmin(empty), empty.topic(PROBE_ROUND.name)
    apply_topics(empty)
    code, output = run(empty, "apply", "--partitions", "6", "--keep-all")
    assert code == 0
    assert f"{name}: 4 -> 6 partitions" in output
    found = admin.found([name])[name]
    assert found.partitions == 6
    assert found.config["retention.ms"] == "-1"

    code, output = run(empty, "apply", "--json")
    assert code == 1
    shown = json.loads(output)
    assert shown["applied"] is False
    assert {"action": "refuse", "name": name, "found": 6, "wanted": 4} in shown["differences"]
    assert admin.found([name])[name] == found

    code, output = run(empty, "apply", "--partitions", "6")
    assert code == 0
    assert admin.found([name])[name].config["retention.ms"] == "259200000"


def test_two_applies_at_once_are_one(empty: KafkaSettings) -> None:
    """A topic that somebody else has made in between is no error."""
    admin = TopicAdmin(empty)
    changes = plan(wanted_topics(empty.topic_prefix), {}).changes
    admin.apply(changes)
    admin.apply(changes)
    assert apply_topics(empty).differences == ()


def test_describe_shows_contract_and_cluster(empty: KafkaSettings) -> None:
    """A topic that is missing is shown as missing; one that is there with its partitions."""
    code, output = run(empty, "describe", FAULT_EVENT.name)
    assert code == 0
    assert "missing: run `skeletonhunter topics apply`" in output
    apply_topics(empty)
    code, output = run(empty, "describe", "--json")
    rows = {row["topic"]: row for row in json.loads(output)}
    assert set(rows) == {empty.topic(t.name) for t in TOPICS}
    assert rows[empty.topic(PROBE_ROUND.name)]["cluster"]["partitions"] == 4
    copies = min(3, TopicAdmin(empty).brokers())
    assert all(row["cluster"]["replication_factor"] == copies for row in rows.values())


def test_replication_that_cannot_be_had_is_a_sentence(empty: KafkaSettings) -> None:
    """More copies than brokers: the cluster's refusal is an error that names the topic."""
    with pytest.raises(ConnectionError, match=r"cannot create .*probe\.round\.v1"):
        apply_topics(empty, Options(replication_factor=TopicAdmin(empty).brokers() + 1))


def test_largest_message_is_taken(kafka: KafkaSettings) -> None:
    """A value of nearly the contract's limit passes the broker."""
    producer = Producer(
        {**kafka.librdkafka(), "message.max.bytes": 2 * MAX_MESSAGE_BYTES, "acks": "all"}
    )
    errors: list[object] = []
    producer.produce(
        kafka.topic(PROBE_ROUND.name),
        bytes(MAX_MESSAGE_BYTES - 1024),
        on_delivery=lambda error, _message: errors.append(error),
    )
    assert producer.flush(30) == 0
    assert errors == [None]


def test_topics_of_an_older_version_get_the_time_of_arrival(empty: KafkaSettings) -> None:
    """What is there keeps its timestamps; what comes later gets the broker's, whatever it says."""
    apply_topics(empty, Options(keep_all=True))
    rounds, windows = empty.topic(PROBE_ROUND.name), empty.topic(PROBE_WINDOW.name)
    assert [sent_at(empty, rounds, 5), sent_at(empty, windows, 5)] == [5, 5]
    changes = apply_topics(empty).changes
    assert {c.name for c in changes if isinstance(c, Configure)} >= {rounds}
    begin_ms = time.time() * 1000 - MAX_AHEAD_NS // MS_NS
    for claimed_ms in (5, round(time.time() * 1000) + 30 * 24 * 3_600_000):
        arrived_ms = sent_at(empty, rounds, claimed_ms)
        assert begin_ms < arrived_ms < time.time() * 1000 + MAX_AHEAD_NS // MS_NS
    assert sent_at(empty, windows, 7) == 7
    consumer = Consumer(reader_options(empty))
    try:
        (found,) = offsets_at(consumer, [(rounds, 0)], round(begin_ms))
        assert [m.offset() for m in read_to_end(consumer, empty, [found])] == [1, 2]
    finally:
        consumer.close()


def sent_at(settings: KafkaSettings, topic: str, claimed_ms: int) -> int:
    """Write a record; return the timestamp that its confirmation has."""
    producer = Producer({**settings.librdkafka(), "acks": "all"})
    confirmed: list[int] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None
        confirmed.append(message.timestamp()[1])

    producer.produce(topic, b"x", partition=0, timestamp=claimed_ms, on_delivery=delivered)
    assert producer.flush(30) == 0
    return confirmed[0]
