"""What the localizer takes from a message: the table of bounds holds for its topics."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Message

from localizer.config import LocalizerConfig
from localizer.core import Core
from localizer.edge.decoding import decoded
from localizer.edge.service import Service
from schemas.bounds import BOUNDS, Bound, Measure
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.topics import ANOMALY, BY_NAME, LOCALIZER
from tests.unit.schemas.valid import ARRIVAL_NS, CLUSTER, mutated, probes_of, valid_datum

CODEC = Codec()
ROWS = [
    b for b in BOUNDS if LOCALIZER in BY_NAME[b.topic].consumers and b.measure is not Measure.ITEMS
]


@dataclass(frozen=True)
class Received:
    """What the service asks of a message."""

    held_key: bytes
    held_value: bytes

    def key(self) -> bytes:
        """Return the key."""
        return self.held_key

    def value(self) -> bytes:
        """Return the value."""
        return self.held_value

    def partition(self) -> int:
        """Return the partition."""
        return 1

    def offset(self) -> int:
        """Return the offset."""
        return 7

    def timestamp(self) -> tuple[int, int]:
        """Return the time of arrival."""
        return 2, ARRIVAL_NS // 10**6


@pytest.mark.parametrize("bound", ROWS, ids=[f"{b.topic}:{b.field}" for b in ROWS])
def test_each_bound_holds(bound: Bound) -> None:
    """What is out of bounds is no record for it; the error has field and value."""
    settings = KafkaSettings(bootstrap="", cluster=CLUSTER)
    topic = BY_NAME[bound.topic]
    for value, allowed in probes_of(bound):
        datum: dict[str, Any] = mutated(valid_datum(bound.topic), bound, value)
        try:
            encoded = CODEC.encode_datum(topic, datum)
        except (OverflowError, ValueError):
            continue  # no encoder writes it
        key = b"mark" if topic is ANOMALY else str(datum[topic.key_field]).encode()
        message = cast(Message, Received(key, encoded))
        if allowed:
            assert decoded(settings, CODEC, topic, message)[1] is not None
        else:
            with pytest.raises(DecodeError, match=bound.field):
                decoded(settings, CODEC, topic, message)


def test_of_pairs_without_a_way_only_those_of_now_are_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each is logged once while it stands on a list; containers bring ever new ones."""
    service = Service(KafkaSettings(bootstrap="", cluster=CLUSTER), CODEC, LocalizerConfig())
    for number in range(20):
        for _ in range(2):
            now = SimpleNamespace(without_way=frozenset({("a", "b"), ("a", f"c{number}")}))
            service._log_without_way(cast(Core, now))
    assert len(service._without_way) == 2
    assert caplog.messages == ["localizer.pairs_without_way"] * 20
