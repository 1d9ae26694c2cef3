"""What the topics hold of one training job now: its ranks, its communicators, its hang."""

import time
from dataclasses import dataclass
from typing import Final

from localizer.collectives.job_state import JobState
from ops.log.reading import LogReader, UnknownTopicError
from ops.log.timespan import Bound
from schemas import topics
from schemas.codec import DecodeError
from schemas.ids import STATE_SEPARATOR
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.records import CollectiveBatch, Communicator, Hang, SocketBatch
from schemas.records.batches import snapshot_of
from schemas.units import MS_NS

READ_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2
# A collector tells all that waits, and the last operation of each communicator, every 30 s.
LOOKBACK_MS: Final = 90_000
LOGS: Final = (topics.COLLECTIVE_OP, topics.COLLECTIVE_FLOW)
STATES: Final = (topics.COLLECTIVE_COMM, topics.COLLECTIVE_HANG)


class JobTopicsError(ConnectionError):
    """The topics cannot be read."""


@dataclass(slots=True)
class JobNow:
    """A job as the topics have it.

    Attributes
    ----------
    hang
        The latest one; None: there never was any.
    undecodable
        Records that could not be used.
    """

    job: JobState
    hang: Hang | None = None
    undecodable: int = 0

    def apply(self, record: object, arrived_ns: int) -> None:
        """Apply a record of one of the topics; those of other jobs are left alone."""
        match record:
            case CollectiveBatch(task_id=task_id) if task_id == self.job.task_id:
                operations = snapshot_of(record, {}).operations
                self.job.apply_batch(record, operations, arrived_ns)
            case SocketBatch(task_id=task_id) if task_id == self.job.task_id:
                self.job.apply_sockets(record, arrived_ns)
            case Communicator(task_id=task_id) if task_id == self.job.task_id:
                self.job.apply_communicator(record.communicator, record)
            case Hang(task_id=task_id) if task_id == self.job.task_id:
                if self.hang is None or record.event_at >= self.hang.event_at:
                    self.hang = record


def read_job(settings: KafkaSettings, task_id: str, now_ms: int) -> JobNow:
    """Return what the topics hold of a job.

    Raises
    ------
    JobTopicsError
        If a topic is missing, or cannot be read to its end in time.
    """
    found = JobNow(JobState(task_id))
    codec = codec_for(settings)
    by_name = {settings.topic(topic.name): topic for topic in (*STATES, *LOGS)}
    prefix = f"{task_id}{STATE_SEPARATOR}".encode()
    with LogReader(settings) as reader:
        try:
            ranges = reader.partitions(list(by_name))
        except UnknownTopicError as error:
            raise JobTopicsError(f"{error}: run `skeletonhunter topics apply`") from error
        logs = {p: r for p, r in ranges.items() if by_name[p[0]] in LOGS}
        starts = {place: r.low for place, r in ranges.items()}
        starts |= reader.offsets_at(logs, Bound("time", max(0, now_ms - LOOKBACK_MS)))
        reader.start(starts)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not reader.ended >= ranges.keys():
            for place, entry in reader.batch(POLL_S):
                topic = by_name[place[0]]
                keyed = topic is topics.COLLECTIVE_HANG or (entry.key or b"").startswith(prefix)
                if entry.value is None or not keyed:
                    continue
                arrived_ns = (entry.timestamp_ms or 0) * MS_NS
                try:
                    record = codec.decode(topic, entry.value, arrival_ns=arrived_ns)
                    found.apply(record, arrived_ns)
                except (DecodeError, ValueError):
                    found.undecodable += 1
            if time.monotonic() > deadline:
                raise JobTopicsError(f"not read within {READ_TIMEOUT_S:.0f} s")
    return found
