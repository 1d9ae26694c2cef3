"""Publishes outputs, waits for the broker, and gives up what stays unconfirmed for too long.

A message that the broker has not confirmed after a share of the session timeout
is given up, and a process that stood still that long sends nothing more: a
worker whose partitions went to another can write nothing any more when the
other one looks at what is there.

It is given up with all that was sent after it, by a thread of its own, while the
one that sends may be busy with something else: the client drops each message when
its own time is over, and would send those behind it to a broker that comes back
just then.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.kafka.access import AccessError, refusal
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import Headers
from schemas.kafka.options import producer_options
from streams.edge.errors import SessionLostError

BEAT_S: Final = 0.1
# Of the session: a shorter gap cannot have ended it. Heartbeats go out every
# quarter, so the broker waits at least three quarters from where the gap began.
LIMIT_SHARE: Final = 0.5


class Pulse:
    """Whether the process has been running without a long gap since it was made.

    Parameters
    ----------
    each
        What the thread does at every beat.
    """

    def __init__(self, session_timeout_s: float, each: Callable[[], None]) -> None:
        self._each = each
        self._limit_s = LIMIT_SHARE * session_timeout_s
        self._last = time.monotonic()
        self._gap = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()

    def steady(self) -> bool:
        """Return False for good once there was a gap."""
        # Whoever runs first after the gap sees it: this call, or the thread.
        if time.monotonic() - self._last > self._limit_s:
            self._gap = True
        return not self._gap

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            if self.steady():
                self._last = time.monotonic()
            self._each()


LINGER_MS: Final = 5
POLL_S: Final = 0.01
# Shares of the session timeout. After the first our thread gives up all unconfirmed outputs; after
# the second librdkafka drops them, in case our thread does not run.
GIVE_UP_SHARE: Final = 0.55
TIMEOUT_SHARE: Final = 0.65
# Messages queued within so long are of one age.
LOT_S: Final = 0.1
# The producer's queue while a large batch is processed.
QUEUE_MESSAGES: Final = 200_000
QUEUE_KBYTES: Final = 128 * 1024
# Messages queued between two looks at the queue.
CHUNK_MESSAGES: Final = 1_000
UNKNOWN_OFFSET: Final = -1

# librdkafka's own lines, as events like all others.
CLIENT_LOG: Final = logging.getLogger("skeletonhunter.worker.kafka")

Confirmed = Callable[[int], None]


@dataclass(slots=True)
class Receipt:
    """The messages of one stretch: how many of them the broker has not confirmed yet."""

    open: int = 0


@dataclass(slots=True)
class _Lot:
    """Messages of about one age: how many of them have not been reported yet."""

    begun_s: float
    open: int = 0


class _Span:
    """Messages sent to one partition in a row, of which the ends are reported.

    The client drops a message that has waited too long, and sends those behind it. Records of
    others may lie between them.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._first: int | None = None

    def holds(self, offset: int) -> bool:
        """Note an end's offset; return whether there is room for all from the first to it."""
        if self._first is None:
            self._first = offset
            return offset >= 0 or self.count == 1
        return offset - self._first >= self.count - 1


class Publisher:
    """An idempotent producer that knows which of its messages are confirmed."""

    def __init__(self, settings: KafkaSettings, *, session_timeout_s: float) -> None:
        self._timeout_s = TIMEOUT_SHARE * session_timeout_s
        self._give_up_s = GIVE_UP_SHARE * session_timeout_s
        # Held by whoever sends or takes reports: nothing is sent between giving up and knowing it.
        self._lock = threading.RLock()
        self._receipt = Receipt()
        self._lots: deque[_Lot] = deque()
        self._failure: str | None = None
        self._settings = settings
        self._access: AccessError | None = None
        options = producer_options(
            settings,
            fixed={
                "compression.type": "lz4",
                "linger.ms": LINGER_MS,
                "message.timeout.ms": int(self._timeout_s * 1000),
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_KBYTES,
            },
        )
        self._producer = Producer(options, logger=CLIENT_LOG)
        self._pulse = Pulse(session_timeout_s, self._serve)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: Headers | None = None,
        confirmed: Confirmed | None = None,
    ) -> None:
        """Queue a message; `confirmed` gets its offset once the broker has it.

        Raises
        ------
        SessionLostError
            If the queue stays full, or an earlier message was given up.
        AccessError
            If Kafka refused an earlier one.
        """
        deadline = time.monotonic() + self._timeout_s
        produce = partial(
            self._producer.produce,
            value=value,
            key=key,
            partition=partition,
            timestamp=timestamp_ms,
            headers=[*(headers or ())],
        )
        while not self._queued(topic, produce, confirmed):
            if time.monotonic() > deadline:
                raise SessionLostError("the producer's queue stays full")
            self._poll(POLL_S)

    def _queued(
        self, topic: str, produce: Callable[..., None], confirmed: Confirmed | None
    ) -> bool:
        """Queue a message; False if there is no room."""
        with self._lock:
            self._check()
            try:
                produce(topic, on_delivery=self._delivered(confirmed))
            except BufferError:
                return False
            except KafkaException as error:
                raise SessionLostError(f"cannot produce to {topic}: {error}") from error
            self._opened()
            self._producer.poll(0)
            return True

    def send_all(
        self,
        topic: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        *,
        partition: int,
        timestamp_ms: int,
        confirmed: Confirmed,
    ) -> None:
        """Queue many messages of one time, in order; otherwise as `send`.

        `confirmed` gets the offset of the last one alone: those before it have smaller ones. Only
        the first and the last are reported by the client, which takes as long over a report as
        over the message; their offsets tell whether one between them is missing.
        """
        span, last = _Span(len(values)), len(values) - 1
        produce = self._producer.produce
        for begin in range(0, len(values), CHUNK_MESSAGES):
            self._make_room(CHUNK_MESSAGES)
            with self._lock:
                self._check()
                numbers = range(begin, min(begin + CHUNK_MESSAGES, len(values)))
                try:
                    for number in numbers:
                        # Not `produce_batch`, which knows no timestamps.
                        key, value = keys[number], values[number]
                        if 0 < number < last:
                            produce(topic, value, key, partition, timestamp=timestamp_ms)
                            continue
                        delivered = self._delivered(confirmed if number == last else None, span)
                        produce(topic, value, key, partition, on_delivery=delivered,
                                timestamp=timestamp_ms)  # fmt: skip
                        self._opened()
                except (BufferError, KafkaException) as error:
                    raise SessionLostError(f"cannot produce to {topic}: {error}") from error
        self._poll(0)
        self._check()

    def _make_room(self, count: int) -> None:
        """Wait until that many messages fit into the queue."""
        deadline = time.monotonic() + self._timeout_s
        self._poll(0)
        while len(self._producer) + count > QUEUE_MESSAGES:
            if time.monotonic() > deadline:
                raise SessionLostError("the producer's queue stays full")
            self._poll(POLL_S)
            self._check()

    def _delivered(
        self, confirmed: Confirmed | None, span: "_Span | None" = None
    ) -> Callable[[KafkaError | None, Message], None]:
        receipt, lot = self._receipt, self._lot()

        def delivered(error: KafkaError | None, message: Message) -> None:
            receipt.open -= 1
            lot.open -= 1
            # The client gives none for a message that the broker had already.
            place, why = message.offset(), None
            offset = UNKNOWN_OFFSET if place is None else int(place)
            if error is not None:
                why = error.str()
                self._access = self._access or refusal(
                    self._settings, error, "Write", f"topic {message.topic()}"
                )
            elif span is not None and not span.holds(offset):
                why = f"of {span.count} messages some are missing"
            if why is not None:
                self._fail(f"{message.topic()}[{message.partition()}]: {why}")
            elif confirmed is not None:
                confirmed(offset)

        return delivered

    def _lot(self) -> _Lot:
        """Return the lot of what is sent now."""
        now_s = time.monotonic()
        if not self._lots or now_s - self._lots[-1].begun_s > LOT_S:
            self._lots.append(_Lot(now_s))
        return self._lots[-1]

    def _opened(self) -> None:
        """Count a message whose report is to come, after `_delivered` was asked for it."""
        self._receipt.open += 1
        self._lots[-1].open += 1

    def _serve(self) -> None:
        """Take reports beside the thread that sends; where that holds the lock, it does so itself.

        Not waiting for it: a beat that is late would look like a process that stood still.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._poll(0)
            finally:
                self._lock.release()

    def _poll(self, timeout_s: float) -> None:
        """Take reports, and give everything up if the oldest message has waited too long."""
        with self._lock:
            self._producer.poll(timeout_s)
            while len(self._lots) > 1 and not self._lots[0].open:
                self._lots.popleft()
            oldest = self._lots[0] if self._lots else None
            if oldest and oldest.open and time.monotonic() - oldest.begun_s > self._give_up_s:
                self._fail(f"not within {self._give_up_s:.1f} s")

    def _fail(self, why: str) -> None:
        """Give up what waits, since it must not be written without what is lost.

        A successor takes what it finds for a beginning of all outputs.
        """
        if self._failure is None:
            self._failure = why
            self._producer.purge()

    def receipt(self) -> Receipt:
        """Return a receipt for what was sent since the last one."""
        receipt, self._receipt = self._receipt, Receipt()
        return receipt

    def wait(self, receipt: Receipt) -> None:
        """Wait until every message of it is confirmed.

        Raises
        ------
        SessionLostError
            If one was given up, of this receipt or of any other.
        """
        while receipt.open and self._failure is None:
            self._poll(POLL_S)
        self._check()

    def abandon(self) -> None:
        """Give up what is not confirmed, at once, for good."""
        self._pulse.stop()
        with self._lock:
            self._producer.purge()
            self._producer.poll(0)

    def _check(self) -> None:
        if self._pulse.steady() and self._failure is None:
            return
        why = self._failure
        self.abandon()
        if self._access is not None:
            raise self._access
        if why is None:
            raise SessionLostError("the process stood still; its partitions may be another's")
        raise SessionLostError(f"an output was not confirmed: {why}")
