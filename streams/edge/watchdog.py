"""Ends a process whose consumer stands still, so that its supervisor starts a new one.

Consumers have been seen to stall for good after trouble at the broker or a
rebalance, while the process looks alive. The watchdog has a thread and a
connection of its own, so that whatever hangs does not hang it too: when there
are rounds to take and none was taken for a while, or the thread that consumes gives
no sign of life, it logs and exits.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from schemas.process.eventlog import EventLog

# EX_SOFTWARE of sysexits.h.
STALLED_EXIT_CODE: Final = 70
CHECKS_PER_LIMIT: Final = 4
TIMEOUT_S: Final = 5.0

Held = Callable[[], dict[int, int]]


def lag(admin: AdminClient, topic: str, held: dict[int, int]) -> int:
    """Return how many messages wait beyond the offsets held, by partition.

    It asks the broker even where nothing is held, to know whether it answers.

    Raises
    ------
    KafkaException
        If the broker does not answer.
    """
    asked = admin.list_offsets(
        {
            TopicPartition(topic, p): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for p in held or (0,)
        },
        request_timeout=TIMEOUT_S,
    )
    ends = {place.partition: future.result().offset for place, future in asked.items()}
    return sum(max(0, int(ends[p]) - offset) for p, offset in held.items())


class Watchdog:
    """Watches progress from a thread.

    Parameters
    ----------
    held
        Gives the partitions held and the next offset of each.
    moved_at
        Gives the monotonic time of the last progress.
    beat_at
        Gives the monotonic time of the consuming thread's last sign of life.
    limit_s
        Lag without progress for this long is a stall, no sign of life as well.
    exit_process
        Ends the process.
    """

    def __init__(
        self,
        admin: AdminClient,
        topic: str,
        held: Held,
        moved_at: Callable[[], float],
        beat_at: Callable[[], float],
        *,
        limit_s: float,
        log: EventLog,
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._held = held
        self._moved_at = moved_at
        self._beat_at = beat_at
        self._limit_s = limit_s
        self._log = log
        self._exit = exit_process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        # Since when there has been lag; the limit counts from here at the earliest.
        self._lagging_since: float | None = None
        # Since when the broker has answered; a client may well wait for one that does not.
        self._answers_since: float | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stop.set()

    def check(self, now: float) -> bool:
        """Return whether the worker stands still; `now` is monotonic."""
        try:
            behind = lag(self._admin, self._topic, self._held())
        except KafkaException:
            # The broker is away: nobody can make progress, and that is no stall.
            self._lagging_since = self._answers_since = None
            return False
        if self._answers_since is None:
            self._answers_since = now
        if behind == 0:
            self._lagging_since = None
        elif self._lagging_since is None:
            self._lagging_since = now
        silent_s = now - max(self._answers_since, self._beat_at())
        still_s = (
            0.0 if self._lagging_since is None else now - max(self._lagging_since, self._moved_at())
        )
        if max(silent_s, still_s) < self._limit_s:
            return False
        self._log.error(
            "worker.stalled",
            behind=behind,
            seconds=round(still_s, 1),
            consumer_silent_s=round(silent_s, 1),
        )
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._limit_s / CHECKS_PER_LIMIT):
            if self.check(time.monotonic()):
                self._exit(STALLED_EXIT_CODE)
