"""What `--from` and `--to` mean: places in a log, given by people."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

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
