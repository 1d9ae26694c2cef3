"""A registration with a wrong Q_Key, as a writer that repeats an old registration would leave it.

An agent that sees a wrong registration of its own registers again within five seconds. The wrong
one is therefore published again at once, until the fault is healed.
"""

import threading
from dataclasses import replace
from typing import Final

from ops.lab.errors import LabError
from ops.lab.publishing import LabPublisher
from ops.log.watch import Watch
from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.records import Endpoint

STALE: Final = "qkey-stale"
READ_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1
# Another Q_Key, which still is one.
_FLIP: Final = 1


class StaleKeys:
    """Registers endpoints with a Q_Key that theirs is not, for as long as the fault is there."""

    def __init__(self, settings: KafkaSettings, publisher: LabPublisher) -> None:
        self._settings = settings
        self._publisher = publisher
        self._threads: dict[str, _StaleKeyPublisher] = {}

    def spoil(self, endpoint_id: str) -> None:
        """Register it with a wrong key; raises LabError if it has no queue pair."""
        publisher = _StaleKeyPublisher(endpoint_id, self._settings, self._publisher)
        publisher.start()
        if not publisher.corrupted.wait(READ_TIMEOUT_S):
            publisher.end()
            raise LabError(f"{endpoint_id} has not registered a queue pair")
        self._threads[endpoint_id] = publisher

    def mend(self, endpoint_id: str) -> None:
        """Register what is true."""
        self._threads.pop(endpoint_id).end()

    def close(self) -> None:
        """Register what is true for all endpoints."""
        for endpoint_id in list(self._threads):
            self.mend(endpoint_id)


class KeyCorruption:
    """Chooses the wrong registration that answers a true one; recognises its own. Pure."""

    def __init__(self) -> None:
        self.true: Endpoint | None = None
        self._published: set[Endpoint] = set()

    def answer(self, known: Endpoint | None) -> Endpoint | None:
        """Return what to register now; None: nothing. `known` None: the endpoint has left."""
        if known in self._published:
            return None
        self.true = known
        if known is None or known.qkey is None:
            return None
        wrong = replace(known, qkey=known.qkey ^ _FLIP)
        self._published.add(wrong)
        return wrong


class _StaleKeyPublisher(threading.Thread):
    """Follows the registrations of one endpoint, and answers each with a wrong one."""

    def __init__(self, endpoint_id: str, settings: KafkaSettings, publisher: LabPublisher) -> None:
        super().__init__(name=f"stale-{endpoint_id}", daemon=True)
        self.corrupted = threading.Event()
        self._endpoint_id = endpoint_id
        self._settings = settings
        self._publisher = publisher
        self._ended = threading.Event()
        self._corruption = KeyCorruption()

    def run(self) -> None:
        """Lie until the end."""
        with Watch(self._settings, (topics.ENDPOINT,), from_start=True) as watch:
            while not self._ended.is_set():
                for seen in watch.poll(POLL_S):
                    if seen.key != self._endpoint_id:
                        continue
                    wrong = self._corruption.answer(seen.record)
                    if wrong is not None:
                        self._publisher.endpoint(wrong)
                        self._publisher.flush()
                        self.corrupted.set()

    def end(self) -> None:
        """Stop; the last true registration stands again."""
        self._ended.set()
        self.join(READ_TIMEOUT_S)
        if self._corruption.true is not None:
            self._publisher.endpoint(self._corruption.true)
            self._publisher.flush()
