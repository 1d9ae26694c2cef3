"""A registration that no longer fits its queue pair, as a lost update of the topic leaves it."""

import time
from dataclasses import replace
from typing import Final

from ops.lab.errors import LabError
from ops.lab.publishing import LabPublisher
from ops.watch import Watch
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.records import Endpoint

READ_TIMEOUT_S: Final = 10.0
# The topic is small and compacted: what has not come by then is not there.
QUIET_S: Final = 0.5
# Another Q_Key, which still is one.
_FLIP: Final = 1


class StaleKeys:
    """Registers endpoints with a Q_Key that theirs is not, and rightly again."""

    def __init__(self, settings: KafkaSettings, publisher: LabPublisher) -> None:
        self._settings = settings
        self._publisher = publisher
        self._true: dict[str, Endpoint] = {}

    def spoil(self, endpoint_id: str) -> None:
        """Register it with a wrong key; raises LabError if it has no queue pair."""
        endpoint = self._registered(endpoint_id)
        if endpoint is None or endpoint.qkey is None:
            raise LabError(f"{endpoint_id} has not registered a queue pair")
        self._true[endpoint_id] = endpoint
        self._publish(replace(endpoint, qkey=endpoint.qkey ^ _FLIP))

    def mend(self, endpoint_id: str) -> None:
        """Register what is true, unless its agent has registered anew meanwhile."""
        true = self._true.pop(endpoint_id)
        now = self._registered(endpoint_id)
        if now is not None and now.qkey == (true.qkey or 0) ^ _FLIP:
            self._publish(true)

    def _publish(self, endpoint: Endpoint) -> None:
        self._publisher.endpoint(endpoint)
        if self._publisher.flush():
            raise LabError(f"{self._settings.bootstrap} does not take a registration")

    def _registered(self, endpoint_id: str) -> Endpoint | None:
        """Return what is registered now."""
        found: Endpoint | None = None
        with Watch(self._settings, (topics.ENDPOINT,), from_start=True) as watch:
            end = time.monotonic() + READ_TIMEOUT_S
            quiet = time.monotonic() + QUIET_S
            while time.monotonic() < min(end, quiet) or (found is None and time.monotonic() < end):
                for seen in watch.poll():
                    quiet = time.monotonic() + QUIET_S
                    if seen.key == endpoint_id:
                        found = seen.record
        return found
