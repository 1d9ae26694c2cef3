"""What people write about faults: silences and notes, read and written."""

import getpass
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from ops.log.decoding import SeenRecord, decode
from ops.log.reading import LogReader, UnknownTopicError
from ops.log.writing import LogWriter
from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.records import FaultState, IncidentNote, Silence
from schemas.topics import Topic

ID_CHARS: Final = 12
# Somebody waits at a terminal; a broker that is there takes a record within milliseconds.
PATIENCE_S: Final = 5.0


class UnknownNameError(LookupError):
    """There is no silence or fault of that id."""


def new_id(prefix: str) -> str:
    """Return an id that nothing else has."""
    return f"{prefix}-{uuid4().hex[:ID_CHARS]}"


def whoami() -> str:
    """Return who writes, unless they say otherwise: the user and the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


class OperatorTopics:
    """Reads and writes `silence.v1` and `incident.note.v1`.

    Every method raises ConnectionError where the broker does not answer or lacks the topic.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = replace(settings, role="responder")
        self._codec = codec_for(settings)
        self.cluster = settings.cluster

    def silences(self) -> list[Silence]:
        """Return all silences, the latest begin first."""
        found = self._latest(topics.SILENCE)
        return sorted(found.values(), key=lambda s: (-s.from_at, s.silence_id))

    def silence(self, silence_id: str) -> Silence:
        """Return a silence.

        Raises
        ------
        UnknownNameError
            If there is none of that id.
        """
        found: dict[str, Silence] = self._latest(topics.SILENCE)
        if silence_id not in found:
            raise UnknownNameError(f"no silence {silence_id!r}; see `skeletonhunter silence list`")
        return found[silence_id]

    def fault(self, fault_id: str) -> FaultState:
        """Return the latest state of a fault.

        Raises
        ------
        UnknownNameError
            If there is none of that id.
        """
        found: dict[str, FaultState] = self._latest(topics.FAULT_STATE)
        if fault_id not in found:
            raise UnknownNameError(
                f"no fault {fault_id!r}; see `skeletonhunter tail fault.state.v1 --from beginning`"
            )
        return found[fault_id]

    def notes(self, fault_id: str) -> list[IncidentNote]:
        """Return the notes on a fault, oldest first."""
        seen = (r.record for r in self._records(topics.INCIDENT_NOTE) if r.key == fault_id)
        return [record for record in seen if record is not None]

    def write(self, topic: Topic, record: Silence | IncidentNote) -> None:
        """Write a record, and wait until the broker has it."""
        writer = LogWriter(self._settings, patience_s=PATIENCE_S)
        writer.write(
            self._settings.topic(topic.name),
            key=str(getattr(record, topic.key_field)).encode(),
            value=self._codec.encode(topic, record),
            timestamp_ms=None,
        )
        writer.flush()

    def _latest(self, topic: Topic) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for seen in self._records(topic):
            if seen.tombstone:
                found.pop(seen.key, None)
            else:
                found[seen.key] = seen.record
        return found

    def _records(self, topic: Topic) -> Iterator[SeenRecord]:
        """Yield the usable records of this cluster, to the end that the topic has now."""
        name = self._settings.topic(topic.name)
        with LogReader(self._settings) as reader:
            try:
                ranges = reader.partitions([name])
            except UnknownTopicError as error:
                raise ConnectionError(f"{error}: run `skeletonhunter topics apply`") from error
            starts = {place: r.low for place, r in ranges.items()}
            ends = {place: r.high for place, r in ranges.items()}
            for _, entry in reader.read_to(starts, ends):
                seen = decode(topic, entry, self._codec)
                ours = seen.record is None or seen.record.cluster == self._settings.cluster
                if seen.refused is None and ours:
                    yield seen
