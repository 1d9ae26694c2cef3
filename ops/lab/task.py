"""The training job of a lab, as it stands on `task.v1`."""

from typing import Final

from ops.lab.errors import LabError
from ops.lab.publishing import LabPublisher, now_us
from ops.lab.shape import LabShape
from ops.lab.topology import task_of
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog

TASK_END: Final = "task-end"


class LabTask:
    """Submits the job of a lab's endpoints, and ends it."""

    def __init__(
        self, shape: LabShape, settings: KafkaSettings, publisher: LabPublisher, log: EventLog
    ) -> None:
        self._shape = shape
        self._settings = settings
        self._publisher = publisher
        self._log = log
        self._submitted_at: int | None = None

    def submit(self) -> None:
        """Say that the job runs.

        Raises
        ------
        LabError
            If the broker does not take it.
        """
        self._submitted_at = now_us()
        self._publish(self._submitted_at, ended_at=None)

    def end(self) -> None:
        """Say that it has ended, if it ever ran."""
        if self._submitted_at is None:
            return
        try:
            self._publish(self._submitted_at, ended_at=now_us())
        except LabError as error:
            # The broker may be gone before us; that keeps nobody from leaving.
            self._log.warning("task.not_ended", reason=str(error))

    def _publish(self, submitted_at: int, ended_at: int | None) -> None:
        self._publisher.task(
            task_of(
                self._shape,
                cluster=self._settings.cluster,
                submitted_at=submitted_at,
                ended_at=ended_at,
            )
        )
        if self._publisher.flush():
            raise LabError(f"{self._settings.bootstrap} does not take the task")
