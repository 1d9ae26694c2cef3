"""Outputs that a predecessor published beyond the checkpoint that a session goes on from.

They are made again, recognised, and not written again. Until then nothing is committed: there
may be gaps in them, and a checkpoint among them would hide some from the next owner.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.config import REFRESH_STEP_NS


class Told(NamedTuple):
    """An output as it stands in the log: what it says, its event time, its offset."""

    identity: str
    event_ns: int
    offset: int


@dataclass(slots=True)
class Found:
    """What is to be made again.

    Attributes
    ----------
    rounds_end
        Next round after those that a predecessor can have seen.
    last_ns
        The latest event time.
    """

    rounds_end: int = 0
    last_ns: int = 0
    _offsets: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, outputs: Iterable[Told]) -> "Found":
        """Return what is to be made again of these, of rounds that are yet to be named."""
        found = cls()
        for output in outputs:
            found._offsets.setdefault(output.identity, []).append(output.offset)
            found.last_ns = max(found.last_ns, output.event_ns)
        return found

    def __len__(self) -> int:
        return len(self._offsets)

    def take(self, identity: str) -> int | None:
        """Return the offset of an output that is made again; None: it is not there."""
        offsets = self._offsets.get(identity)
        if not offsets:
            return None
        offset = offsets.pop(0)
        if not offsets:
            del self._offsets[identity]
        return offset

    def give_up(self, next_offset: int, closed_ns: int, window_ns: int) -> int:
        """Forget what will never be made again; return how many.

        By other settings or another version, for instance. What is of a time is made when the
        windows of that time close, refreshes a step later at most.

        Parameters
        ----------
        next_offset, closed_ns
            How far the session is: in the log of rounds, and in closing windows.
        """
        late = closed_ns > self.last_ns + window_ns + REFRESH_STEP_NS
        if not late and next_offset < self.rounds_end:
            return 0
        gone, self._offsets = len(self._offsets), {}
        return gone
