"""Training jobs on `task.v1`: submitted, listed, ended."""

import time
from dataclasses import replace
from typing import Final

from ops.log.reading import LogReader, UnknownTopicError
from ops.log.writing import LogWriter
from schemas import topics
from schemas.codec import DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.records import Task
from schemas.units import US_PER_MS

SEND_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.2


class TaskTopicError(ConnectionError):
    """The topic cannot be read or written."""


class UnknownTaskError(LookupError):
    """No task of that id was ever submitted; `known` are the ids there are."""

    def __init__(self, task_id: str, known: list[str]) -> None:
        self.known = known
        there = ", ".join(known) if known else "none"
        super().__init__(f"no task {task_id!r}; submitted are: {there}")


class TaskTopic:
    """Reads and writes `task.v1`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._codec = codec_for(settings)
        self.undecodable = 0

    def submit(self, task: Task) -> None:
        """Write a task; one of the same id is replaced.

        Raises
        ------
        ConnectionError
            If the broker does not acknowledge it.
        """
        at_us = task.submitted_at if task.ended_at is None else task.ended_at
        writer = LogWriter(self._settings, patience_s=SEND_TIMEOUT_S)
        writer.write(
            self._settings.topic(topics.TASK.name),
            key=task.task_id.encode(),
            value=self._codec.encode(topics.TASK, task),
            timestamp_ms=at_us // US_PER_MS,
        )
        writer.flush()

    def tasks(self) -> dict[str, Task]:
        """Return the latest state of all tasks by id, in the order of submission.

        Raises
        ------
        TaskTopicError
            If the topic is missing, or cannot be read to its end in time.
        """
        name = self._settings.topic(topics.TASK.name)
        found: dict[str, Task] = {}
        self.undecodable = 0
        with LogReader(self._settings) as reader:
            try:
                ranges = reader.partitions([name])
            except UnknownTopicError as error:
                raise TaskTopicError(f"{error}: run `skeletonhunter topics apply`") from error
            reader.start({place: r.low for place, r in ranges.items()})
            deadline = time.monotonic() + READ_TIMEOUT_S
            while not reader.ended >= ranges.keys():
                for _, entry in reader.batch(POLL_S):
                    self._fold(found, (entry.key or b"").decode(errors="replace"), entry.value)
                if time.monotonic() > deadline:
                    raise TaskTopicError(f"{name} could not be read within {READ_TIMEOUT_S:.0f} s")
        return dict(sorted(found.items(), key=lambda item: (item[1].submitted_at, item[0])))

    def _fold(self, found: dict[str, Task], key: str, value: bytes | None) -> None:
        if value is None:
            found.pop(key, None)
            return
        try:
            found[key] = self._codec.decode(topics.TASK, value)
        except DecodeError:
            self.undecodable += 1

    def end(self, task_id: str, ended_at: int) -> tuple[Task, bool]:
        """End a task; return it, and whether it was still running.

        Raises
        ------
        UnknownTaskError
            If there is none of that id.
        """
        known = self.tasks()
        task: Task | None = known.get(task_id)
        if task is None:
            raise UnknownTaskError(task_id, list(known))
        if task.ended_at is not None:
            return task, False
        ended = replace(task, ended_at=ended_at)
        self.submit(ended)
        return ended, True
