"""What a session takes for published by a predecessor."""

from types import SimpleNamespace
from typing import Any, cast

from schemas import topics
from schemas.codec import Codec
from schemas.enums import AnomalyState
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from streams.config import DetectionConfig
from streams.core.outputs import progress
from streams.edge.session import LoggedOutput, Restorer
from tests.unit.streams.worlds import BEGIN, CLUSTER

# By the broker's clock, which the records' own times do not follow.
ARRIVED_MS = 10**12 + 7_000


def test_marks_of_idleness_are_nothing_that_a_machine_will_publish() -> None:
    """One that is waited for is never found: all windows would go one by one from then on."""
    codec = Codec()
    marks = [progress(CLUSTER, 0, s, 10**15) for s in (AnomalyState.IDLE, AnomalyState.ONGOING)]
    values = [codec.encode(topics.ANOMALY, mark) for mark in marks]

    def read(topic: str, _partition: int, _start: int, _end: int) -> list[Any]:
        return [
            SimpleNamespace(
                value=lambda v=v: v, offset=lambda n=n: n, timestamp=lambda n=n: (2, ARRIVED_MS + n)
            )
            for n, v in enumerate(values)
            if topic == topics.ANOMALY.name
        ]

    reader = SimpleNamespace(bounds=lambda *_where: (0, len(values)), read=read)
    settings = KafkaSettings(bootstrap="127.0.0.1:1", cluster=CLUSTER)
    restorer = Restorer(settings, DetectionConfig(), codec, EventLog("worker"))
    found = list(restorer._published(cast(Any, reader), 0, BEGIN))
    assert found == [LoggedOutput(marks[1].anomaly_id, ARRIVED_MS + 1, 1)]
