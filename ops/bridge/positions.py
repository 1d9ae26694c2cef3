"""How far each target has got, kept in Kafka: committed offsets of a group of its own.

The offset says about how many transitions wait, for tools that show lag. What counts stands in its
metadata: the place of the last notification that the target took.
"""

from typing import Any, Final, cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ops.bridge.paging.page import Position
from schemas import topics
from schemas.kafka.clients import ask_until_answered
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError

WRITE_TIMEOUT_S: Final = 5.0
# A broker that has just started first loads, or even makes, the topic of all positions; the client
# asks again meanwhile.
READ_TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 90.0
RETRY_S: Final = 0.2
PARTITION: Final = 0


class Positions:
    """Reads and writes positions; from any thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topic(topics.FAULT_EVENT.name)
        self._prefix = f"{settings.topic_prefix}bridge-{settings.cluster}-"
        self._settings = settings
        self._admin = AdminClient(settings.librdkafka())

    def read(self, target: str) -> Position | None:
        """Return where a target is; None: it never took anything.

        Raises
        ------
        BrokerError
            If the broker does not say.
        """
        wanted = ConsumerGroupTopicPartitions(
            self._prefix + target, [TopicPartition(self._topic, PARTITION)]
        )
        try:
            (place,) = ask_until_answered(
                lambda: self._ask(wanted), patience_s=PATIENCE_S, retry_s=RETRY_S, passing=None
            )
        except KafkaException as error:
            raise BrokerError(f"position of {target}: {error.args[0].str()}") from error
        return None if place.offset < 0 else Position.parse(place.metadata or "")

    def _ask(self, wanted: ConsumerGroupTopicPartitions) -> list[TopicPartition]:
        try:
            # librdkafka takes one group a call.
            (future,) = self._admin.list_consumer_group_offsets(
                [wanted], request_timeout=READ_TIMEOUT_S
            ).values()
            found: list[TopicPartition] = cast(Any, future.result()).topic_partitions
        except KafkaException:
            # After a timeout an old client may time out for ever: leave it.
            self._admin = AdminClient(self._settings.librdkafka())
            raise
        return found

    def write(self, target: str, position: Position, offset: int) -> str | None:
        """Write where a target is; return why the broker did not take it, None if it did."""
        place = TopicPartition(self._topic, PARTITION, offset, metadata=str(position))
        written = ConsumerGroupTopicPartitions(self._prefix + target, [place])
        try:
            (future,) = self._admin.alter_consumer_group_offsets(
                [written], request_timeout=WRITE_TIMEOUT_S
            ).values()
            (done,) = cast(Any, future.result()).topic_partitions
        except KafkaException as error:
            return str(error.args[0].str())
        return None if done.error is None else str(done.error.str())
