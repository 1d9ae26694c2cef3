"""How many 5-tuples of an agent had a window, and what was lost in it."""

from dataclasses import dataclass
from typing import Final

from schemas.records import PathWindow

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

    def with_window(self, window: PathWindow) -> "AgentWindows":
        """Return them with one more 5-tuple's window."""
        end_at = window.window_end_at
        old = next((c for c in self.counts if c.end_at == end_at), WindowCount(end_at))
        new = WindowCount(end_at, old.flows + 1, old.sent + window.sent, old.lost + window.lost)
        others = (c for c in self.counts if c is not old)
        counts = sorted((new, *others), key=lambda c: -c.end_at)
        return AgentWindows(tuple(counts[:KEPT]))

    @property
    def last(self) -> WindowCount | None:
        """The last one that is surely whole, else the only one; None: there is none."""
        return self.counts[-1] if self.counts else None
