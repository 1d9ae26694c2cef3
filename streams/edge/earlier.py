"""Reads the windows of the long-term test beside a worker's work, after it took partitions over.

In service these are hours of windows, read in a minute or two. One thread reads, a partition
after the other, so that what a client holds ready is held once.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from weakref import WeakSet

from confluent_kafka import Message

from schemas.process.eventlog import EventLog
from streams.core.machine import PartitionMachine
from streams.core.published import PublishedReader
from streams.edge.errors import SessionLostError

# While somebody waits.
WAIT_S: Final = 0.25
RETRY_S: Final = 1.0
# Somebody waits no longer than this for a broker that gives nothing: who waits holds up all
# partitions and the group, and is not watched. About what `streams.edge.lookback` grants a silence.
PATIENCE_S: Final = 15.0

# Messages of a range from an offset on; calls back between them.
Read = Callable[[int, Callable[[], None]], Iterator[list[Message]]]
Beat = Callable[[], None]


def nothing() -> None:
    """Do nothing while somebody waits."""


class _CancelledError(Exception):
    """Nobody wants the windows any more."""


class EarlierWindows:
    """The windows of one partition, on their way into its machine.

    Parameters
    ----------
    read
        Reads them from an offset on.
    start
        Offset of the first.
    beat
        Is called while somebody waits, and may raise.
    """

    def __init__(
        self,
        machine: PartitionMachine,
        reader: PublishedReader,
        read: Read,
        start: int,
        *,
        beat: Beat,
        log: EventLog,
    ) -> None:
        self._machine = machine
        self._reader: PublishedReader | None = reader
        self._read = read
        self._next = start
        self._beat = beat
        self._log = log
        self._done = threading.Event()
        self._cancelled = threading.Event()
        self._failure: BaseException | None = None
        # What the broker said, and since when it has given nothing; None: it gives.
        self._trouble: tuple[SessionLostError, float] | None = None

    def ready(self) -> bool:
        """Return whether all have come; raise what kept them from coming."""
        if self._failure is not None:
            raise self._failure
        return self._done.is_set()

    def wait(self) -> None:
        """Return when all have come.

        Raises
        ------
        SessionLostError
            If the broker gives nothing for `PATIENCE_S`, or the partition is given up.
        """
        began = time.monotonic()
        while not self.ready():
            self._beat()
            trouble = self._trouble
            if trouble is not None and time.monotonic() - max(began, trouble[1]) > PATIENCE_S:
                raise trouble[0]
            self._done.wait(WAIT_S)

    def cancel(self) -> None:
        """Read no more: the partition is another's."""
        self._cancelled.set()
        self._failure = self._failure or SessionLostError("the partition was given up")

    def run(self) -> None:
        """Read them; from the thread that does it."""
        began, windows = time.monotonic(), 0
        # Not kept any longer than needed: it knows every 5-tuple by its bytes.
        reader, self._reader = self._reader, None
        if reader is None:
            return
        try:
            while not self._cancelled.is_set():
                try:
                    windows += self._take(reader)
                    break
                except SessionLostError as error:
                    # The broker is away. The work beside has the same trouble, and decides;
                    # unless it waits.
                    self._trouble = error, (self._trouble or (error, time.monotonic()))[1]
                    self._log.warning("earlier.waiting", reason=str(error))
                    self._cancelled.wait(RETRY_S)
        except _CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - raised where the windows are wanted
            self._failure = error
            return
        if not self._cancelled.is_set():
            self._done.set()
            self._log.info(
                "partition.long_term_ready",
                partition=self._machine.identity.partition,
                windows=windows,
                after_s=round(time.monotonic() - began, 2),
            )

    def _take(self, reader: PublishedReader) -> int:
        """Read from where it stopped; return how many messages."""
        count = 0
        for messages in self._read(self._next, self._check):
            self._trouble = None
            self._machine.add_earlier(reader.read([m.value() or b"" for m in messages]))
            self._next = int(messages[-1].offset() or 0) + 1
            count += len(messages)
        return count

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise _CancelledError


class Background:
    """The thread that reads."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="earlier")
        self._started: WeakSet[EarlierWindows] = WeakSet()

    def start(self, earlier: EarlierWindows) -> None:
        """Let it read these when those before have come."""
        self._started.add(earlier)
        self._executor.submit(earlier.run)

    def shut_down(self) -> None:
        """End the thread, whatever is still to be read."""
        for earlier in list(self._started):
            earlier.cancel()
        self._executor.shutdown(cancel_futures=True)
