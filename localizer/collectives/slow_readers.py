"""Whose process reads slowly: bytes lie unread at a rank again and again, as they never did.

A collector reads a rank's sockets every two seconds, at no particular moment of an iteration. Of a
healthy job bytes lie unread in about one reading of a hundred (eight ranks of PyTorch over gloo, a
thousand readings), for what arrives is read at once by those that wait for it. A process that reads
slowly has some whenever an operation crosses, and the operations take longer for it.

A pause is no fault however long it is: who saves a checkpoint reads nothing, and all wait for it.
So a reading counts only where bytes have come since the one before, and only those sockets at which
some have, whatever lies there unread.

Where j of n readings had unread bytes before, chance has them with a frequency of (j + 1) / (n + 1)
and r or more of m with that of the binomial tail. Divided by how many m are tried, by the ranks and
by n, these chances add up to `FALSE_ALARMS` of a job while its history becomes e times as long (as
in `stragglers`). Readings of a job whose iterations take as long as the time between two of them
are not independent: so the rank must have become slower as well.
"""

from collections import deque
from dataclasses import dataclass, field
from math import comb
from typing import Final

from localizer.collectives.sockets import SocketState
from localizer.collectives.stragglers import LEAST_SHARE
from localizer.collectives.usual_waits import FALSE_ALARMS

# How many readings in a row are tried; two may fall into one pause.
TOGETHER: Final = (3, 4, 6, 8, 12, 16, 24)
MOST: Final = TOGETHER[-1]
# As a history, a minute; a collector reads every two seconds.
LEAST_KNOWN: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowReader:
    """A rank at which bytes lie unread since lately.

    Attributes
    ----------
    unread, readings
        In how many of how many readings.
    usual
        Share of the readings before that had some.
    pace
        How fast the rank launches now, as a share of before.
    lasts_us
        How long these readings took.
    """

    rank: int
    unread: int
    readings: int
    usual: float
    pace: float
    lasts_us: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """Whether bytes lay unread; launches and microseconds since the reading before."""

    unread: bool
    launches: int
    took_us: int


@dataclass(slots=True)
class _History:
    """The readings of a rank: the last one by one, those before in sum."""

    recent: deque[_Reading] = field(default_factory=deque)
    readings: int = 0
    unread: int = 0
    launches: int = 0
    took_us: int = 0
    # Number of its last launch at the last reading, when that was, and in which attempt.
    newest: int = -1
    at_us: int = 0
    attempt: int = 0

    def make_usual(self, keep: int) -> None:
        """Add up all readings but so many of the last."""
        while len(self.recent) > keep:
            first = self.recent.popleft()
            self.readings += 1
            self.unread += first.unread
            self.launches += first.launches
            self.took_us += first.took_us


@dataclass(slots=True)
class SlowReaders:
    """The history of a job's ranks, and who reads slowly now.

    Attributes
    ----------
    found
        None: nobody does.
    """

    found: SlowReader | None = None
    _held: dict[int, _History] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """How many readings are held."""
        return sum(len(held.recent) for held in self._held.values())

    def forget(self) -> None:
        """Forget what is known of all ranks."""
        self._held.clear()
        self.found = None

    def forget_rank(self, rank: int) -> None:
        """Forget what is known of a rank."""
        self._held.pop(rank, None)
        if self.found is not None and self.found.rank == rank:
            self.found = None

    def observe(self, state: SocketState, attempt: int, newest: int) -> None:
        """Take the latest reading of a rank's sockets.

        Parameters
        ----------
        attempt, newest
            When its process began, and the record id of the last operation that it launched.
        """
        batch, rank = state.batch, state.batch.rank
        held = self._held.get(rank)
        if held is None or held.attempt != attempt:
            # What was usual before the first iteration of a new process is not usual in that.
            self.forget_rank(rank)
            self._held[rank] = _History(attempt=attempt, newest=newest, at_us=batch.taken_at)
            return
        before, since = held.newest, held.at_us
        held.newest, held.at_us = newest, batch.taken_at
        # A pause is in none of the readings, nor in how fast the rank is.
        if batch.taken_at <= since or not state.moved:
            return
        held.recent.append(_Reading(state.unread_moved, newest - before, batch.taken_at - since))
        if self.found is not None and self.found.rank == rank:
            self._end(held)
            return
        if state.unread_moved and self.found is None:
            self.found = slow_reader(rank, held, len(self._held))
        held.make_usual(MOST)

    def _end(self, held: _History) -> None:
        """See whether as many readings as told that it reads slowly are all without unread bytes.

        What told that it is over is usual again; what was in between is not.
        """
        found = self.found
        if found is None:
            return
        while len(held.recent) > MOST:
            held.recent.popleft()
        last = list(held.recent)[-found.readings :]
        if len(last) == found.readings and not any(reading.unread for reading in last):
            held.recent = deque(last)
            self.found = None


def slow_reader(rank: int, held: _History, ranks: int) -> SlowReader | None:
    """Return whether bytes lie unread at a rank in its last readings as chance does not have it.

    Parameters
    ----------
    ranks
        How many there are.
    """
    every = list(held.recent)
    for count in TOGETHER:
        if len(every) < count:
            break
        last, before = every[-count:], every[:-count]
        known = held.readings + len(before)
        if known < LEAST_KNOWN:
            break
        usual = held.unread + sum(reading.unread for reading in before)
        unread = sum(reading.unread for reading in last)
        launches = held.launches + sum(reading.launches for reading in before)
        took_us = held.took_us + sum(reading.took_us for reading in before)
        if not launches:
            break
        allowed = FALSE_ALARMS / (len(TOGETHER) * ranks * known)
        if chance(unread, count, (usual + 1) / (known + 1)) > allowed:
            continue
        lasts_us = sum(reading.took_us for reading in last)
        pace = sum(reading.launches for reading in last) * took_us / (launches * lasts_us)
        if pace <= 1.0 - LEAST_SHARE:
            return SlowReader(
                rank=rank, unread=unread, readings=count, usual=usual / known, pace=pace,
                lasts_us=lasts_us,
            )  # fmt: skip
    return None


def chance(least: int, count: int, frequency: float) -> float:
    """Return how often so many or more of a count are hit, each with a frequency.

    >>> chance(2, 2, 0.1) == 0.1 * 0.1
    True
    """
    return sum(
        comb(count, hits) * frequency**hits * (1.0 - frequency) ** (count - hits)
        for hits in range(least, count + 1)
    )
