"""What travels from the source to the engine."""

from dataclasses import dataclass

from confluent_kafka import Message


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages as the consumer took them, with what proves that none is missing.

    `epochs` and `starts` hold, by partition, the assignment and the offset that
    came next before this batch; `messages` the partition's, in order.
    """

    number: int
    epochs: dict[int, int]
    starts: dict[int, int]
    messages: dict[int, list[Message]]
