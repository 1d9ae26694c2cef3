"""Log lines about records that are refused because there is too much of a kind."""

import time
from collections.abc import Mapping
from typing import Final

from schemas.process.eventlog import EventLog

# A flood fills no log.
EVERY_S: Final = 60.0
EVENT: Final = "records.beyond_bounds"


class RefusalLog:
    """Logs, at most once a minute, how many more records of each kind were refused."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._logged: dict[str, int] = {}
        self._next_s = 0.0

    def observe_counts(self, refused: Mapping[str, int]) -> None:
        """Log what was refused since the last line, if anything was and a line is due.

        Parameters
        ----------
        refused
            Records refused since the start, by kind.
        """
        more = {what: n - self._logged.get(what, 0) for what, n in refused.items()}
        more = {what: n for what, n in more.items() if n}
        now_s = time.monotonic()
        if more and now_s >= self._next_s:
            self._log.warning(EVENT, **more)
            self._logged, self._next_s = dict(refused), now_s + EVERY_S
