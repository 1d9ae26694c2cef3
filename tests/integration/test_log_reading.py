"""The tools' reader, on a real broker."""

import pytest

from ops.log.reading import LogReader
from ops.log.writing import LogWriter
from schemas.kafka.connection import KafkaSettings
from schemas.topics import COMPONENT_STATE

pytestmark = pytest.mark.broker


def test_what_is_read_to_its_end_is_not_waited_for(kafka: KafkaSettings) -> None:
    """A fetch that waits for more holds up all that the client asks next."""
    topic = kafka.topic(COMPONENT_STATE.name)
    out = LogWriter(kafka)
    for number in range(5):
        out.write(topic, key=b"k%d" % number, value=b"v", timestamp_ms=None, partition=0)
    out.flush()
    with LogReader(kafka) as reader:
        for whole in (True, False):
            entries = reader.read_to({(topic, 0): 0}, {(topic, 0): 5})
            assert next(entries)[1].offset == 0
            if whole:
                assert [entry.offset for _, entry in entries] == [1, 2, 3, 4]
            entries.close()
            assert not reader._consumer.assignment()
        # One that nobody finished, nor closed.
        left = reader.read_to({(topic, 0): 0}, {(topic, 0): 5})
        next(left)
    left.close()
