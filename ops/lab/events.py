"""The fabric's only loop: sockets and timers on one thread."""

import heapq
import select
import selectors
import time
from collections.abc import Callable
from typing import Final, Protocol

# epoll waits whole milliseconds; select() waits microseconds, but takes only
# descriptors below FD_SETSIZE.
EPOLL_STEP_NS: Final = 1_000_000
MAX_SELECT_FD: Final = 1_023
IDLE_WAIT_NS: Final = 1_000_000_000

Callback = Callable[[], None]


class HasFileno(Protocol):
    """A socket, as selectors take it."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


class EventLoop:
    """Calls back when a socket is readable or a time has come; never blocks on one of them."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._selector = selectors.DefaultSelector()
        self._coarse = hasattr(select, "epoll") and isinstance(
            self._selector, selectors.EpollSelector
        )
        self._fine = selectors.SelectSelector()
        self._timers: list[tuple[int, int, Callback]] = []
        self._sequence = 0

    def now_ns(self) -> int:
        """Return the loop's monotonic time."""
        return self._clock_ns()

    def add_reader(self, socket: HasFileno, callback: Callback) -> None:
        """Call back whenever the socket is readable."""
        self._selector.register(socket, selectors.EVENT_READ, callback)
        if self._coarse and socket.fileno() <= MAX_SELECT_FD:
            self._fine.register(socket, selectors.EVENT_READ, callback)

    def remove_reader(self, socket: HasFileno) -> None:
        """Forget the socket; to be called before it is closed."""
        self._selector.unregister(socket)
        if self._coarse and socket.fileno() <= MAX_SELECT_FD:
            self._fine.unregister(socket)

    def call_at(self, due_ns: int, callback: Callback) -> None:
        """Call back once when the monotonic time is `due_ns`; in order of time, then of asking."""
        self._sequence += 1
        heapq.heappush(self._timers, (due_ns, self._sequence, callback))

    def call_later(self, delay_ns: int, callback: Callback) -> None:
        """Call back once after `delay_ns`."""
        self.call_at(self._clock_ns() + delay_ns, callback)

    def run_once(self, max_wait_ns: int = IDLE_WAIT_NS) -> None:
        """Run what is due; wait for the next timer or packet at most `max_wait_ns`."""
        wait_ns = max_wait_ns
        if self._timers:
            wait_ns = min(wait_ns, max(0, self._timers[0][0] - self._clock_ns()))
        for key, _ in self._ready(wait_ns):
            key.data()
        now_ns = self._clock_ns()
        while self._timers and self._timers[0][0] <= now_ns:
            heapq.heappop(self._timers)[2]()

    def _ready(self, wait_ns: int) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._coarse or wait_ns == 0:
            return self._selector.select(wait_ns / 1e9)
        if wait_ns >= EPOLL_STEP_NS:
            # Whole milliseconds, rounded down so that a delayed packet is not late.
            # selectors rounds up, hence the half, which no rounding error can reach.
            return self._selector.select((wait_ns // EPOLL_STEP_NS - 0.5) / 1e3)
        return self._fine.select(wait_ns / 1e9)

    def close(self) -> None:
        """Release the selectors; the sockets stay the caller's."""
        self._timers.clear()
        self._selector.close()
        self._fine.close()
