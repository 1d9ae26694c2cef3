"""What confluent-kafka's clients are asked in several places, each once.

Beside it `leadership`, `letters`, `transactions` and `registry` need a Kafka client.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
    cimpl,
)
from confluent_kafka import admin as _admin

from schemas.kafka.access import (
    TOPIC_REFUSED,
    AccessError,
    ConnectionErrors,
    named,
    refusal,
    refused,
)
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import QUIET
from schemas.kafka.unreadable import reported_once, step_over
from schemas.topics import Topic

Answer = TypeVar("Answer")

METADATA_TIMEOUT_S: Final = 10.0
# A broker that is there answers in milliseconds; after so long it is asked why it does not. By then
# a client has tried all addresses of a name, such as `localhost`, a few times.
FIRST_ASK_S: Final = 1.0
# Between two looks at whether there is a reason.
REASON_POLL_S: Final = 0.1
# The package's annotations hide the names that it documents as public.
_api: Final[Any] = _admin
READ_BATCH: Final = 1_000
READ_POLL_S: Final = 0.2
# Errors of a topic that was created a moment ago, or whose leader is moving.
UNSETTLED: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
# Errors after which a client goes on by itself once the broker is back.
PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
    }
)


def ask_until_answered(
    ask: Callable[[], Answer],
    *,
    patience_s: float,
    retry_s: float,
    passing: Collection[int] | None = UNSETTLED,
    stopping: Callable[[], bool] = lambda: False,
) -> Answer:
    """Return what the broker answers, asking again while it is not settled.

    Parameters
    ----------
    ask
        Asks once; raises KafkaException where there is no answer yet.
    passing
        Codes of errors that are worth asking again; None: all.
    stopping
        Whether the caller has no use for an answer any more.

    Raises
    ------
    KafkaException
        On another error, or when the patience is over.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            lasting = passing is not None and error.args[0].code() not in passing
            if lasting or time.monotonic() > deadline_s or stopping():
                raise
            time.sleep(retry_s)


def partitions_of(
    client: Any, settings: KafkaSettings, topics: Iterable[Topic]
) -> dict[str, list[int]]:
    """Return the partitions of topics that must be there, by their names on the broker.

    `client` is a consumer or an admin client.

    Raises
    ------
    BrokerError
        If the broker does not answer or topics are missing.
    AccessError
        If this principal may not know whether they are there.
    """
    found = metadata(client, settings).topics
    names = [settings.topic(t.name) for t in topics]
    missing = sorted(n for n in names if n not in found or not found[n].partitions)
    if missing:
        if hidden := hidden_topics(settings, missing):
            raise refused(settings, f"Describe of {named('topic', hidden)}")
        raise BrokerError(
            f"missing topics: {', '.join(missing)}; run `skeletonhunter topics apply`"
        )
    return {name: sorted(found[name].partitions) for name in names}


def metadata(client: Any, settings: KafkaSettings) -> Any:
    """Return what the cluster says of its brokers and topics.

    A broker that is slow has `METADATA_TIMEOUT_S`. Where none can be reached or lets this client
    in, that is said in a second or two: somebody may wait at a terminal, and a process that ends
    is started again.

    Raises
    ------
    BrokerError
        If no broker answers; it says why.
    """
    try:
        return client.list_topics(timeout=FIRST_ASK_S)
    except KafkaException:
        reason = _why_unreachable(settings)
    if reason is not None:
        raise BrokerError(reason)
    try:
        # It has gone on connecting meanwhile.
        return client.list_topics(timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        raise BrokerError(
            f"Kafka at {settings.bootstrap} answers too slowly: {error.args[0].str()}"
        ) from error


def _why_unreachable(settings: KafkaSettings) -> str | None:
    """Return why no broker answers, by a client whose errors are heard; None: one does."""
    errors = ConnectionErrors()
    client = _api.AdminClient({**settings.librdkafka(), **QUIET, "error_cb": errors})
    deadline_s = time.monotonic() + METADATA_TIMEOUT_S - FIRST_ASK_S
    while not errors.all_down and time.monotonic() < deadline_s:
        with suppress(KafkaException):
            client.list_topics(timeout=REASON_POLL_S)
            return None
        client.poll(0)
    return f"no Kafka broker answers at {settings.bootstrap}: {errors.reason(settings)}"


def hidden_topics(settings: KafkaSettings, names: Collection[str]) -> list[str]:
    """Return those of the topics that this principal may not see, there or not.

    Raises
    ------
    BrokerError
        If the broker does not answer.
    """
    # In a variable: a temporary client is collected before its futures end.
    client = _api.AdminClient({**settings.librdkafka(), **QUIET})
    asked = client.describe_topics(TopicCollection(list(names)), request_timeout=METADATA_TIMEOUT_S)
    hidden = []
    for name, future in asked.items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() == TOPIC_REFUSED:
                hidden.append(name)
            elif error.args[0].code() not in UNSETTLED:
                raise BrokerError(f"{settings.bootstrap}: {error.args[0].str()}") from error
    return hidden


def refusal_of(settings: KafkaSettings, message: Message, group: str = "") -> AccessError | None:
    """Return what a message of a consumer says is refused; None: it says something else.

    `group` is the group that the consumer is in.
    """
    error = message.error()
    about_topic = error is not None and error.code() == TOPIC_REFUSED
    return refusal(
        settings, error, "Read", f"topic {message.topic()}" if about_topic else f"group {group}"
    )


def offsets_at(
    consumer: Consumer, places: Iterable[tuple[str, int]], at_ms: int
) -> list[TopicPartition]:
    """Return for each partition the first record at or after a time, its end if there is none."""
    wanted = [TopicPartition(*place, at_ms) for place in places]
    found: list[TopicPartition] = consumer.offsets_for_times(wanted, timeout=METADATA_TIMEOUT_S)
    for place in found:
        place.offset = place.offset if place.offset >= 0 else OFFSET_END
    return found


def ends_of(consumer: Consumer, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the offset behind the last record of each partition, all by one question a broker.

    Asked one after another, each answer of a consumer that reads waits for what it fetches.

    Raises
    ------
    KafkaException
        If the broker does not answer for all of them.
    """
    # Kafka's ListOffsets takes -1 for the time after the last record.
    wanted = [TopicPartition(*place, OFFSET_END) for place in places]
    found = consumer.offsets_for_times(wanted, timeout=METADATA_TIMEOUT_S) if wanted else []
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return {(place.topic, place.partition): place.offset for place in found}


def read_to_end(
    consumer: Consumer, settings: KafkaSettings, starts: Iterable[TopicPartition]
) -> Iterator[Message]:
    """Yield all messages from the given offsets to the ends that the partitions have now.

    The consumer has the options of a reader. Errors that pass by themselves are passed over.

    Raises
    ------
    KafkaException
        On a fatal error.
    AccessError
        If this principal may not read a topic.
    """
    starts = list(starts)
    waiting = {(place.topic, place.partition) for place in starts}
    consumer.assign(starts)
    while waiting:
        for message in reported_once(cimpl, consumer.consume(READ_BATCH, READ_POLL_S)):
            error = message.error()
            if error is None or step_over(cimpl, consumer, settings, message):
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard((str(message.topic()), int(message.partition() or 0)))
            elif (access := refusal_of(settings, message)) is not None:
                raise access
            elif error.fatal():
                raise KafkaException(error)
