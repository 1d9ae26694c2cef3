"""A thread that reads some topics while somebody looks at what they say, and only then."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Final

from ops.log.reading import LogReader, UnknownTopicError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import RegistryError

LOG: Final = logging.getLogger(__name__)
# A page that is open is made anew each second or two; whose is closed is not read for longer.
KEEP_S: Final = 15.0
RETRY_S: Final = 2.0


class OnDemand(ABC):
    """Reads what belongs to names, such as agents or jobs, while a page wants them.

    Parameters
    ----------
    settings
        Broker, prefix, registry.
    name
        Of the thread.
    most
        Names that are read at once; who wants more waits until others look no more.
    """

    def __init__(self, settings: KafkaSettings, name: str, most: int) -> None:
        self._settings = settings
        self._name = name
        self._most = most
        self._until_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._full = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to wait for somebody who looks."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=5.0)

    def want(self, names: Collection[str]) -> None:
        """Say whose records a page shows now."""
        if not names:
            return
        until_s = time.monotonic() + KEEP_S
        with self._lock:
            for name in names:
                if name in self._until_s or len(self._until_s) < self._most:
                    self._until_s[name] = until_s
            self._full = any(name not in self._until_s for name in names)
        self._wake.set()

    def _wanted(self) -> frozenset[str]:
        now_s = time.monotonic()
        with self._lock:
            self._until_s = {a: until_s for a, until_s in self._until_s.items() if until_s > now_s}
            return frozenset(self._until_s)

    def _goes_on(self) -> frozenset[str] | None:
        """Return what is wanted; None: nobody looks any more."""
        return None if self._stopping.is_set() else self._wanted() or None

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._wanted():
                self._wake.wait()
                # Cleared before it is looked who woke it: nobody is overlooked.
                self._wake.clear()
                continue
            try:
                with LogReader(self._settings) as reader:
                    self._follow(reader)
            except UnknownTopicError as error:
                self._give_up(f"{error}: run `skeletonhunter topics apply`")
            except (ConnectionError, RegistryError, OSError) as error:
                self._give_up(str(error))
            except Exception as error:
                # One record that cannot be read must not end all others without a word.
                LOG.exception("%s", self._name)
                self._give_up(f"they cannot be read: {error!r}; the server's log says where")

    def _give_up(self, why: str) -> None:
        self._say(why)
        self._stopping.wait(RETRY_S)

    @abstractmethod
    def _follow(self, reader: LogReader) -> None:
        """Read until nobody looks any more."""

    @abstractmethod
    def _say(self, why: str) -> None:
        """Tell why there may be nothing."""
