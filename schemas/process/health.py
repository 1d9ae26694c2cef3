"""What a process answers when it is asked whether it lives, and whether it is ready.

`/healthz` fails where only a new start helps. `/readyz` fails while others must not count on the
process: it still reads, or rebuilds what it holds.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

LIVE: Final = "/healthz"
READY: Final = "/readyz"
# A process that does not ask Kafka for records ends itself after `stall_s` (30 s by default, and
# a large rebuild of the localizer's paths takes some seconds): what is still there hangs for good.
# The alert SkeletonHunterStalled has the same bound.
HUNG_S: Final = 90.0


class HealthAnswer(NamedTuple):
    """Whether all is well, and a sentence."""

    well: bool
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """How a process is; its functions are called by a thread of the server.

    Attributes
    ----------
    polled_s
        When it last asked Kafka for records, seconds since the epoch; None: not yet.
    waits_for
        What it must do before it is ready; None: it is.
    """

    polled_s: Callable[[], float | None]
    waits_for: Callable[[], str | None]

    def answer(self, path: str) -> HealthAnswer | None:
        """Return the answer to a request; None: the path is none of ours.

        >>> Health(lambda: None, lambda: "reading topics").answer("/readyz")
        HealthAnswer(well=False, text='not ready: reading topics')
        """
        if path == LIVE:
            polled_s = self.polled_s()
            silent_s = 0.0 if polled_s is None else time.time() - polled_s
            if silent_s > HUNG_S:
                return HealthAnswer(False, f"has not asked Kafka for {silent_s:.0f} s")
            return HealthAnswer(True, "alive")
        if path == READY:
            waits_for = self.waits_for()
            if waits_for is not None:
                return HealthAnswer(False, f"not ready: {waits_for}")
            return HealthAnswer(True, "ready")
        return None
