"""What other processes of the role have published: read at a start, and while standing by."""

from typing import Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from schemas.avro import MAX_VALUE_BYTES
from schemas.bounds import arrival_of
from schemas.codec import Codec, DecodeError
from schemas.kafka.clients import partitions_of, read_to_end
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import reader_options
from schemas.records import FaultEvent, Hang
from schemas.topics import Topic

Transition = TypeVar("Transition", FaultEvent, Hang)


class History(Generic[Transition]):
    """Reads the committed transitions in a topic of which this process is the writer.

    Attributes
    ----------
    undecodable
        Records that could not be decoded.
    """

    def __init__(self, settings: KafkaSettings, codec: Codec, topic: Topic) -> None:
        self._topic = topic
        self._settings = settings
        self._codec = codec
        self._next: dict[int, int] = {}
        self.undecodable = 0
        self._consumer = Consumer(
            reader_options(
                settings,
                # It is asked each second, and for little.
                defaults={"fetch.message.max.bytes": MAX_VALUE_BYTES, "fetch.wait.max.ms": 20},
                fixed={"isolation.level": "read_committed"},
            )
        )

    def read(self) -> list[Transition]:
        """Return what was published since the last call, to the end that the topic has now.

        Raises
        ------
        BrokerError
            If the topic cannot be read.
        """
        name = self._settings.topic(self._topic.name)
        events: list[Transition] = []
        try:
            if not self._next:
                found = partitions_of(self._consumer, self._settings, [self._topic])[name]
                self._next = dict.fromkeys(found, 0)
            starts = [TopicPartition(name, *place) for place in self._next.items()]
            for message in read_to_end(self._consumer, self._settings, starts):
                self._next[int(message.partition() or 0)] = int(message.offset() or 0) + 1
                value = message.value()
                try:
                    if isinstance(value, bytes):
                        arrival_ns = arrival_of(message.timestamp())
                        events.append(self._codec.decode(self._topic, value, arrival_ns=arrival_ns))
                except DecodeError:
                    self.undecodable += 1
        except KafkaException as error:
            raise BrokerError(f"{self._topic.name}: {error.args[0].str()}") from error
        return [e for e in events if e.cluster == self._settings.cluster]

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
