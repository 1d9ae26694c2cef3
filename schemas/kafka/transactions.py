"""Batches of records that are written whole or not at all, by one process of a role at a time.

The transactional id is the role's on its cluster: a process that begins fences the one that wrote
before, whatever that one has under way and whenever it goes on. Readers that Kafka's clients make
by default (`isolation.level=read_committed` of librdkafka) see committed batches alone.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.kafka.access import TOPIC_REFUSED, AccessError, named, refusal
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import FatalProducerError
from schemas.kafka.leadership import role_group
from schemas.kafka.options import NONE, Options, producer_options
from schemas.process.eventlog import EventLog

# Longer than a broker's restart takes, with the attempts together.
TIMEOUT_S: Final = 20.0
ATTEMPTS: Final = 5
FLUSH_S: Final = 0.2
# RD_KAFKA_PARTITION_UA: the partitioner decides.
BY_KEY: Final = -1
# A record whose batch was given up says so; what was wrong is said by another one.
PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

Headers = Sequence[tuple[str, str | bytes | None]]


class Outgoing(NamedTuple):
    """A record to be written; `topic` is its name on the broker, `value` None a tombstone."""

    topic: str
    key: str | bytes | None
    value: str | bytes | None
    timestamp_ms: int
    headers: Headers = ()
    # None: the key chooses it.
    partition: int | None = None


class RejectedError(FatalProducerError):
    """The broker does not take some of the records.

    Attributes
    ----------
    rejected
        Their places in the batch, and why.
    """

    def __init__(self, batch: Sequence[Outgoing], rejected: dict[int, str]) -> None:
        place, reason = next(iter(rejected.items()))
        super().__init__(f"{len(rejected)} of {len(batch)} records not written: "
                         f"{batch[place].topic} {batch[place].key!r}: {reason}")  # fmt: skip
        self.rejected = rejected


class Transactions:
    """Writes batches of records."""

    def __init__(
        self, settings: KafkaSettings, role: str, log: EventLog, *, defaults: Options = NONE
    ) -> None:
        self._settings = settings
        self._role = role
        self._log = log
        # The same name as that of the role's group.
        self._transactional_id = role_group(settings, role)
        fixed = {
            "linger.ms": 0,
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": int(TIMEOUT_S * 1000),
        }
        self._producer = Producer(producer_options(settings, defaults=defaults, fixed=fixed))

    def start(self) -> None:
        """Fence whoever wrote before; an open transaction of theirs is aborted.

        Raises
        ------
        FatalProducerError, AccessError
            If the broker gives no transactions.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._producer.init_transactions(TIMEOUT_S)
            except KafkaException as error:
                cause = error.args[0]
                if attempt == ATTEMPTS or not cause.retriable():
                    raise self._refused(cause, ()) or FatalProducerError(
                        f"no transactions: {cause.str()}"
                    ) from error
            else:
                return

    def write(self, batch: Sequence[Outgoing]) -> None:
        """Write records, all or none; return when they are there.

        Raises
        ------
        RejectedError
            If some of them are at fault; none is written, and others may be.
        AccessError
            If the principal may not write them.
        FatalProducerError
            If nothing can be written any more, because another process writes now or no broker
            answers.
        """
        for attempt in range(1, ATTEMPTS + 1):
            rejected: dict[int, str] = {}
            try:
                self._producer.begin_transaction()
                self._produce(batch, rejected)
                if not rejected:
                    self._commit(rejected)
            except KafkaException as error:
                cause = error.args[0]
                access = self._refused(cause, batch)
                if access is not None:
                    raise access from error
                lasting = attempt == ATTEMPTS or not cause.txn_requires_abort()
                if cause.fatal() or (lasting and not rejected):
                    raise FatalProducerError(
                        f"{len(batch)} records not written: {cause.str()}"
                    ) from error
                self._log.warning(
                    f"{self._role}.write_again", attempt=attempt, reason=cause.str()
                )  # fmt: skip
            else:
                if not rejected:
                    return
            self._abort()
            if rejected:
                raise RejectedError(batch, rejected)

    def _produce(self, batch: Sequence[Outgoing], rejected: dict[int, str]) -> None:
        def noted(place: int) -> Any:
            def delivered(error: KafkaError | None, _message: Message) -> None:
                if error is not None and error.code() not in PURGED and not error.fatal():
                    rejected[place] = error.str()

            return delivered

        for place, record in enumerate(batch):
            while True:
                try:
                    self._producer.produce(
                        record.topic, key=record.key, value=record.value,
                        headers=[*record.headers], timestamp=record.timestamp_ms,
                        partition=BY_KEY if record.partition is None else record.partition,
                        on_delivery=noted(place),
                    )  # fmt: skip
                except BufferError:
                    self._producer.poll(TIMEOUT_S)
                except KafkaException as error:
                    if error.args[0].fatal():
                        raise
                    # Too large for any topic: the rest of the batch need not be tried.
                    rejected[place] = error.args[0].str()
                    return
                else:
                    break

    def _commit(self, rejected: Mapping[int, str]) -> None:
        # A commit would wait out its time for the whole batch, also where a record was rejected.
        deadline_s = time.monotonic() + TIMEOUT_S
        while self._producer.flush(FLUSH_S) and time.monotonic() < deadline_s:
            if rejected:
                return
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if attempt == ATTEMPTS or not error.args[0].retriable():
                    raise
            else:
                return

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(TIMEOUT_S)
        except KafkaException as error:
            raise FatalProducerError(f"not given up: {error.args[0].str()}") from error

    def _refused(self, cause: KafkaError, batch: Sequence[Outgoing]) -> AccessError | None:
        of_topic = cause.code() == TOPIC_REFUSED
        topics = named("topic", {record.topic for record in batch})
        resource = topics if of_topic else f"transactional id {self._transactional_id}"
        return refusal(self._settings, cause, "Write", resource)
