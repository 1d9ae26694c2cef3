"""The latest skeleton of a job, read from `skeleton.v1`."""

import time
from typing import Final

from ops.log.reading import LogReader, UnknownTopicError
from schemas import topics
from schemas.codec import DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.records import Skeleton

READ_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.2


class SkeletonTopicError(ConnectionError):
    """The topic cannot be read."""


def latest_skeleton(settings: KafkaSettings, task_id: str) -> Skeleton | None:
    """Return the latest skeleton of a job, None if there is none.

    Raises
    ------
    SkeletonTopicError
        If the topic is missing, cannot be read to its end in time, or the
        latest record cannot be decoded.
    """
    name = settings.topic(topics.SKELETON_TOPIC.name)
    codec = codec_for(settings)
    found: Skeleton | None = None
    broken: DecodeError | None = None
    with LogReader(settings) as reader:
        try:
            ranges = reader.partitions([name])
        except UnknownTopicError as error:
            raise SkeletonTopicError(f"{error}: run `skeletonhunter topics apply`") from error
        reader.start({place: r.low for place, r in ranges.items()})
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not reader.ended >= ranges.keys():
            for _, entry in reader.batch(POLL_S):
                if entry.key != task_id.encode():
                    continue
                found, broken = None, None
                try:
                    if entry.value is not None:
                        found = codec.decode(topics.SKELETON_TOPIC, entry.value)
                except DecodeError as error:
                    broken = error
            if time.monotonic() > deadline:
                raise SkeletonTopicError(f"{name} not read within {READ_TIMEOUT_S:.0f} s")
    if broken is not None:
        raise SkeletonTopicError(f"the latest skeleton of {task_id} cannot be decoded: {broken}")
    return found
