"""Which probes are under way, and what an answer is to them. Pure."""

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from probers.clock import Instant
from probers.transports.base import Probe

# Nonces of finished probes that are remembered to tell a duplicate or a late reply
# from a foreign one: of one RNIC, so that eight have 0.6 MB of them (2,048 each were 2.4 MB);
# most of a minute at ten probes a second, a quarter of a second at the highest rate.
REMEMBERED: Final = 512


class Answer(Enum):
    """What an answer with some nonce is."""

    AWAITED = auto()
    DUPLICATE = auto()
    LATE = auto()
    FOREIGN = auto()


@dataclass(frozen=True, slots=True)
class Entry:
    """A probe under way."""

    nonce: int
    probe: Probe
    posted: Instant

    @property
    def deadline_ns(self) -> int:
        """When it is lost, monotonic nanoseconds."""
        return self.posted.monotonic_ns + self.probe.timeout_ns


class Outstanding:
    """The probes of one transport that are under way."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._entries: dict[int, Entry] = {}
        self._deadlines: list[tuple[int, int]] = []
        # nonce -> whether it was answered in time
        self._over: OrderedDict[int, bool] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, nonce: int, probe: Probe, posted: Instant) -> Entry:
        """Remember a probe that has been posted."""
        entry = Entry(nonce, probe, posted)
        self._entries[nonce] = entry
        heapq.heappush(self._deadlines, (entry.deadline_ns, nonce))
        return entry

    def find(self, nonce: int) -> tuple[Answer, Entry | None]:
        """Say what an answer with that nonce is; the entry only where it is awaited."""
        entry = self._entries.get(nonce)
        if entry is not None:
            return Answer.AWAITED, entry
        answered = self._over.get(nonce)
        if answered is None:
            return Answer.FOREIGN, None
        return (Answer.DUPLICATE if answered else Answer.LATE), None

    def finish(self, entry: Entry, *, answered: bool) -> None:
        """Take a probe out; `answered` decides how a further answer is counted."""
        del self._entries[entry.nonce]
        self._over[entry.nonce] = answered
        while len(self._over) > self._remembered:
            self._over.popitem(last=False)

    def expire(self, now_ns: int) -> list[Entry]:
        """Take out and return the probes whose time is over, the earliest deadline first."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            _, nonce = heapq.heappop(self._deadlines)
            entry = self._entries.get(nonce)
            if entry is not None:
                self.finish(entry, answered=False)
                expired.append(entry)
        return expired
