"""Checks that a Kafka with our topics is there before anything is started."""

from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka import admin as _admin

from schemas.kafka.connection import KafkaSettings
from schemas.topics import TOPICS

TIMEOUT_S: Final = 5.0
# The package's annotations hide the names that it documents as public.
api: Final[Any] = _admin


def missing_topics(settings: KafkaSettings) -> list[str]:
    """Return the contract's topics that the cluster does not have.

    Raises
    ------
    ConnectionError
        If no broker answers within 5 s.
    """
    found = _metadata(settings).topics
    return [name for name in (settings.topic(t.name) for t in TOPICS) if name not in found]


def broker_addresses(settings: KafkaSettings) -> list[tuple[str, int]]:
    """Return host and port of each broker, as the cluster tells them to clients.

    Raises
    ------
    ConnectionError
        If no broker answers within 5 s.
    """
    return [(broker.host, broker.port) for broker in _metadata(settings).brokers.values()]


def _metadata(settings: KafkaSettings) -> Any:
    client = api.AdminClient(
        {**settings.librdkafka(), "log_level": 2, "error_cb": lambda _error: None}
    )
    try:
        return client.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise ConnectionError(
            f"no Kafka broker answers at {settings.bootstrap}: {error.args[0].str()}"
        ) from error
