"""Decodes the records from Kafka that concern the agent, and hands them to the parts they are for.

An agent shares its partitions of `pinglist.v1` and `target.v1` with few others; their lists are
skipped by their key and not decoded. Registrations come from one topic at a time: `target.v1`, or
`endpoint.v1` with those of the whole cluster where the skeleton job is of an earlier version and
does not copy them, or none has been there yet. A record that cannot be decoded is counted and goes
to the dead-letter topic.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from probers.clock import Clock
from probers.lists.follower import PingListFollower, Refusal
from probers.lists.registration import Registration, RegistrationState
from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.kafka.deadletter import Headers
from schemas.process.eventlog import EventLog
from schemas.records import Endpoint, PingList
from schemas.topics import Topic
from schemas.trace_budget import budget_told

# A list of the most targets an agent takes has 1.5 MB; decoding a larger one would
# cost ten times its size in memory. A registration has some 200 bytes, and thousands
# of them are kept.
MAX_VALUE_BYTES: Final = {
    topics.PINGLIST.name: 2 * 2**20,
    topics.ENDPOINT.name: 4_096,
    topics.TARGET.name: 4_096,
}
# Registrations that were forgotten and may be needed are read again, but a list that
# changes often must not make every agent read the whole topic all the time.
REREAD_GAP_NS: Final = 30 * 10**9
# After an absence as long, of the broker or of this process, registrations are read anew:
# tombstones in `target.v1` are kept for an hour (`ops.topics.plan.TARGET_TOMBSTONE_MS`).
READ_ANEW_NS: Final = 1_800 * 10**9


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
        """Read a topic that is followed from its beginning again; what was read is `replayed`."""
        ...

    def has(self, topic: Topic) -> bool:
        """Whether the broker has a topic."""
        ...

    def follow(self, topic: Topic) -> None:
        """Read a topic from its beginning, as if nothing of it had been read before."""
        ...

    def leave(self, topic: Topic) -> None:
        """Read a topic no longer."""
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
        self._polled_ns: int | None = None
        # Where registrations are read, and whether that was decided once.
        self._source = topics.TARGET
        self._settled = False
        # Whether the list in force says that its registrations are copied; None: there is no list.
        self._copied: bool | None = None
        # Whether copies stand in the agent's partition, of whomever.
        self._copies_seen = False
        # While registrations are read anew: the latest of the own ones, with its arrival.
        self._latest_own: dict[str, tuple[Endpoint | None, int | None]] | None = None
        self.counts = InboxCounts()

    def poll(self) -> None:
        """Process the records that have arrived."""
        now_ns = self._clock.now().monotonic_ns
        if self._polled_ns is not None and now_ns - self._polled_ns >= READ_ANEW_NS:
            self.read_anew()
        self._polled_ns = now_ns
        for record in self._reader.poll():
            if record.topic is topics.PINGLIST:
                self._ping_list(record)
                continue
            self._copies_seen |= record.topic is topics.TARGET
            if record.topic is self._source:
                self._endpoint(record)
        if self._reader.take_restarts():
            # A broker that came back without its log knows no registration and no list of ours.
            self._log.warning("topics.restarted")
            self._follower.topic_restarted()
            self._registration.forgotten(self._clock.now())
        if self._reading and self._reader.read_to_end:
            self._settled = True
            if self._source is self._best_source():
                self._read_to_end()
        if self._settled and self._source is not (best := self._best_source()):
            self._read_from(best)
        rested = self._reread_ns is None or now_ns - self._reread_ns > REREAD_GAP_NS
        if self._follower.lacking and not self._reading and rested:
            self._reread_ns = now_ns
            self._reading = True
            self._follower.rereading()
            self._reader.reread(self._source)

    def read_anew(self) -> None:
        """Read copies of registrations from the beginning: tombstones may have been missed."""
        if self._settled and self._source is topics.TARGET:
            self._read_from(self._source)

    def _best_source(self) -> Topic:
        """Return where registrations are to be read, by what the skeleton job has written."""
        if not self._reader.has(topics.TARGET):
            return topics.ENDPOINT
        copied = self._copies_seen if self._copied is None else self._copied
        return topics.TARGET if copied else topics.ENDPOINT

    def _read_from(self, source: Topic) -> None:
        """Read registrations anew; what is known stays in force until they are read to the end."""
        self._log.info("registrations.source", topic=source.name)
        if source is topics.TARGET:
            self._reader.leave(topics.ENDPOINT)
        self._source = source
        self._reading = True
        if self._registration.state is not RegistrationState.READING:
            self._latest_own = {}
        self._follower.begin_anew()
        self._reader.follow(source)

    def _read_to_end(self) -> None:
        self._reading = False
        latest_own, self._latest_own = self._latest_own or {}, None
        for endpoint_id, (endpoint, arrived_ns) in latest_own.items():
            self._register(endpoint_id, endpoint, arrived_ns)
        self._registration.read_to_end()
        self._follower.read_to_end()
        self._log.info(
            "topics.read",
            pinglist_version=self._follower.version,
            targets_active=self._follower.targets_active,
        )

    def _register(
        self, endpoint_id: str, endpoint: Endpoint | None, arrived_ns: int | None
    ) -> None:
        """Tell the registration of a record, or of a tombstone."""
        now = self._clock.now()
        if self._latest_own is not None:
            # Records of the past among them: the last one counts.
            if endpoint_id in self._latest_own or self._registration.concerns(
                endpoint_id, endpoint
            ):
                self._latest_own[endpoint_id] = endpoint, arrived_ns
        elif endpoint is None:
            self._registration.left(endpoint_id, now)
        else:
            self._registration.seen(endpoint, now, arrived_ns=arrived_ns)

    def _ping_list(self, record: Record) -> None:
        if record.key != self._agent_key and record.key is not None:
            return
        if record.value is None:
            if record.key is not None:
                self._copied = None
                self._follower.withdraw()
                self._log.info("pinglist.withdrawn")
            return
        ping_list: PingList | None = self._decode(record)
        if ping_list is None:
            if record.key is not None:
                self.counts.refusal = self._follower.unreadable()
            return
        refusal = self._follower.offer(
            ping_list,
            self._clock.now().monotonic_ns,
            trace_budget=budget_told(record.headers),
        )
        if refusal is Refusal.OLDER_VERSION:
            return
        self.counts.refusal = refusal
        if refusal is None:
            self._copied = topics.REGISTRATIONS_HEADER in record.headers
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
        if record.value is None:
            name = _text(record.key)
            if name is not None:
                self._follower.left(name, replayed=record.replayed)
                if not record.replayed:
                    self._register(name, None, record.arrived_ns)
                    if self._observer is not None:
                        self._observer.left(name)
            return
        endpoint: Endpoint | None = self._decode(record)
        if endpoint is None:
            name = _text(record.key)
            if name is not None and not record.replayed and self._latest_own is None:
                self._registration.unreadable(name, self._clock.now())
            return
        if _text(record.key) != endpoint.endpoint_id:
            # Its tombstone would carry another key, so it could never leave.
            self._follower.refused[Refusal.BAD_REGISTRATION] += 1
            return
        self._follower.registered(endpoint, replayed=record.replayed)
        if not record.replayed:
            self._register(endpoint.endpoint_id, endpoint, record.arrived_ns)
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
