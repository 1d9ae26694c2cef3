"""Which of several processes of one role works, and which stand by: leadership by consumer group.

All processes of a role on a cluster are members of one group (`role_group`) and subscribe to one
topic of one partition. The member to which Kafka gives that partition leads; the others stand by.
Nothing is read from the topic here. When the leader stops it leaves the group, and the next one
leads at once: the one that began first. When it is killed or hangs, the broker notices after the
session timeout.

The leader commits once a second where it stands, with its name and the time. The broker takes a
commit of a member that still has its place in the group only, so each one that was taken proves
that nobody else leads: for `lease_s` from the time at which it was sent. Between two
such proofs a process may be paused and go on (SIGSTOP, a frozen virtual machine) without knowing
that another one leads. So whoever writes to Kafka also fences by a transactional id, which the new
leader takes over before it reads what the former one has written; whoever acts elsewhere asks
`holds` before each act.

A leader that was lost for a time, because no broker answered, goes on if nobody led meanwhile.
Otherwise it ends: what it knows is not what the others have published.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from schemas.kafka.clients import refusal_of
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import consumer_options, group_name
from schemas.process.errors import CannotRunError
from schemas.process.eventlog import EventLog
from schemas.topics import Topic
from schemas.units import MS_NS

# The least that a broker allows unless it is told otherwise (group.min.session.timeout.ms): a
# leader that was killed is replaced after so long, and the rest of ten seconds is for the new one.
SESSION_TIMEOUT_MS: Final = 6_000
# A standby hears by the answer to its next heartbeat that it leads.
HEARTBEAT_MS: Final = 1_000
# A leader whose loop hangs although its heartbeats go on is replaced after so long. A decision on a
# large cluster takes seconds, of many faults at once perhaps a minute.
MAX_POLL_INTERVAL_MS: Final = 300_000
RENEW_S: Final = 1.0
# The session begins anew when the broker takes a commit, which is after it was sent. The rest of
# the session is for clocks that do not run equally fast.
LEASE_SHARE: Final = 0.8
# Answers to commits, errors and changes of the group that one `poll` takes.
MAX_POLLS: Final = 100
ASK_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.05
TOKEN_CHARS: Final = 8
# Texts of this form stand in the order of the times.
BEGUN: Final = "%Y%m%dT%H%M%S.%f"


class TakenOverError(CannotRunError):
    """Another process of the role leads; a new process can stand by."""


class Leader(NamedTuple):
    """Who leads, as committed: host and process, a word that is this process's alone, when."""

    name: str
    token: str
    renewed_ms: int

    def __str__(self) -> str:
        """Return the text that is committed as metadata."""
        return f"{self.name} {self.token} {self.renewed_ms}"

    @classmethod
    def parse(cls, text: str | None) -> "Leader | None":
        """Return who stands in metadata; None: nobody.

        >>> Leader.parse("host-1:42 0a1b2c3d 1700000000000")
        Leader(name='host-1:42', token='0a1b2c3d', renewed_ms=1700000000000)
        """
        words = (text or "").split(" ")
        if len(words) != len(cls._fields) or not words[2].isdecimal():
            return None
        return cls(words[0], words[1], int(words[2]))


def role_group(settings: KafkaSettings, role: str) -> str:
    """Return the consumer group of all processes of a role on a cluster."""
    return group_name(settings.topic_prefix, settings.cluster, role)


class Leadership:
    """Membership in the group of a role.

    Parameters
    ----------
    role
        Name of the process, for its group and its log lines.
    topic
        Whose partition 0 the leader has. The principal may describe it.
    fence
        Shuts out whoever led before; called once, before this process leads for the first time.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        role: str,
        topic: Topic,
        log: EventLog,
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._fence = fence
        self._settings = settings
        self._role = role
        self._log = log
        self._group = role_group(settings, role)
        self._place = (settings.topic(topic.name), 0)
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._token = uuid4().hex[:TOKEN_CHARS]
        # Whether the partition is ours; whether the group has answered since it last was not.
        self._assigned = self._answered = False
        # Whether it leads; whether it has fenced who led before.
        self._leads = self._led = False
        self._remembered: Sequence[TopicPartition] = ()
        self._end = 0
        self._renewed_s = self._confirmed_s = float("-inf")
        self._asked_s: float | None = None
        options = consumer_options(
            settings,
            self._group,
            # Longer where the broker allows no less.
            defaults={
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            },
            fixed={
                # Who has the partition keeps it when others come or go.
                "partition.assignment.strategy": "cooperative-sticky",
                # Of members that stand by, the first by name leads next: the client puts them in
                # that order, and a member's name begins with this. So one that has long been
                # ready goes before one that has just begun again.
                "client.id": f"skeletonhunter-{role}@{datetime.now(UTC):{BEGUN}}@{self._name}",
                "on_commit": self._note_commit,
            },
        )
        self.lease_s = LEASE_SHARE * float(options["session.timeout.ms"]) / 1_000
        self._consumer = Consumer(options)
        self._consumer.subscribe(
            [self._place[0]],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    @property
    def settled(self) -> bool:
        """Whether the group has said who leads; not while this process is about to."""
        return self._leads or (self._answered and not self._assigned)

    @property
    def leads(self) -> bool:
        """Whether this process leads, as far as it has heard."""
        return self._leads

    @property
    def holds(self) -> bool:
        """Whether certainly nobody else leads now; any thread may ask."""
        return self._leads and time.monotonic() < self._confirmed_s + self.lease_s

    def poll(self) -> bool:
        """Take what the group says, and return whether this process leads; call it often.

        Raises
        ------
        TakenOverError
            If this process has led, and another one has led since or leads now.
        AccessError
            If the group is refused.
        BrokerError
            If the client cannot go on.
        FatalProducerError
            If the broker gives no transactions.
        """
        for _ in range(MAX_POLLS):
            message = self._consumer.poll(0)
            if message is None:
                break
            error = message.error()
            if error is None:
                continue
            if (access := refusal_of(self._settings, message, self._group)) is not None:
                raise access
            if error.fatal():
                raise BrokerError(f"group {self._group}: {error.str()}")
        if self._assigned and not self._leads:
            self._begin()
        elif self._led and self._answered and not self._assigned:
            raise self._taken_over()
        self._renew()
        return self._leads

    def remember(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit offsets with the next proof, if this process then still leads."""
        self._remembered = offsets

    def close(self) -> None:
        """Commit what is to be remembered, and leave the group: another one leads at once.

        Where the broker does not answer, the group is left to notice it: the client would wait for
        the answer to each commit without limit (measured: longer than 27 minutes).
        """
        if self.holds and self._remembered:
            # Not in one call, which would wait without limit for a broker that has gone.
            deadline_s = time.monotonic() + ASK_TIMEOUT_S
            self._await_answer(deadline_s)
            sent_s = self._asked_s = time.monotonic()
            self._consumer.commit(offsets=self._offsets(), asynchronous=True)
            self._await_answer(deadline_s)
            if self._confirmed_s != sent_s:
                self._log.warning(f"{self._role}.not_remembered")
        self._leads = False
        if self._asked_s is None:
            self._consumer.close()

    def _begin(self) -> None:
        """Lead, unless the broker takes no commit of this process now."""
        try:
            if self._led and not self._is_ours():
                raise self._taken_over()
            place = TopicPartition(*self._place)
            # Nothing is read: tools that show lag show what came since this process leads.
            self._end = self._consumer.get_watermark_offsets(place, timeout=ASK_TIMEOUT_S)[1]
            sent_s = self._prove()
            if not self._led:
                self._fence()
                self._led = True
                # It may have been paused since, and another one may lead.
                sent_s = self._prove()
        except KafkaException as error:
            self._log.warning(f"{self._role}.not_leading_yet", reason=error.args[0].str())
            return
        self._leads = True
        self._renewed_s = self._confirmed_s = sent_s
        self._asked_s = None
        self._log.info(f"{self._role}.leading", group=self._group, name=self._name)

    def _prove(self) -> float:
        """Commit where it stands, and return when that was sent."""
        sent_s = time.monotonic()
        self._consumer.commit(offsets=self._offsets(), asynchronous=False)
        return sent_s

    def _is_ours(self) -> bool:
        """Return whether nobody has led since this process did."""
        (place,) = self._consumer.committed([TopicPartition(*self._place)], timeout=ASK_TIMEOUT_S)
        found = Leader.parse(place.metadata)
        return found is not None and found.token == self._token

    def _taken_over(self) -> TakenOverError:
        return TakenOverError(
            f"another {self._role} process of cluster {self._settings.cluster!r} has taken over; "
            "started again, this one stands by"
        )

    def _renew(self) -> None:
        now_s = time.monotonic()
        # Answers come in order; one that never comes is not waited for.
        waits = self._asked_s is not None and now_s < self._asked_s + self.lease_s
        if self._leads and not waits and now_s >= self._renewed_s + RENEW_S:
            self._renewed_s = self._asked_s = now_s
            self._consumer.commit(offsets=self._offsets(), asynchronous=True)

    def _await_answer(self, deadline_s: float) -> None:
        """Wait for the answer to a commit that was sent."""
        while self._asked_s is not None and time.monotonic() < deadline_s:
            self._consumer.poll(POLL_S)

    def _offsets(self) -> list[TopicPartition]:
        leader = Leader(self._name, self._token, time.time_ns() // MS_NS)
        own = TopicPartition(*self._place, self._end, metadata=str(leader))
        return [own, *self._remembered]

    def _note_commit(self, error: KafkaError | None, places: Sequence[Any]) -> None:
        refused = error or next((place.error for place in places if place.error), None)
        if self._asked_s is not None and refused is None:
            self._confirmed_s = self._asked_s
        self._asked_s = None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            place.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        if partitions:
            # Only who has it matters.
            consumer.pause(partitions)
        self._assigned |= any(place.partition == self._place[1] for place in partitions)
        if not self._assigned and not self._answered:
            self._log.info(f"{self._role}.standby", group=self._group, name=self._name)
        self._answered = True

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if any(place.partition == self._place[1] for place in partitions):
            if self._leads:
                self._log.warning(f"{self._role}.lead_lost", group=self._group)
            self._assigned = self._answered = self._leads = False
