"""How fast a job goes on, against its own history: one that is slow and does not stop.

The pace is how many operations the middle rank launches a second, in stretches of five seconds by
its own clock. A job is slow when three stretches together are slower than all before. Of n + 3
stretches that are alike the last three are the slowest once in (n + 3 choose 3): once in 455 of
twelve, once in 5,456 of thirty. A busy machine is slow for longer than that, so this alone is no
verdict: somebody must be seen to hold the others up.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from localizer.collectives.rank_state import RankState
from schemas.units import SECOND_NS

STRETCH_NS: Final = 5 * SECOND_NS
TOGETHER: Final = 3
# A minute of history, and half an hour at most.
LEAST_KNOWN: Final = 12
MOST_KNOWN: Final = 360
SECOND_US: Final = 1_000_000


@dataclass(slots=True)
class Pace:
    """The pace of a job.

    Attributes
    ----------
    known
        Operations a second in the stretches that were as always.
    low
        Those of the stretches since that were slower than all of them.
    """

    known: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_KNOWN))
    low: list[float] = field(default_factory=list)
    _next_ns: int = 0
    # By rank: attempt, newest operation, and up to when that is known (µs).
    _before: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def slow(self) -> bool:
        """Whether the job is slower than it ever was, and has been for a while."""
        return len(self.low) >= TOGETHER

    def observe(self, ranks: Mapping[int, RankState], now_ns: int) -> None:
        """Take the pace of a stretch, if one is over."""
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + STRETCH_NS
        before, self._before = self._before, {
            rank: (state.attempt, state.operations.newest, state.batch.recorded_at)
            for rank, state in ranks.items()
            if state.batch.recorded_at is not None and not state.ended
        }  # fmt: skip
        paces = []
        for rank, (attempt, newest, at) in self._before.items():
            was = before.get(rank)
            if was is not None and was[0] == attempt and at > was[2]:
                paces.append((newest - was[1]) * SECOND_US / (at - was[2]))
        if 2 * len(paces) < len(ranks) or not paces:
            return
        pace = median(paces)
        if pace <= 0:
            # It pauses, or hangs: that is for others to say.
            return
        if len(self.known) >= LEAST_KNOWN and pace < min(self.known):
            self.low.append(pace)
            del self.low[:-MOST_KNOWN]
            return
        if not self.slow:
            self.known.extend(self.low)
        self.low.clear()
        self.known.append(pace)

    def share(self) -> float:
        """Return how fast the job is now, as a share of its usual pace."""
        return median(self.low) / median(self.known) if self.low and self.known else 1.0
