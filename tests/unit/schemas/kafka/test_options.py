"""Options of clients: what the table may change, and what must be as it is."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from schemas.kafka.clients import ask_until_answered
from schemas.kafka.connection import settings_from_table
from schemas.kafka.options import (
    QUIET,
    batched_fetch,
    consumer_options,
    producer_options,
    reader_options,
)

SETTINGS = settings_from_table(
    "127.0.0.1:1", {"linger.ms": 50, "enable.idempotence": False, "enable.auto.commit": True}
)


def test_the_table_changes_defaults_and_nothing_else() -> None:
    """What is fixed stays, whatever the table says."""
    options = producer_options(
        SETTINGS, defaults={"linger.ms": 5, "compression.type": "lz4"}, fixed={"log_level": 0}
    )
    assert options["linger.ms"] == "50"
    assert options["compression.type"] == "lz4"
    assert options["enable.idempotence"] is True
    assert options["partitioner"] == "murmur2_random"
    assert producer_options(SETTINGS, fixed={"linger.ms": 0})["linger.ms"] == 0
    assert consumer_options(SETTINGS, "g")["enable.auto.commit"] is False


def test_librdkafka_knows_all_of_them() -> None:
    """It refuses a name or a value that it does not know."""
    plain = settings_from_table("127.0.0.1:1", {})
    Producer(producer_options(plain, fixed=QUIET))
    Consumer(consumer_options(plain, "g", fixed=QUIET)).close()
    Consumer(reader_options(plain, defaults=batched_fetch(20), fixed=QUIET)).close()


def test_a_broker_is_asked_again_while_it_is_not_settled() -> None:
    """Until it answers, or says something that lasts."""
    said = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART]

    def ask() -> int:
        if said:
            raise KafkaException(KafkaError(said.pop()))
        return 7

    assert ask_until_answered(ask, patience_s=60.0, retry_s=0.0) == 7
    said.append(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        ask_until_answered(ask, patience_s=60.0, retry_s=0.0)
    assert not said


def test_patience_ends() -> None:
    """After the time, or when the caller has no use for an answer any more."""

    def ask() -> int:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    with pytest.raises(KafkaException):
        ask_until_answered(ask, patience_s=-1.0, retry_s=0.0)
    with pytest.raises(KafkaException):
        ask_until_answered(ask, patience_s=60.0, retry_s=0.0, stopping=lambda: True)
