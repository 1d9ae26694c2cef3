"""A commit that failed is made again, also when nothing new comes."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import TopicPartition

from schemas.codec import Codec
from schemas.connection import KafkaSettings
from schemas.eventlog import EventLog
from streams.engine import Engine
from streams.metrics import Metrics
from tests.unit.streams.worlds import machine


@dataclass
class StillSession:
    """A partition at the end of its log."""

    partition: int
    next_offset: int
    committed: int = -1
    machine: Any = field(default_factory=machine)

    def checkpoint(self) -> Any:
        """Return a checkpoint of no matter what."""
        return SimpleNamespace(metadata=lambda: "m")


def test_a_failed_commit_is_made_again_by_the_clock() -> None:
    """Once when due, not again while all is well, again after a failure, of that partition."""
    asked: list[list[tuple[int, int]]] = []

    def commit(offsets: list[TopicPartition], wait: bool) -> None:
        assert not wait or offsets
        asked.append([(o.partition, o.offset) for o in offsets])

    settings = KafkaSettings(bootstrap="127.0.0.1:1")
    engine = Engine(settings, Codec(), EventLog("worker"), Metrics(), commit_s=0)
    publisher = SimpleNamespace(drain=lambda: None, abandon=lambda: None)
    engine.open(cast(Any, publisher), commit)
    engine.take_over(cast(Any, [StillSession(0, 7), StillSession(3, 9)]))
    assert asked == [[(0, 7), (3, 9)]]
    engine.tick({})
    engine.tick({})
    assert len(asked) == 1
    engine.commit_failed([3, 5])
    engine.tick({})
    engine.tick({})
    assert asked[1:] == [[(3, 9)]]
