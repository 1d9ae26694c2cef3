"""Which records of a stream lie between two bounds, and in which order they are shown."""

from collections.abc import Collection, Mapping
from typing import Final

from ops.log.entry import Entry
from ops.log.reading import Place
from ops.log.timespan import Bound

# How long after `--to` records with earlier timestamps may still come in: an
# agent publishes a round when its last probe is decided, some seconds late.
LATE_MS: Final = 3_000


def in_time_order(entries: list[tuple[Place, Entry]]) -> list[tuple[Place, Entry]]:
    """Sort a batch by time across partitions; within each its own order stays."""
    latest: dict[Place, int] = {}
    keys = []
    for number, (place, entry) in enumerate(entries):
        latest[place] = max(latest.get(place, 0), entry.timestamp_ms or 0)
        keys.append((latest[place], number))
    return [entries[number] for _, number in sorted(keys)]


class ReadRange:
    """Decides, record by record, when the part of the log between two bounds has been read.

    A partition is done at the first record at or after `to`, at the end that it
    had at the start (unless it is followed), or, for a `to` that lay ahead, at its
    end once that time has passed.
    """

    def __init__(
        self, starts: Mapping[Place, int], highs: Mapping[Place, int], to: Bound, *, follow: bool
    ) -> None:
        self._to = to
        self._follow = follow
        self._highs = dict(highs)
        self._open = {p for p, at in starts.items() if follow or at < highs[p]}

    @property
    def open(self) -> frozenset[Place]:
        """Partitions that are not done."""
        return frozenset(self._open)

    def takes(self, place: Place, offset: int, at_ms: int | None) -> bool:
        """Say whether the record lies within; one that does not ends its partition."""
        if place not in self._open:
            return False
        if not self._follow and offset >= self._highs[place]:
            self._open.discard(place)
            return False
        if self._to.place == "time" and at_ms is not None and at_ms >= self._to.at_ms:
            self._open.discard(place)
            return False
        if not self._follow and offset + 1 >= self._highs[place]:
            self._open.discard(place)
        return True

    def at_end(self, ended: Collection[Place], now_ms: int) -> None:
        """Note which partitions have nothing more now."""
        passed = self._to.place == "time" and now_ms > self._to.at_ms + LATE_MS
        if not self._follow or passed:
            self._open.difference_update(ended)
