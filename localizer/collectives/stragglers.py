"""Whether one rank holds a job up since lately: whom the others waited for, launch by launch.

A rank's operations are cut into blocks of as many; what counts of a block is how long the rank
alone worked in it. A pause, however long, is before one launch, and so in one block: a rank that is
slow is so in each of the last blocks.

Of n blocks of its history that are alike, j are no shorter than the least of the last k. Chance
has one so long with a frequency of (j + 1) / (n + 1), or where it is f > 1 times the longest of
all, with an exponential tail, once in n to the power of f (as in `usual_waits`), and k of them with
that to the power of k. Pauses of a rank are among the n, so that many blocks must tell where it
makes many. Each block that comes is tested in several sizes and numbers of blocks, for each rank;
divided by their count and by n these chances add up to `FALSE_ALARMS` of a job while its history
becomes e times as long.

Blocks that follow each other are not independent: a host that is busy is so for a while. Its rank
does hold the others up then, and is told if that lasts and costs much of the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Final

import numpy as np

from localizer.collectives.pace import STRETCH_NS
from localizer.collectives.sole_work import Worked
from localizer.collectives.usual_waits import FALSE_ALARMS
from schemas.columns.arrays import Int64s
from schemas.units import US_NS

# Operations of a block. Slow ranks are slow once in each iteration, whose length nobody tells: it
# is at least as many operations as there are kinds of them, and a block of twice as many holds one.
BLOCKS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# How many blocks in a row are tested; two pauses may follow each other.
TOGETHER: Final = (3, 4, 5, 6, 8, 12)
# The last blocks take at least this: nobody is paged for moments.
LASTS_US: Final = STRETCH_NS // US_NS
# As a history, a minute.
KNOWN_US: Final = 12 * LASTS_US
# What takes less of a job's time than this is not worth a search (as for `slow_ranks`).
LEAST_SHARE: Final = 0.1
# Operations that are kept of a rank: an hour of a job with one a second.
MOST_KNOWN: Final = 4_096
# Rows that are made room for at first.
LEAST_ROOM: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that holds the others up since lately.

    Attributes
    ----------
    share, usual_share
        Part of the time in which it alone works, now and before.
    blocks, operations
        How many blocks in a row tell, and of how many operations each is.
    least_us
        In each of them it worked alone for so long, or longer.
    lasts_us
        How long these blocks took.
    """

    rank: int
    share: float
    usual_share: float
    blocks: int
    operations: int
    least_us: int
    lasts_us: int


class Launches:
    """The last launches of a rank: how long each took, and how much of that it alone worked (µs).

    Rows of one array, so that all of them are at hand without a copy; its first half is given up
    when it is full.
    """

    __slots__ = ("_begin", "_end", "_rows")

    def __init__(self) -> None:
        self._rows = np.zeros((LEAST_ROOM, 2), np.int64)
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def rows(self) -> Int64s:
        """Shape (n, 2), the oldest first; valid until the next change."""
        return self._rows[self._begin : self._end]

    def extend(self, rows: Int64s) -> None:
        """Add launches, shape (n, 2); the oldest beyond `MOST_KNOWN` go."""
        rows = rows[-MOST_KNOWN:]
        if self._end + len(rows) > len(self._rows):
            kept = self.rows[max(0, len(self) + len(rows) - MOST_KNOWN) :]
            room = min(2 * MOST_KNOWN, max(LEAST_ROOM, 2 * (len(kept) + len(rows))))
            held = np.zeros((room, 2), np.int64)
            held[: len(kept)] = kept
            self._rows, self._begin, self._end = held, 0, len(kept)
        self._rows[self._end : self._end + len(rows)] = rows
        self._end += len(rows)
        self._begin = max(self._begin, self._end - MOST_KNOWN)

    def drop_last(self, count: int) -> None:
        """Forget so many of the last."""
        self._end = max(self._begin, self._end - count)


@dataclass(slots=True)
class Stragglers:
    """The history of a job's ranks, and who holds the others up now.

    Attributes
    ----------
    found
        None: nobody does.
    """

    found: Straggler | None = None
    _known: dict[int, Launches] = field(default_factory=dict)
    # By rank: those since it was found, which are not usual.
    _since: dict[int, Launches] = field(default_factory=dict)
    _taken: dict[int, tuple[int, int]] = field(default_factory=dict)

    def taken(self, rank: int, attempt: int) -> int:
        """Return the record id up to which an attempt of a rank was taken; -1: nothing of it."""
        known, last = self._taken.get(rank, (attempt, -1))
        return last if known == attempt else -1

    @property
    def weight(self) -> int:
        """How many launches are held."""
        return sum(len(held) for part in (self._known, self._since) for held in part.values())

    def forget(self) -> None:
        """Forget what is known of all ranks."""
        self.begin_anew()
        self._known.clear()

    def begin_anew(self) -> None:
        """Note that a process was started anew: that it is as slow has to be seen anew."""
        self.found = None
        self._since.clear()

    def observe(
        self, worked: Mapping[int, Sequence[Worked]], attempts: Mapping[int, int], kinds: int
    ) -> None:
        """Take what ranks did since, and decide anew.

        Parameters
        ----------
        worked
            By rank, what `sole_work` returns; what was taken before is left out.
        attempts
            When the process of each rank began.
        kinds
            How many kinds of operations a rank has.
        """
        if self.found is not None and self.found.rank not in attempts:
            self.begin_anew()
        keep = self._known if self.found is None else self._since
        for rank, done in worked.items():
            last = self.taken(rank, attempts[rank])
            new = [w for w in done if w.record_id > last]
            if new:
                self._taken[rank] = attempts[rank], new[-1].record_id
                rows = np.array([(w.lasted, w.sole) for w in new], np.int64)
                keep.setdefault(rank, Launches()).extend(rows)
        if self.found is None:
            self.found = self._look(kinds)
        elif self._is_over(self.found):
            # What told that it is over is usual again.
            last = self.found.blocks * self.found.operations
            for rank, held in self._since.items():
                self._known.setdefault(rank, Launches()).extend(held.rows[-last:])
            self.found = None
            self._since.clear()

    def _look(self, kinds: int) -> Straggler | None:
        candidates = [
            found
            for rank, held in self._known.items()
            if (found := straggler_of(rank, held.rows, len(self._known), kinds))
        ]
        best = max(candidates, key=lambda s: (s.share, -s.rank), default=None)
        if best is not None:
            # What told is not usual.
            for held in self._known.values():
                held.drop_last(best.blocks * best.operations)
        return best

    def _is_over(self, found: Straggler) -> bool:
        """Return whether the rank no longer holds the others up, for as many blocks as told it."""
        held = self._since.get(found.rank)
        recent = (Launches() if held is None else held).rows[-found.blocks * found.operations :]
        if len(recent) < found.blocks * found.operations:
            return False
        sole = recent[:, 1].reshape(found.blocks, found.operations).sum(1)
        return bool((sole < found.least_us).all())


def straggler_of(rank: int, launches: Int64s, ranks: int, kinds: int) -> Straggler | None:
    """Return whether a rank holds the others up in its last operations, and never did before.

    Parameters
    ----------
    launches
        Shape (n, 2), microseconds: how long each launch took since the one before, and how much of
        that the rank worked alone.
    ranks
        How many there are.
    kinds
        Of operations: blocks have at least as many.
    """
    for size in BLOCKS:
        if size < kinds or len(launches) < 2 * TOGETHER[0] * size:
            continue
        count = len(launches) // size
        lasted, sole = launches[len(launches) - count * size :].reshape(count, size, 2).sum(1).T
        for together in TOGETHER:
            found = _tested(rank, (lasted, sole), size, together, ranks)
            if found is not None:
                return found
    return None


def _tested(
    rank: int, blocks: tuple[Int64s, Int64s], size: int, together: int, ranks: int
) -> Straggler | None:
    lasted, sole = blocks
    known = len(sole) - together
    if known < TOGETHER[0]:
        return None
    takes, before = int(lasted[-together:].sum()), int(lasted[:known].sum())
    share = float(sole[-together:].sum() / max(1, takes))
    if takes < LASTS_US or before < KNOWN_US or share < LEAST_SHARE:
        return None
    least = int(sole[-together:].min())
    longest = int(sole[:known].max())
    allowed = log(FALSE_ALARMS / (len(BLOCKS) * len(TOGETHER) * ranks * known))
    if together * _log_chance(least, longest, sole[:known]) > allowed:
        return None
    return Straggler(
        rank=rank, share=share, usual_share=float(sole[:known].sum() / before), blocks=together,
        operations=size, least_us=least, lasts_us=takes,
    )  # fmt: skip


def _log_chance(least: int, longest: int, known: Int64s) -> float:
    """Return the logarithm of how often chance has a block at least so long."""
    count = len(known)
    if least <= longest:
        return log((np.count_nonzero(known >= least) + 1) / (count + 1))
    return -log(count) * least / max(1, longest)
