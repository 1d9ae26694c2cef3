"""Whose process reads slowly: bytes wait for a rank again and again, as they never did.

A collector reads a rank's sockets every two seconds, at no particular moment of an iteration. Of a
healthy job bytes lie unread in about one reading of a hundred (eight ranks of PyTorch over gloo, a
thousand readings), for what arrives is read at once by those that wait for it. A process that reads
slowly has some whenever an operation crosses, and the operations take longer for it. Its peers show
it as well: they have written what there is no room for. Their collectors read at other moments, so
a reading of a rank counts as held up if bytes lie unread at it, or if a peer was seen since the
reading before to have more for it than it has room for.

A pause is no fault however long it is: who saves a checkpoint reads nothing, and all wait for it.
So a reading counts only where bytes have come since the one before, and only those sockets at which
some have, whatever lies there unread.

Two things may have held up r of a rank's last m readings and be no fault of it. One is chance, as
usual: of the rank's n readings before j were held up, and of N readings of all other ranks J. Ranks
of a job are alike, mostly: shares are taken to lie around that of the others as the beta
distribution of 1 and (N + 1) / (J + 1) has them, and after its own readings that of the rank as one
of j + 1 and n - j + (N + 1) / (J + 1). r or more of m then have the tail of a beta-binomial one. If
j or more of n were too many for a rank like the others, its own readings alone count, as if there
were no others. The other is what holds up all ranks now, as a network that is slow: r or more of m
come with the binomial tail of the share of the last readings of all others.

The greater of both chances, times how many m are tried, the ranks and n, must be less than
`FALSE_ALARMS`: these chances add up to that of a job while its history becomes e times as long (as
in `stragglers`). Readings of a job whose iterations take as long as the time between two of them
are not independent: so the rank must have become slower as well.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import comb, exp, lgamma, prod
from typing import Final

from localizer.collectives.sockets import SocketState
from localizer.collectives.stragglers import LEAST_SHARE
from localizer.collectives.usual_waits import FALSE_ALARMS

# How many readings in a row are tried.
TOGETHER: Final = (4, 6, 8, 12, 16, 24)
MOST: Final = TOGETHER[-1]
# So many of them are held up at least: two may be by one pause, before and after which bytes move.
LEAST_HELD_UP: Final = 4
# How often a rank that is still slow is told to be so no longer: it is seen in a part of its
# readings only.
STILL: Final = 1e-3
# A rank that had so many by a chance of less than this is not like the others.
UNLIKE: Final = 0.05
# As a history, a minute; a collector reads every two seconds.
LEAST_KNOWN: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowReader:
    """A rank for which bytes wait since lately.

    Attributes
    ----------
    held_up, readings
        In how many of how many readings.
    usual, others
        Share of its readings before in which some did, and of the last ones of all other ranks.
    pace
        How fast the rank launches now, as a share of before.
    lasts_us
        How long these readings took.
    """

    rank: int
    held_up: int
    readings: int
    usual: float
    others: float
    pace: float
    lasts_us: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """Whether bytes waited for the rank; launches and microseconds since the reading before."""

    held_up: bool
    launches: int
    took_us: int


@dataclass(slots=True)
class History:
    """The readings of a rank: the last one by one, those before in sum.

    Attributes
    ----------
    lately
        How many of the last were held up.
    full
        Whether a peer was seen to have more for it than it has room for, since its last reading.
    newest, at_us, attempt
        Number of its last launch at the last reading, when that was, and in which attempt.
    """

    recent: deque[_Reading] = field(default_factory=deque)
    lately: int = 0
    readings: int = 0
    held_up: int = 0
    launches: int = 0
    took_us: int = 0
    full: bool = False
    newest: int = -1
    at_us: int = 0
    attempt: int = 0

    def append(self, reading: _Reading) -> None:
        """Take the latest reading."""
        self.recent.append(reading)
        self.lately += reading.held_up

    def drop_first(self) -> _Reading:
        """Return the first of the last readings, and forget it."""
        first = self.recent.popleft()
        self.lately -= first.held_up
        return first

    def make_usual(self, keep: int) -> None:
        """Add up all readings but so many of the last."""
        while len(self.recent) > keep:
            first = self.drop_first()
            self.readings += 1
            self.held_up += first.held_up
            self.launches += first.launches
            self.took_us += first.took_us


@dataclass(slots=True)
class Counts:
    """How many readings of ranks there are, and how many of them were held up.

    Attributes
    ----------
    readings, held_up
        All.
    recent, lately
        The last of each rank.
    """

    readings: int = 0
    held_up: int = 0
    recent: int = 0
    lately: int = 0

    def add(self, held: History, times: int = 1) -> None:
        """Add those of a rank, or (-1) take them away."""
        self.readings += times * (held.readings + len(held.recent))
        self.held_up += times * (held.held_up + held.lately)
        self.recent += times * len(held.recent)
        self.lately += times * held.lately

    @property
    def missed(self) -> float:
        """How many are not held up for one that is, at least."""
        return (self.readings + 1) / (self.held_up + 1)

    @property
    def now(self) -> float:
        """Share of the last that is held up."""
        return self.lately / max(1, self.recent)


@dataclass(slots=True)
class _Shown:
    """Readings that show that a rank reads slowly, and those since the last one that does."""

    held_up: int = 0
    readings: int = 0
    clean: int = 0

    def is_over_after(self, *, held_up: bool, least: int) -> bool:
        """Take a further reading, and return whether the rank can hardly be slow any more.

        Parameters
        ----------
        least
            So many must have been without it in any case.
        """
        self.clean += 1
        if held_up:
            self.held_up, self.readings, self.clean = (
                self.held_up + 1, self.readings + self.clean, 0,
            )  # fmt: skip
        missed = self.readings - self.held_up + 1
        return self.clean >= least and chance_of_none(self.clean, self.held_up, missed) <= STILL


@dataclass(slots=True)
class SlowReaders:
    """The history of a job's ranks, and who reads slowly now.

    Attributes
    ----------
    found
        None: nobody does.
    held, counts
        By rank, and of all together.
    """

    found: SlowReader | None = None
    held: dict[int, History] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    _shown: _Shown = field(default_factory=_Shown)

    @property
    def weight(self) -> int:
        """How many readings are held."""
        return sum(len(held.recent) for held in self.held.values())

    def forget(self) -> None:
        """Forget what is known of all ranks."""
        self.held.clear()
        self.counts = Counts()
        self.found = None

    def forget_rank(self, rank: int) -> None:
        """Forget what is known of a rank."""
        held = self.held.pop(rank, None)
        if held is not None:
            self.counts.add(held, -1)
        if self.found is not None and self.found.rank == rank:
            self.found = None

    def note_full(self, ranks: Iterable[int]) -> None:
        """Note that some ranks have no room for what a peer has for them."""
        for rank in ranks:
            if (held := self.held.get(rank)) is not None:
                held.full = True

    def observe(self, state: SocketState, attempt: int, newest: int) -> None:
        """Take the latest reading of a rank's sockets.

        Parameters
        ----------
        attempt, newest
            When its process began, and the record id of the last operation that it launched.
        """
        batch, rank = state.batch, state.batch.rank
        held = self.held.get(rank)
        if held is None or held.attempt != attempt:
            # What was usual before the first iteration of a new process is not usual in that.
            self.forget_rank(rank)
            self.held[rank] = History(attempt=attempt, newest=newest, at_us=batch.taken_at)
            return
        before, since, full = held.newest, held.at_us, held.full
        held.newest, held.at_us, held.full = newest, batch.taken_at, False
        # A pause is in none of the readings, nor in how fast the rank is.
        if batch.taken_at <= since or not state.moved:
            return
        held_up = state.unread_moved or full
        self.counts.add(held, -1)
        held.append(_Reading(held_up, newest - before, batch.taken_at - since))
        if self.found is not None and self.found.rank == rank:
            self._follow(held, held_up=held_up)
        else:
            if held_up and self.found is None:
                self.found = found = slow_reader(rank, held, self.counts, len(self.held))
                self._shown = _Shown() if found is None else _Shown(found.held_up, found.readings)
            held.make_usual(MOST)
        self.counts.add(held)

    def _follow(self, held: History, *, held_up: bool) -> None:
        """See whether a rank that reads slowly does so no longer.

        What told that it is over is usual again; what was in between is not.
        """
        found = self.found
        while len(held.recent) > MOST:
            held.drop_first()
        if found is None or self._shown.is_over_after(held_up=held_up, least=found.readings):
            while len(held.recent) > self._shown.clean:
                held.drop_first()
            self.found = None


def slow_reader(rank: int, held: History, others: Counts, ranks: int) -> SlowReader | None:
    """Return whether bytes wait for a rank in its last readings as chance does not have it.

    Parameters
    ----------
    others
        Readings of all other ranks.
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
        held_up = sum(reading.held_up for reading in last)
        launches = held.launches + sum(reading.launches for reading in before)
        took_us = held.took_us + sum(reading.took_us for reading in before)
        if held_up < LEAST_HELD_UP or not launches:
            continue
        usual = held.held_up + sum(reading.held_up for reading in before)
        alike = chance_of_share(usual, known, others.missed) >= UNLIKE
        missed = known - usual + (others.missed if alike else 1.0)
        by_chance = max(
            chance_after(held_up, count, usual + 1, missed), chance(held_up, count, others.now)
        )
        if by_chance > FALSE_ALARMS / (len(TOGETHER) * ranks * known):
            continue
        lasts_us = sum(reading.took_us for reading in last)
        pace = sum(reading.launches for reading in last) * took_us / (launches * lasts_us)
        if pace <= 1.0 - LEAST_SHARE:
            return SlowReader(
                rank=rank, held_up=held_up, readings=count, usual=usual / known,
                others=others.now, pace=pace, lasts_us=lasts_us,
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


def chance_after(least: int, count: int, hits: float, missed: float) -> float:
    """Return the same where how often each is hit is known from others only, so many of each sort.

    The tail of the beta-binomial distribution: each that is hit makes the next one likelier.

    >>> round(chance_after(2, 2, 1, 1), 6)  # 1 / 2 · 2 / 3
    0.333333
    """
    whole = prod(hits + missed + n for n in range(count))
    return sum(
        comb(count, k)
        * prod(hits + n for n in range(k))
        * prod(missed + n for n in range(count - k))
        / whole
        for k in range(least, count + 1)
    )


def chance_of_share(least: int, count: int, missed: float) -> float:
    """Return `chance_after` one that was hit, where most of a long count are not.

    >>> round(chance_of_share(2, 9, 40.0), 6)  # 9 / 49 · 8 / 48
    0.030612
    """
    if least > count:
        return 0.0
    # The product of (count - n) / (count - n + missed) for each n below least.
    hit = lgamma(count + 1) - lgamma(count - least + 1)
    every = lgamma(count + missed + 1) - lgamma(count - least + missed + 1)
    return exp(hit - every)


def chance_of_none(count: int, hits: int, missed: int) -> float:
    """Return how often none of a count is hit, after so many that were and were missed.

    >>> round(chance_of_none(2, 1, 1), 6)  # 1 / 2 · 2 / 3
    0.333333
    """
    return prod((missed + n) / (hits + missed + n) for n in range(count))
