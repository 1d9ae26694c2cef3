"""Decodes the records from Kafka that concern the agent, and hands them to the parts they are for.

Every agent reads all registrations and all ping lists. Lists of other agents are skipped by their
key and not decoded. A record that cannot be decoded is counted and goes to the dead-letter topic.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from probers.clock import Clock
from probers.lists.follower import PingListFollower, Refusal
from probers.lists.registration import Registration
from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.kafka.deadletter import Headers
from schemas.process.eventlog import EventLog
from schemas.records import Endpoint, PingList
from schemas.topics import Topic

# A list of the most targets an agent takes has 1.5 MB; decoding a larger one would
# cost ten times its size in memory. A registration has some 200 bytes, and thousands
# of them are kept.
MAX_VALUE_BYTES: Final = {topics.PINGLIST.name: 2 * 2**20, topics.ENDPOINT.name: 4_096}
# Registrations that were forgotten and may be needed are read again, but a list that
# changes often must not make every agent read the whole topic all the time.
REREAD_GAP_NS: Final = 30 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of a topic; value None is a tombstone."""

    topic: Topic
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    replayed: bool
    # When the broker appended it, nanoseconds since the epoch; None: it does not say.
    arrived_ns: int | None = None


class Reader(Protocol):
    """Where records come from."""

    @property
    def read_to_end(self) -> bool:
        """Whether everything there was has been read."""
        ...

    def poll(self) -> list[Record]:
        """Return what has come."""
        ...

    def reread(self, topic: Topic) -> None:
        """Read a topic from its beginning again."""
        ...

    def take_restarts(self) -> int:
        """Return how many partitions turned out to begin anew since the last call."""
        ...


class DeadLetters(Protocol):
    """Where records go that cannot be decoded."""

    def dead_letter(
        self, error: DecodeError, *, key: bytes | None, value: bytes, headers: Headers
    ) -> None:
        """Keep a record that cannot be read."""
        ...


class RegistrationObserver(Protocol):
    """A part that is called for every registration, such as the watch of the overlay tables."""

    def registered(self, endpoint: Endpoint) -> None:
        """Process a registration."""
        ...

    def left(self, endpoint_id: str) -> None:
        """Process a tombstone of a registration."""
        ...


@dataclass(slots=True)
class InboxCounts:
    """What arrived, since the start."""

    undecodable: int = 0
    # Why the latest ping list was not taken; None when it was.
    refusal: Refusal | None = None


class Inbox:
    """Routes records to the ping-list follower and the registration."""

    def __init__(
        self,
        *,
        agent_id: str,
        reader: Reader,
        codec: Codec,
        clock: Clock,
        follower: PingListFollower,
        registration: Registration,
        dead_letters: DeadLetters,
        log: EventLog,
        observer: RegistrationObserver | None = None,
    ) -> None:
        self._observer = observer
        self._agent_key = agent_id.encode()
        self._reader = reader
        self._codec = codec
        self._clock = clock
        self._follower = follower
        self._registration = registration
        self._dead_letters = dead_letters
        self._log = log
        self._reading = True
        self._reread_ns: int | None = None
        self.counts = InboxCounts()

    def poll(self) -> None:
        """Process the records that have arrived."""
        for record in self._reader.poll():
            handle = self._ping_list if record.topic is topics.PINGLIST else self._endpoint
            handle(record)
        if self._reader.take_restarts():
            # A broker that came back without its log knows no registration of ours.
            self._log.warning("topics.restarted")
            self._registration.forgotten(self._clock.now())
        if self._reading and self._reader.read_to_end:
            self._reading = False
            self._registration.read_to_end()
            self._follower.read_to_end()
            self._log.info(
                "topics.read",
                pinglist_version=self._follower.version,
                targets_active=self._follower.targets_active,
            )
        now_ns = self._clock.now().monotonic_ns
        rested = self._reread_ns is None or now_ns - self._reread_ns > REREAD_GAP_NS
        if self._follower.lacking and not self._reading and rested:
            self._reread_ns = now_ns
            self._reading = True
            self._follower.rereading()
            self._reader.reread(topics.ENDPOINT)

    def _ping_list(self, record: Record) -> None:
        if record.key != self._agent_key and record.key is not None:
            return
        if record.value is None:
            if record.key is not None:
                self._follower.withdraw()
                self._log.info("pinglist.withdrawn")
            return
        ping_list: PingList | None = self._decode(record)
        if ping_list is None:
            if record.key is not None:
                self.counts.refusal = self._follower.unreadable()
            return
        refusal = self._follower.offer(ping_list, self._clock.now().monotonic_ns)
        if refusal is Refusal.OLDER_VERSION:
            return
        self.counts.refusal = refusal
        if refusal is None:
            self._log.info(
                "pinglist.taken", version=ping_list.version, targets=len(ping_list.targets)
            )
        else:
            self._log.warning(
                "pinglist.refused",
                reason=refusal.value,
                cluster=ping_list.cluster,
                agent_id=ping_list.agent_id,
                version=ping_list.version,
            )

    def _endpoint(self, record: Record) -> None:
        now = self._clock.now()
        if record.value is None:
            name = _text(record.key)
            if name is not None:
                self._follower.left(name, replayed=record.replayed)
                if not record.replayed:
                    self._registration.left(name, now)
                    if self._observer is not None:
                        self._observer.left(name)
            return
        endpoint: Endpoint | None = self._decode(record)
        if endpoint is None:
            name = _text(record.key)
            if name is not None and not record.replayed:
                self._registration.unreadable(name, now)
            return
        if _text(record.key) != endpoint.endpoint_id:
            # Its tombstone would carry another key, so it could never leave.
            self._follower.refused[Refusal.BAD_REGISTRATION] += 1
            return
        self._follower.registered(endpoint, replayed=record.replayed)
        if not record.replayed:
            self._registration.seen(endpoint, now, arrived_ns=record.arrived_ns)
            if self._observer is not None:
                self._observer.registered(endpoint)

    def _decode(self, record: Record) -> Any | None:
        value = record.value or b""
        try:
            if len(value) > MAX_VALUE_BYTES[record.topic.name]:
                raise DecodeError(
                    f"{len(value)} bytes; an agent decodes at most "
                    f"{MAX_VALUE_BYTES[record.topic.name]}",
                    topic=record.topic.name,
                    partition=record.partition,
                    offset=record.offset,
                )
            return self._codec.decode(
                record.topic,
                value,
                partition=record.partition,
                offset=record.offset,
                arrival_ns=record.arrived_ns,
            )
        except (DecodeError, RuntimeError) as error:
            # RuntimeError: a schema registry that cannot be asked about the record's id.
            wrong = (
                error
                if isinstance(error, DecodeError)
                else DecodeError(
                    str(error),
                    topic=record.topic.name,
                    partition=record.partition,
                    offset=record.offset,
                )
            )
            if not record.replayed:
                self._dead_letter(record, wrong)
            return None

    def _dead_letter(self, record: Record, error: DecodeError) -> None:
        self.counts.undecodable += 1
        self._log.warning(
            "record.undecodable",
            topic=record.topic.name,
            partition=record.partition,
            offset=record.offset,
            reason=error.reason,
        )
        self._dead_letters.dead_letter(
            error, key=record.key, value=record.value or b"", headers=record.headers
        )


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None
