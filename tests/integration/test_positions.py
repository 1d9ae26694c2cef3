"""Where groups stand, asked of a real broker."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from ops.log.positions import GroupPositions
from schemas.kafka.connection import KafkaSettings
from schemas.topics import PROBE_ROUND

pytestmark = pytest.mark.broker


def test_positions_are_those_committed(kafka: KafkaSettings) -> None:
    """A group that was never there has none, and being asked for makes none."""
    topic, group = kafka.topic(PROBE_ROUND.name), kafka.topic("some-group")
    places = [(topic, 0), (topic, 1)]
    positions = GroupPositions(kafka)
    assert positions.committed(group, places) == {(topic, 0): None, (topic, 1): None}
    consumer = Consumer({**kafka.librdkafka(), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 1, 0)], asynchronous=False)
    assert positions.committed(group, places) == {(topic, 0): None, (topic, 1): 0}
    consumer.commit(offsets=[TopicPartition(topic, 1, 5)], asynchronous=False)
    assert positions.committed(group, places) == {(topic, 0): None, (topic, 1): 5}
    consumer.close()
    positions.forget(group)
    assert positions.committed(group, places) == {(topic, 0): None, (topic, 1): None}


def test_many_groups_that_a_new_broker_does_not_know(kafka: KafkaSettings) -> None:
    """Asked for as soon as there is a broker, hundreds of times: nothing but None."""
    topic = kafka.topic(PROBE_ROUND.name)
    positions = GroupPositions(kafka)
    for number in range(20):
        group = kafka.topic(f"group-{number}")
        for _ in range(10):
            assert positions.committed(group, [(topic, 0)]) == {(topic, 0): None}
