"""A tool's producer says within its patience that nothing is taken, and why."""

import pytest

from ops.log.writing import LogWriter
from schemas.kafka.connection import KafkaSettings


def test_a_dead_broker_is_told_with_the_reason() -> None:
    """Librdkafka's own reason, not that a message timed out."""
    writer = LogWriter(KafkaSettings(bootstrap="127.0.0.1:1"), patience_s=0.3)
    writer.write("t", key=b"k", value=b"v", timestamp_ms=None)
    with pytest.raises(ConnectionError, match=r"no Kafka broker answers at .*Connection refused"):
        writer.flush()
