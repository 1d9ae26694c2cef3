"""When a partition is idle: so that it does not hold the localizer back."""

from dataclasses import dataclass
from typing import Final

# A partition without input for this long must not hold the localizer back.
IDLE_AFTER_S: Final = 2.0
# And says so again, so that a localizer that starts later hears it.
IDLE_REPEAT_S: Final = 5.0


@dataclass(slots=True)
class Idle:
    """What a partition's silence is measured by; times are monotonic, in seconds."""

    since: float
    progress_at: int | None = None
    told: float = float("-inf")

    def due(self, progress_at: int | None, now: float, *, at_end: bool) -> bool:
        """Return whether it is to be told that nothing has moved the partition for a while.

        Input that is late or refused does not move it either.

        Parameters
        ----------
        progress_at
            The machine's progress, microseconds.
        at_end
            Whether nothing waits in the log.
        """
        if progress_at != self.progress_at:
            self.progress_at, self.since, self.told = progress_at, now, float("-inf")
        if not at_end or now - self.since < IDLE_AFTER_S or now - self.told < IDLE_REPEAT_S:
            return False
        self.told = now
        return True
