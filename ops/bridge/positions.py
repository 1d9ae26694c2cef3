"""How far a target has got, kept in Kafka: the committed offset of a group of its own.

The offset says about how many transitions wait, for tools that show lag. What counts stands in its
metadata: the place of the last notification that the target took.
"""

from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ops.bridge.paging.page import Position
from schemas import topics
from schemas.kafka.clients import ask_until_answered, refusal_of
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.leadership import role_group
from schemas.kafka.options import reader_options

READ_TIMEOUT_S: Final = 10.0
# A broker that has just started first loads, or even makes, the topic of all positions.
PATIENCE_S: Final = 90.0
RETRY_S: Final = 0.2
# While the broker is away a commit takes so long; the target waits meanwhile.
WRITE_TIMEOUT_S: Final = 5.0
PARTITION: Final = 0


class TargetPosition:
    """Reads and writes the position of one target.

    By a consumer that reads nothing: an admin client would end the process where the broker has
    just started (see `ops.log.positions`).
    """

    def __init__(self, settings: KafkaSettings, target: str) -> None:
        self._target = target
        self._topic = settings.topic(topics.FAULT_EVENT.name)
        self._settings = settings
        self._group = f"{role_group(settings, 'bridge')}-{target}"
        self._consumer = Consumer(
            reader_options(
                settings,
                self._group,
                fixed={"socket.timeout.ms": round(WRITE_TIMEOUT_S * 1_000)},
            )
        )

    def read(self) -> Position | None:
        """Return where the target is; None: it never took anything.

        Raises
        ------
        BrokerError
            If the broker does not say, or refuses the group.
        """
        wanted = [TopicPartition(self._topic, PARTITION)]
        try:
            (place,) = ask_until_answered(
                lambda: self._consumer.committed(wanted, timeout=READ_TIMEOUT_S),
                patience_s=PATIENCE_S,
                retry_s=RETRY_S,
                passing=None,
                stopping=self._hears_refusal,
            )
        except KafkaException as error:
            raise BrokerError(f"position of {self._target}: {error.args[0].str()}") from error
        return None if place.offset < 0 else Position.parse(place.metadata or "")

    def read_now(self) -> Position | None:
        """Return where the target is; None: it never took anything, or the broker does not say."""
        wanted = [TopicPartition(self._topic, PARTITION)]
        try:
            (place,) = self._consumer.committed(wanted, timeout=WRITE_TIMEOUT_S)
        except KafkaException:
            return None
        return None if place.offset < 0 else Position.parse(place.metadata or "")

    def _hears_refusal(self) -> bool:
        """Raise AccessError if the group is refused: the client tells it to whoever polls alone."""
        for message in self._consumer.consume(1, 0):
            if (access := refusal_of(self._settings, message, self._group)) is not None:
                raise access
        return False

    def write(self, position: Position, offset: int) -> str | None:
        """Write where the target is; return why the broker did not take it, None if it did."""
        place = TopicPartition(self._topic, PARTITION, offset, metadata=str(position))
        try:
            (done,) = self._consumer.commit(offsets=[place], asynchronous=False) or [place]
        except KafkaException as error:
            return str(error.args[0].str())
        return None if done.error is None else str(done.error.str())

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
