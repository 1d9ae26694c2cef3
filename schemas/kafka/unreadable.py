"""Batches that a client refuses to decompress: how to read on behind them.

A batch of a few kilobytes can inflate to gigabytes. librdkafka stops at
`receive.message.max.bytes`, reports an error, and asks for the same batch again, for ever. Whoever
may write to a topic could so stop everybody who reads it.

No client is imported here: the agent loads only the compiled part of it.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from schemas.kafka.access import GROUP_REFUSED
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import QUIET, reader_options

POLL_S: Final = 5.0
# After an error the client waits for so long before it asks again.
RETRY_MS: Final = 1


class NoAnswerError(Exception):
    """The broker did not tell where a batch ends."""


def reported_once(client: Any, messages: Iterable[Any], *, in_group: bool = False) -> Iterator[Any]:
    """Yield what one call of `consume` returned, each unreadable batch once.

    A client that is `in_group` hears that its group is refused; to others that does not matter.

    The client asks for such a batch again every `fetch.error.backoff.ms` until `step_over` has
    moved it on, so one call can return the same report several times.
    """
    reported = set()
    for message in messages:
        error = message.error()
        if error is not None and error.code() == GROUP_REFUSED and not in_group:
            continue
        if error is not None and error.code() == client.KafkaError._BAD_COMPRESSION:
            place = (message.topic(), message.partition(), message.offset())
            if place in reported:
                continue
            reported.add(place)
        yield message


def step_over(client: Any, consumer: Any, settings: KafkaSettings, message: Any) -> bool:
    """Let a consumer go on behind a batch that it cannot decompress.

    The batch's end is not in the error, and other records follow: it is looked for by a consumer
    of its own. That takes some milliseconds for a batch of one record, and as long as it takes to
    refuse the batch twenty times where it holds a million.

    Parameters
    ----------
    client
        The module that has Consumer, TopicPartition and KafkaError.
    consumer
        Has the partition assigned.
    message
        What it delivered; its error is not None.

    Returns
    -------
    bool
        Whether it was such a batch. The message then stands for the batch, as one poison record:
        it has the batch's first offset, no key, and the error's text as its value. False for
        other errors, and where the broker does not answer: the consumer reports the batch again.
    """
    if message.error().code() != client.KafkaError._BAD_COMPRESSION:
        return False
    place = client.TopicPartition(message.topic(), message.partition(), message.offset())
    reader = client.Consumer(
        reader_options(settings, fixed={**QUIET, "fetch.error.backoff.ms": RETRY_MS})
    )
    try:
        place.offset = _end_of_batch(client, reader, place)
        consumer.seek(place)
    except (NoAnswerError, client.KafkaException):
        return False
    finally:
        reader.close()
    return True


def _end_of_batch(client: Any, reader: Any, place: Any) -> int:
    """Return the first offset behind a batch: doubled steps until behind it, then bisection."""
    first = place.offset
    end = reader.get_watermark_offsets(place, timeout=POLL_S)[1]

    def is_within(offset: int) -> bool:
        reader.assign([client.TopicPartition(place.topic, place.partition, offset)])
        # The first may be what does not matter here: that the group is refused.
        for message in chain.from_iterable(
            reported_once(client, reader.consume(1, POLL_S)) for _ in range(2)
        ):
            error = message.error()
            unreadable = error is not None and error.code() == client.KafkaError._BAD_COMPRESSION
            return unreadable and message.offset() == first
        raise NoAnswerError

    within, step = first, 1
    while (behind := min(first + step, end)) < end and is_within(behind):
        within, step = behind, 2 * step
    while behind - within > 1:
        middle = (within + behind) // 2
        if is_within(middle):
            within = middle
        else:
            behind = middle
    return int(behind)
