"""What a process writes of its decisions: transitions, in transactions.

The records of a transition, and all transitions of one decision, are one Kafka transaction: a crash
leaves all of them or none, and a restart takes up what the topic says. The transactional id is the
cluster's and the role's: a process that begins to lead fences the one that led before, which can
write nothing more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, Generic

from localizer.edge.history import Transition
from schemas import topics
from schemas.codec import Codec
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.letters import LetterBox
from schemas.kafka.transactions import Outgoing, Transactions
from schemas.process.eventlog import EventLog
from schemas.records import FaultEvent, FaultState, Hang
from schemas.topics import Topic
from schemas.units import US_PER_MS

PROCESS: Final = "localizer"
HANGS: Final = "hangs"
CE_TYPES: Final = {
    FaultLifecycle.OPEN: "opened",
    FaultLifecycle.UPDATED: "updated",
    FaultLifecycle.RESOLVED: "resolved",
}

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A record of a transition."""

    topic: Topic
    key: str
    record: Any
    event_at: int
    headers: Headers


def cloud_event_headers(event: FaultEvent) -> Headers:
    """Return the headers of CloudEvents' binary mode (CloudEvents 1.0, Kafka protocol binding)."""
    return _headers("fault", event, event.fault_id)


def _headers(what: str, event: FaultEvent | Hang, subject: str) -> Headers:
    at = datetime.fromtimestamp(event.event_at / 1e6, UTC)
    return [
        ("ce_specversion", "1.0"),
        ("ce_id", f"{subject}/{event.seq}"),
        ("ce_type", f"skeletonhunter.{what}.{CE_TYPES[event.state]}.v1"),
        ("ce_source", f"/skeletonhunter/{event.cluster}"),
        ("ce_subject", subject),
        ("ce_time", at.isoformat(timespec="microseconds")),
        ("content-type", "application/avro"),
    ]


def state_of(event: FaultEvent) -> FaultState:
    """Return the fault's state after a transition."""
    return FaultState(**{f.name: getattr(event, f.name) for f in fields(event)})


def fault_records(event: FaultEvent) -> Iterator[Written]:
    """Yield what is written of a transition of a fault."""
    for topic, record in ((topics.FAULT_EVENT, event), (topics.FAULT_STATE, state_of(event))):
        yield Written(
            topic=topic, key=event.fault_id, record=record, event_at=event.event_at,
            headers=cloud_event_headers(event),
        )  # fmt: skip


def hang_records(hang: Hang) -> Iterator[Written]:
    """Yield what is written of a transition of a hang."""
    yield Written(
        topic=topics.COLLECTIVE_HANG, key=hang.hang_id, record=hang, event_at=hang.event_at,
        headers=_headers("hang", hang, hang.hang_id),
    )  # fmt: skip


class Outbox(Generic[Transition]):
    """Sends transitions.

    Parameters
    ----------
    process
        Name of the role.
    records
        Returns what is written of a transition.

    Attributes
    ----------
    letters
        Dead letters; no decision waits for them.

    Raises
    ------
    FatalProducerError, AccessError
        By every method, when no producer can do what is asked.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        codec: Codec,
        log: EventLog,
        process: str,
        records: Callable[[Transition], Iterator[Written]],
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._records: Callable[[Transition], Iterator[Written]] = records
        self._transitions = Transactions(settings, process, log)
        self.letters = LetterBox(settings, process, log)

    def start(self) -> None:
        """Fence a former process of the role; its open transaction is aborted."""
        self._transitions.start()

    def publish(self, events: Sequence[Transition]) -> None:
        """Write the transitions of one decision, all or none; return when they are there."""
        self._transitions.write(
            [
                Outgoing(
                    self._settings.topic(written.topic.name),
                    written.key,
                    self._codec.encode(written.topic, written.record),
                    written.event_at // US_PER_MS,
                    written.headers,
                )
                for event in events
                for written in self._records(event)
            ]
        )
