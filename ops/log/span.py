"""What `--from` and `--to` mean: places in a log, given by people.

Which records of a stream lie between two bounds, and in which order they are shown.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from ops.log.entry import Entry
from ops.log.reading import Place

_RELATIVE: Final = re.compile(r"([+-])((?:\d+(?:ms|s|m|h|d))+)")
_PART: Final = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

HELP: Final = "'beginning', 'end', ISO time (UTC unless it says otherwise), or -10m, -1h30m, +5m"


@dataclass(frozen=True, slots=True)
class Bound:
    """A place in a log; `at_ms` (milliseconds since the epoch) counts only for `time`."""

    place: Literal["beginning", "end", "time"]
    at_ms: int = 0

    def __str__(self) -> str:
        return iso_ms(self.at_ms) if self.place == "time" else self.place


BEGINNING: Final = Bound("beginning")
END: Final = Bound("end")


def parse_bound(text: str, now_ms: int) -> Bound:
    """Return the place that a person named.

    Parameters
    ----------
    text
        `beginning`, `end`, an ISO time, or a distance from now such as `-1h30m`.
    now_ms
        Milliseconds since the epoch.

    Raises
    ------
    ValueError
        If it is none of these; the message says what there is.

    >>> parse_bound("-90s", 100_000).at_ms
    10000
    """
    word = text.strip()
    if word == "beginning":
        return BEGINNING
    if word == "end":
        return END
    relative = _RELATIVE.fullmatch(word)
    if relative:
        sign = -1 if relative[1] == "-" else 1
        distance_ms = sum(int(n) * _UNIT_MS[unit] for n, unit in _PART.findall(relative[2]))
        return Bound("time", max(0, now_ms + sign * distance_ms))
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError(f"{text!r} is no time; it takes {HELP}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Bound("time", max(0, round(moment.timestamp() * 1000)))


def iso_ms(at_ms: int) -> str:
    """Return milliseconds since the epoch as UTC text; the bare number where no calendar has it.

    >>> iso_ms(1_733_989_087_162)
    '2024-12-12T07:38:07.162Z'
    """
    try:
        moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(at_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def iso_us(at_us: int) -> str:
    """Return microseconds since the epoch as UTC text.

    >>> iso_us(1_733_989_087_162_141)
    '2024-12-12T07:38:07.162141Z'
    """
    whole = iso_ms(at_us // 1000)
    return f"{whole[:-1]}{at_us % 1000:03d}Z" if whole.endswith("Z") else str(at_us)


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


class Span:
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
