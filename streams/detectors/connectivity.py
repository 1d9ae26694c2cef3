"""Lost connectivity: consecutive losses of a 5-tuple, in the order of sending.

Three losses in a row are an onset in the very round that brings the third; as
many answers in a row clear it. On a link that loses 10 % such a run happens by
chance (1 in 1,000 rounds of three probes), so the anomaly carries how many of
the last seconds' probes were lost: a cut shows all of them lost, a lossy link a
mixture, and it clears at the next answers.

Only 5-tuples with a loss in their recent past are kept here; healthy ones cost
nothing. What is kept is a function of the results of the last `RUN_NS` of the
5-tuple, not of what was decided: a restart rebuilds it from the log.
"""

from bisect import insort
from dataclasses import dataclass
from typing import Final

from schemas.units import SECOND_NS

# Losses further apart are no run: at an interval above 10 s a run of three needs
# the re-probes of one round.
RUN_NS: Final = 30 * SECOND_NS
# What is known of a 5-tuple: nothing; it lost a probe lately; its latest probes were lost.
HEALTHY: Final = 0
WATCHED: Final = 1
CUT: Final = 2


@dataclass(frozen=True, slots=True)
class Run:
    """The latest results of a 5-tuple that are all alike."""

    lost: bool
    count: int
    first_ns: int
    last_ns: int
    # Nothing but this run within RUN_NS.
    alone: bool


class Runs:
    """Recent results of the 5-tuples that lost a probe, by row."""

    def __init__(self, losses: int) -> None:
        self._losses = losses
        self._recent: dict[int, list[tuple[int, bool]]] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def __contains__(self, row: int) -> bool:
        return row in self._recent

    def add(self, row: int, sent_ns: int, lost: bool, answered_ns: int | None) -> Run:
        """Add a result and return the latest run.

        Parameters
        ----------
        row
            The 5-tuple.
        sent_ns, lost
            The result; it may be older than others that came before it.
        answered_ns
            Sending time of the last answered probe before, for a 5-tuple that
            was healthy until now; None: never probed.
        """
        recent = self._recent.get(row)
        if recent is None:
            recent = [] if answered_ns is None else [(answered_ns, False)]
            self._recent[row] = recent
        insort(recent, (sent_ns, lost))
        oldest = recent[-1][0] - RUN_NS
        while recent[0][0] < oldest:
            del recent[0]
        run = self._run(recent)
        if not run.lost and (run.count >= self._losses or run.alone):
            del self._recent[row]
        return run

    def latest(self, row: int) -> Run | None:
        """Return the latest run of a 5-tuple that is kept here."""
        recent = self._recent.get(row)
        return None if recent is None else self._run(recent)

    def standing(self, row: int) -> int:
        """Return how a 5-tuple stands: HEALTHY, WATCHED or CUT."""
        recent = self._recent.get(row)
        if recent is None:
            return HEALTHY
        return CUT if recent[-1][1] else WATCHED

    def drop(self, row: int) -> None:
        """Forget a 5-tuple."""
        self._recent.pop(row, None)

    @staticmethod
    def _run(recent: list[tuple[int, bool]]) -> Run:
        lost = recent[-1][1]
        start = len(recent) - 1
        while start > 0 and recent[start - 1][1] == lost:
            start -= 1
        return Run(lost, len(recent) - start, recent[start][0], recent[-1][0], start == 0)
