"""Notices that the whole process stood still for so long that its session may be over.

A process that is stopped (SIGSTOP, a paused machine, a host that swaps) sends no
heartbeats, so the broker gives its partitions to another. When it wakes it does
not know that yet, and would write a few more outputs beside its successor. A
thread that beats ten times a second sees the gap.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 0.1
# Of the session: a shorter gap cannot have ended it. Heartbeats go out every
# quarter, so the broker waits at least three quarters from where the gap began.
LIMIT_SHARE: Final = 0.5


class Pulse:
    """Whether the process has been running without a long gap since it was made.

    Parameters
    ----------
    each
        What the thread does at every beat.
    """

    def __init__(self, session_timeout_s: float, each: Callable[[], None]) -> None:
        self._each = each
        self._limit_s = LIMIT_SHARE * session_timeout_s
        self._last = time.monotonic()
        self._gap = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()

    def steady(self) -> bool:
        """Return False for good once there was a gap."""
        # Whoever runs first after the gap sees it: this call, or the thread.
        if time.monotonic() - self._last > self._limit_s:
            self._gap = True
        return not self._gap

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            if self.steady():
                self._last = time.monotonic()
            self._each()
