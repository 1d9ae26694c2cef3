"""What the topics hold of one training job now: its ranks, its communicators, its hang."""

import time
from typing import Final

from ops.log.reading import LogReader, UnknownTopicError
from ops.log.timespan import Bound
from ops.view.job_ranks import LOOKBACK_MS, RANK_LOGS, RANK_STATES, JobNow, may_be_of, prefix_of
from schemas.codec import DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.units import MS_NS

READ_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2


class JobTopicsError(ConnectionError):
    """The topics cannot be read."""


def read_job(settings: KafkaSettings, task_id: str, now_ms: int) -> JobNow:
    """Return what the topics hold of a job.

    Raises
    ------
    JobTopicsError
        If a topic is missing, or cannot be read to its end in time.
    """
    found = JobNow.of(task_id)
    codec = codec_for(settings)
    by_name = {settings.topic(topic.name): topic for topic in (*RANK_STATES, *RANK_LOGS)}
    prefix = prefix_of(task_id)
    with LogReader(settings) as reader:
        try:
            ranges = reader.partitions(list(by_name))
        except UnknownTopicError as error:
            raise JobTopicsError(f"{error}: run `skeletonhunter topics apply`") from error
        logs = {p: r for p, r in ranges.items() if by_name[p[0]] in RANK_LOGS}
        starts = {place: r.low for place, r in ranges.items()}
        starts |= reader.offsets_at(logs, Bound("time", max(0, now_ms - LOOKBACK_MS)))
        reader.start(starts)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not reader.ended >= ranges.keys():
            for place, entry in reader.batch(POLL_S):
                topic = by_name[place[0]]
                if entry.value is None or not may_be_of(topic, entry.key, prefix):
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
