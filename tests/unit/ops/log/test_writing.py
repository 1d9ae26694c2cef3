"""A tool's producer says that nothing is taken, and why."""

import pytest

from ops.log.writing import LogWriter
from schemas.kafka.connection import KafkaSettings


def test_a_dead_broker_is_told_at_once_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka's own reason, and long before patience ends."""
    monkeypatch.setattr("schemas.kafka.clients.FIRST_ASK_S", 0.1)
    with pytest.raises(ConnectionError, match=r"no Kafka broker answers at .*Connection refused"):
        LogWriter(KafkaSettings(bootstrap="127.0.0.1:1"))
