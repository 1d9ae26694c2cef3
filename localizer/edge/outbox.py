"""What the localizer writes: transitions in transactions, and dead letters.

The event and the state of a transition, and all transitions of one decision, are
one Kafka transaction: a crash leaves all of them or none, and a restart takes up
what `fault.event.v1` says. The transactional id is the cluster's: a localizer that
begins to lead fences the one that led before, which can write nothing more.
"""

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.enums import FaultLifecycle
from schemas.kafka.access import TOPIC_REFUSED, AccessError, named, refusal
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import dead_letter_of, dead_letter_topic
from schemas.kafka.errors import FatalProducerError
from schemas.kafka.options import producer_options
from schemas.process.eventlog import EventLog
from schemas.records import FaultEvent, FaultState

PROCESS: Final = "localizer"
WRITTEN: Final = (topics.FAULT_EVENT, topics.FAULT_STATE)
TRANSACTION_TIMEOUT_S: Final = 20.0
FLUSH_TIMEOUT_S: Final = 10.0
ATTEMPTS: Final = 5
CE_TYPES: Final = {
    FaultLifecycle.OPEN: "skeletonhunter.fault.opened.v1",
    FaultLifecycle.UPDATED: "skeletonhunter.fault.updated.v1",
    FaultLifecycle.RESOLVED: "skeletonhunter.fault.resolved.v1",
}

Headers = list[tuple[str, str | bytes | None]]


def cloud_event_headers(event: FaultEvent) -> Headers:
    """Return the headers of CloudEvents' binary mode (CloudEvents 1.0, Kafka protocol binding)."""
    at = datetime.fromtimestamp(event.event_at / 1e6, UTC)
    return [
        ("ce_specversion", "1.0"),
        ("ce_id", f"{event.fault_id}/{event.seq}"),
        ("ce_type", CE_TYPES[event.state]),
        ("ce_source", f"/skeletonhunter/{event.cluster}"),
        ("ce_subject", event.fault_id),
        ("ce_time", at.isoformat(timespec="microseconds")),
        ("content-type", "application/avro"),
    ]


def state_of(event: FaultEvent) -> FaultState:
    """Return the fault's state after a transition."""
    return FaultState(**{f.name: getattr(event, f.name) for f in fields(event)})


class Outbox:
    """Sends transitions and dead letters.

    Raises
    ------
    FatalProducerError, AccessError
        By every method, when no producer can do what is asked.
    """

    def __init__(self, settings: KafkaSettings, codec: Codec, log: EventLog) -> None:
        self._settings = settings
        self._codec = codec
        self._log = log
        fixed = {"linger.ms": 0}
        self._transactional_id = f"{settings.topic_prefix}{PROCESS}-{settings.cluster}"
        transactions = {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
        }
        self._transitions = Producer(producer_options(settings, fixed=fixed | transactions))
        # Dead letters are no part of a decision: they wait for none.
        self._letters = Producer(producer_options(settings, fixed=fixed))

    def start(self) -> None:
        """Fence a former localizer of the cluster; its open transaction is aborted."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transitions.init_transactions(TRANSACTION_TIMEOUT_S)
            except KafkaException as error:
                cause = error.args[0]
                if attempt == ATTEMPTS or not cause.retriable():
                    raise self._refused(cause) or FatalProducerError(
                        f"no transactions: {cause.str()}"
                    ) from error
            else:
                return

    def publish(self, events: Sequence[FaultEvent]) -> None:
        """Write the transitions of one decision, all or none; return when they are there."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transitions.begin_transaction()
                for event in events:
                    self._produce(event)
                self._commit()
            except KafkaException as error:
                cause = error.args[0]
                access = self._refused(cause)
                if access is not None:
                    raise access from error
                if attempt == ATTEMPTS or cause.fatal() or not cause.txn_requires_abort():
                    raise FatalProducerError(
                        f"{len(events)} transitions not written: {cause.str()}"
                    ) from error
                self._log.warning("fault.retry", attempt=attempt, reason=cause.str())
                self._transitions.abort_transaction(TRANSACTION_TIMEOUT_S)
            else:
                return

    def _refused(self, cause: KafkaError) -> AccessError | None:
        of_topic = cause.code() == TOPIC_REFUSED
        topics_named = named("topic", [self._settings.topic(t.name) for t in WRITTEN])
        resource = topics_named if of_topic else f"transactional id {self._transactional_id}"
        return refusal(self._settings, cause, "Write", resource)

    def _commit(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transitions.commit_transaction(TRANSACTION_TIMEOUT_S)
            except KafkaException as error:
                if attempt == ATTEMPTS or not error.args[0].retriable():
                    raise
            else:
                return

    def _produce(self, event: FaultEvent) -> None:
        headers = cloud_event_headers(event)
        for topic, record in (
            (topics.FAULT_EVENT, event),
            (topics.FAULT_STATE, state_of(event)),
        ):
            self._transitions.produce(
                self._settings.topic(topic.name),
                key=event.fault_id,
                value=self._codec.encode(topic, record),
                headers=headers,
                timestamp=event.event_at // 1000,
            )

    def dead_letter(self, error: DecodeError, message: Message) -> None:
        """Keep a record that could not be used, with its origin and the reason."""
        letter = dead_letter_of(error, message, process=PROCESS)
        try:
            self._letters.produce(
                dead_letter_topic(error.topic),
                key=letter.key,
                value=letter.value,
                headers=[*letter.headers],
            )
        except (BufferError, KafkaException) as failure:
            self._log.error("dead_letter.lost", topic=error.topic, reason=str(failure))
        self._letters.poll(0)

    def close(self) -> None:
        """Write what waits; what ended the process is told, not that this cannot be written."""
        try:
            self._letters.flush(FLUSH_TIMEOUT_S)
        except KafkaException as failure:
            self._log.error("dead_letter.lost", reason=str(failure))
