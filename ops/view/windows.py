"""How many 5-tuples of an agent had a window, and what was lost in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ops.log.windows import LOST, SENT, WindowColumns

# The window that is being closed and the one before it: that one is whole.
KEPT: Final = 2


@dataclass(frozen=True, slots=True)
class WindowCount:
    """The windows of one agent that end at one time (microseconds since the epoch)."""

    end_at: int
    flows: int = 0
    sent: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class AgentWindows:
    """The last windows of an agent, the newest first."""

    counts: tuple[WindowCount, ...] = ()

    def with_more(self, more: WindowCount) -> "AgentWindows":
        """Return them with more 5-tuples' windows that end at one time."""
        end_at = more.end_at
        old = next((c for c in self.counts if c.end_at == end_at), WindowCount(end_at))
        new = WindowCount(
            end_at, old.flows + more.flows, old.sent + more.sent, old.lost + more.lost
        )
        others = (c for c in self.counts if c is not old)
        counts = sorted((new, *others), key=lambda c: -c.end_at)
        return AgentWindows(tuple(counts[:KEPT]))

    @property
    def last(self) -> WindowCount | None:
        """The last one that is surely whole, else the only one; None: there is none."""
        return self.counts[-1] if self.counts else None


def counted(windows: WindowColumns) -> Iterator[tuple[str, WindowCount]]:
    """Yield the agents of windows, with how many of theirs end at each time."""
    numbers: dict[str, int] = {}
    agent = np.array([numbers.setdefault(name, len(numbers)) for name in windows.agent], np.int64)
    ends, end = np.unique(windows.end_at, return_inverse=True)
    pairs, pair = np.unique(agent * len(ends) + end, return_inverse=True)
    flows = np.bincount(pair, minlength=len(pairs)).tolist()
    sent, lost = (
        list(map(int, np.bincount(pair, windows.values[place], len(pairs)).tolist()))
        for place in (SENT, LOST)
    )
    names = list(numbers)
    for place, one in enumerate(pairs.tolist()):
        at = int(ends[one % len(ends)])
        yield names[one // len(ends)], WindowCount(at, flows[place], sent[place], lost[place])
