"""007: every bad 5-tuple votes for the components that it crosses.

Arzani et al., "007: Democratically Finding the Cause of Packet Drops", NSDI 2018. A flow that lost
something gives 1/h to each of the h links on its path; the link with most votes is
bad if it has at least one in a hundred of all votes; the votes of flows through
it are then taken out, and so on (algorithm 1). Flows that lost nothing have no say.
"""

from typing import Final

from arena.baselines.crossing import Crossing
from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation

# Share of the votes left from which a link is bad (section 5.2).
LEAST_SHARE: Final = 0.01


class Votes:
    """007's voting over the components of traced paths."""

    name = "007 (votes)"

    def __init__(self, least_share: float = LEAST_SHARE) -> None:
        self._least_share = least_share

    def observe(self, window: Window) -> list[Accusation]:
        """Accuse what the 5-tuples in trouble vote for."""
        crossing = Crossing(window)
        left = crossing.bad > 0
        found = []
        while left.any():
            votes = crossing.sums(left / crossing.length)
            best = crossing.best(votes)
            most = float(votes[best[0]])
            if most < self._least_share * votes.sum():
                break
            found.append(crossing.accuse(best, most, left))
            left = left & ~crossing.through(best[0])
        return found
