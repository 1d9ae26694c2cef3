"""Checks that a Kafka with our topics is there before anything is started."""

from typing import Any, Final

from confluent_kafka import admin as _admin

from schemas.kafka.access import named, refused
from schemas.kafka.clients import hidden_topics, metadata
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import QUIET
from schemas.topics import TOPICS

# The package's annotations hide the names that it documents as public.
api: Final[Any] = _admin


def missing_topics(settings: KafkaSettings) -> list[str]:
    """Return the contract's topics that the cluster does not have.

    Raises
    ------
    ConnectionError
        If no broker answers, or this principal may not know whether they are there.
    """
    found = _metadata(settings).topics
    missing = [name for name in (settings.topic(t.name) for t in TOPICS) if name not in found]
    if hidden := hidden_topics(settings, missing) if missing else []:
        raise ConnectionError(str(refused(settings, f"Describe of {named('topic', hidden)}")))
    return missing


def broker_addresses(settings: KafkaSettings) -> list[tuple[str, int]]:
    """Return host and port of each broker, as the cluster tells them to clients.

    Raises
    ------
    ConnectionError
        If no broker answers.
    """
    return [(broker.host, broker.port) for broker in _metadata(settings).brokers.values()]


def _metadata(settings: KafkaSettings) -> Any:
    client = api.AdminClient({**settings.librdkafka(), **QUIET})
    try:
        return metadata(client, settings)
    except BrokerError as error:
        raise ConnectionError(str(error)) from error
