"""Delivers to one target, in a thread of its own: a target that is dead delays no other."""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from ops.bridge.http import Answer, Outcome
from ops.bridge.paging.page import Notification, Position
from schemas.metrics.family import Histogram
from schemas.process.eventlog import EventLog
from schemas.units import US_PER_S

S = TypeVar("S")

# Tried again at once, then after so long, then half as long again each time, up to the greatest.
# Doubling would cost a target that fails half of the time as much again for each length: most of a
# second a post.
FIRST_WAIT_S: Final = 0.05
GROWTH: Final = 1.5
MAX_WAIT_S: Final = 30.0
# What was taken since the last commit is sent again after a crash; receivers know it by its id.
COMMIT_S: Final = 0.5
COMMIT_AGAIN_S: Final = 10.0
# Pages that begin together go to Alertmanager together.
TOGETHER_S: Final = 0.1
DELAY_BOUNDS_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
STOP_S: Final = 5.0
# How often one that may not deliver asks whether it may.
CLOSED_S: Final = 0.1


def wait_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row.

    >>> [round(wait_s(n), 2) for n in (1, 2, 3, 1000)]
    [0.0, 0.05, 0.08, 30.0]
    """
    if failures == 1:
        return 0.0
    return min(MAX_WAIT_S, FIRST_WAIT_S * GROWTH ** min(failures - 2, 32))


def _always() -> bool:
    return True


class Delivery(ABC):
    """A target and its thread.

    Parameters
    ----------
    may
        Whether this process is the one that delivers; asked before each post.

    Attributes
    ----------
    outcomes
        Posts by what became of them.
    delays
        From the time at which the broker took a record until its target took what follows.
    """

    def __init__(self, name: str, log: EventLog, may: Callable[[], bool]) -> None:
        self.name = name
        self._may = may
        self.outcomes: Counter[str] = Counter({o.value: 0 for o in Outcome})
        self.delays = Histogram(DELAY_BOUNDS_S)
        self._log = log
        self._failures = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"deliver-{name}", daemon=True)

    @property
    @abstractmethod
    def pending(self) -> int:
        """How much waits."""

    @property
    @abstractmethod
    def oldest_us(self) -> int | None:
        """Since when the oldest of it waits; None: nothing does."""

    @abstractmethod
    def _step(self) -> None:
        """Wait for something to deliver, and try to."""

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def stop(self) -> None:
        """Deliver no more; what waits is delivered after the next start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stopping:
            if self._may():
                self._step()
            else:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, CLOSED_S)

    def _note(self, answer: Answer) -> bool:
        """Count an answer; after a failure wait. Return whether the target is done with it."""
        self.outcomes[answer.outcome.value] += 1
        if answer.outcome is not Outcome.FAILED:
            if answer.outcome is Outcome.REFUSED:
                self._log.error("bridge.refused", target=self.name, reason=answer.reason)
            self._failures = 0
            return True
        self._failures += 1
        # A target that is down fills no log.
        if self._failures & (self._failures - 1) == 0:
            self._log.warning(
                "bridge.failed", target=self.name, reason=answer.reason, failures=self._failures
            )
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, wait_s(self._failures))
        return False


class StreamDelivery(Delivery):
    """Delivers notifications one by one, in order, and remembers the last that was taken.

    Parameters
    ----------
    post
        Sends one; returns None if it is not for this target.
    commit
        Writes the position; returns why that failed, None if it did not.
    """

    def __init__(
        self,
        name: str,
        log: EventLog,
        post: Callable[[Notification], Answer | None],
        commit: Callable[[Position], str | None],
        *,
        may: Callable[[], bool] = _always,
    ) -> None:
        super().__init__(name, log, may)
        self._post = post
        self._commit = commit
        self._queue: deque[Notification] = deque()
        self._taken: Position | None = None
        self._committed: Position | None = None
        self._committed_s = 0.0

    @property
    def pending(self) -> int:
        """Notifications that were not delivered."""
        return len(self._queue)

    @property
    def oldest_us(self) -> int | None:
        """When the broker took the oldest of them."""
        try:
            return self._queue[0].position.at_us
        except IndexError:
            return None

    def put(self, notifications: Sequence[Notification]) -> None:
        """Add what is to be delivered."""
        with self._changed:
            self._queue.extend(notifications)
            self._changed.notify_all()

    def begin(self, position: Position) -> None:
        """Commit where the target begins; if that fails the thread tries again."""
        self._taken = position
        self._commit_taken()

    def stop(self) -> None:
        """Deliver no more, and commit."""
        super().stop()
        self._commit_taken()

    def _step(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or bool(self._queue), COMMIT_S)
        if self._queue and not self._stopping and self._may():
            self._deliver(self._queue[0])
        since_s = time.monotonic() - self._committed_s
        if since_s > COMMIT_S or (not self._queue and since_s >= 0):
            self._commit_taken()

    def _deliver(self, notification: Notification) -> None:
        answer = self._post(notification)
        if answer is not None and not self._note(answer):
            return
        if answer is not None:
            delay_s = time.time() - notification.position.at_us / US_PER_S
            self.delays.observe(max(0.0, delay_s))
        self._queue.popleft()
        self._taken = notification.position

    def _commit_taken(self) -> None:
        taken = self._taken
        if taken is None or taken == self._committed or not self._may():
            return
        failure = self._commit(taken)
        self._committed_s = time.monotonic()
        if failure is None:
            self._committed = taken
        else:
            # Each try holds the target up while the broker is away.
            self._committed_s += COMMIT_AGAIN_S
            self._log.warning("bridge.commit_failed", target=self.name, reason=failure)


class StateDelivery(Delivery, Generic[S]):
    """Delivers a state, such as all pages as they are, when one changes and every so often.

    Parameters
    ----------
    post
        Sends the state.
    """

    def __init__(
        self,
        name: str,
        log: EventLog,
        post: Callable[[S], Answer],
        resend_s: float,
        *,
        may: Callable[[], bool] = _always,
    ) -> None:
        super().__init__(name, log, may)
        self._post = post
        self._resend_s = resend_s
        self._state: S | None = None
        self._since_us: int | None = None
        self._next_s = 0.0

    @property
    def pending(self) -> int:
        """1 while the latest state was not taken."""
        return int(self._since_us is not None)

    @property
    def oldest_us(self) -> int | None:
        """Since when something changed that was not taken."""
        return self._since_us

    def put(self, state: S, at_us: int, *, changed: bool) -> None:
        """Set the state as it is now.

        Parameters
        ----------
        changed
            Whether to tell at once.
        """
        with self._changed:
            self._state = state
            if changed:
                self._since_us = self._since_us or at_us
                self._changed.notify_all()

    def _step(self) -> None:
        with self._changed:
            rest_s = max(0.0, self._next_s - time.monotonic())
            self._changed.wait_for(lambda: self._stopping or self._since_us is not None, rest_s)
        if self._stopping:
            return
        time.sleep(TOGETHER_S)
        if not self._may():
            return
        with self._changed:
            state, since_us, self._since_us = self._state, self._since_us, None
        if state and not self._note(self._post(state)):
            with self._changed:
                self._since_us = since_us or self._since_us or time.time_ns() // 1_000
            return
        if since_us is not None:
            self.delays.observe(max(0.0, time.time() - since_us / US_PER_S))
        self._next_s = time.monotonic() + self._resend_s
