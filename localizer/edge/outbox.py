"""What the localizer writes of its decisions: transitions, in transactions.

The event and the state of a transition, and all transitions of one decision, are
one Kafka transaction: a crash leaves all of them or none, and a restart takes up
what `fault.event.v1` says. The transactional id is the cluster's: a localizer that
begins to lead fences the one that led before, which can write nothing more.
"""

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final

from schemas import topics
from schemas.codec import Codec
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.letters import LetterBox
from schemas.kafka.transactions import Outgoing, Transactions
from schemas.process.eventlog import EventLog
from schemas.records import FaultEvent, FaultState
from schemas.units import US_PER_MS

PROCESS: Final = "localizer"
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
    """Sends transitions.

    Attributes
    ----------
    letters
        Dead letters; no decision waits for them.

    Raises
    ------
    FatalProducerError, AccessError
        By every method, when no producer can do what is asked.
    """

    def __init__(self, settings: KafkaSettings, codec: Codec, log: EventLog) -> None:
        self._settings = settings
        self._codec = codec
        self._transitions = Transactions(settings, PROCESS, log)
        self.letters = LetterBox(settings, PROCESS, log)

    def start(self) -> None:
        """Fence a former localizer of the cluster; its open transaction is aborted."""
        self._transitions.start()

    def publish(self, events: Sequence[FaultEvent]) -> None:
        """Write the transitions of one decision, all or none; return when they are there."""
        self._transitions.write(
            [
                Outgoing(
                    self._settings.topic(topic.name),
                    event.fault_id,
                    self._codec.encode(topic, record),
                    event.event_at // US_PER_MS,
                    cloud_event_headers(event),
                )
                for event in events
                for topic, record in (
                    (topics.FAULT_EVENT, event),
                    (topics.FAULT_STATE, state_of(event)),
                )
            ]
        )
