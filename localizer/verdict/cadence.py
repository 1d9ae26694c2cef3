"""When the localizer decides: at every grid point after a change, ever more seldom while all stays.

What a decision says changes with the evidence. Lost connectivity, a dead agent or a changed table
is complete at once and is decided upon at the next grid point. What only adds up to something over
a minute (windows of latency, pooled losses, numbers that readers report every few seconds) can wait
for a second. Without any change evidence grows by its age alone: a decision after each further
`1 / AGE_SHARE` of the age misses nothing that the ones between would have shown for long.

The times depend on event time and on the last changes alone, but for storms: a process that starts
again decides when the former one would have.
"""

from typing import Final

from localizer.config import GRID_NS
from localizer.facts.sampling import MOST
from schemas.units import SECOND_NS

# The evidence grows by at most this share between two decisions.
AGE_SHARE: Final = 8
# Grid after a change of what adds up over time. Its first evidence is a window of 30 s, or losses
# over a minute: a second is a thirtieth.
GRADUAL_GRID_NS: Final = SECOND_NS
# Time by itself clears an alarm or ends a wait; no such time is shorter than 2 s.
CALM_GRID_NS: Final = 2 * SECOND_NS
# Each further this many bad 5-tuples that are looked at, and of all that are bad, delay the next
# decision by one grid step, up to the largest step: decisions take a quarter of a core, so that one
# whose cores are shared still reads the storm's records.
LOOKED_AT_FLOWS: Final = 256
STORM_FLOWS: Final = 1_024
STORM_GRID_NS: Final = 16 * SECOND_NS

Versions = tuple[object, ...]


class Cadence:
    """Says of each grid point whether it is decided."""

    def __init__(self) -> None:
        self._sudden: Versions = ()
        self._gradual: Versions = ()
        self._sudden_ns = 0
        self._gradual_ns = 0
        # From when on a decision may be due, and how long after the one before that is.
        self._next_ns = self._gap_ns = 0

    def due(self, now_ns: int, sudden: Versions, gradual: Versions, *, flows: int) -> bool:
        """Return whether a decision is due at a grid point.

        Parameters
        ----------
        now_ns
            The grid point, event time in nanoseconds; never goes back.
        sudden, gradual
            Versions of what is evidence at once, and of what adds up over time.
        flows
            Number of bad 5-tuples: the more, the longer a decision takes. The first decision of a
            storm is made at once, the next ones later, but for one that a sudden change calls for
            after as long without any.
        """
        if sudden != self._sudden:
            if now_ns - self._sudden_ns >= self._gap_ns:
                # The storm is over, or made of what adds up: this may be something else.
                self._next_ns = now_ns
            self._sudden, self._sudden_ns = sudden, now_ns
        if gradual != self._gradual:
            self._gradual, self._gradual_ns = gradual, now_ns
        step_ns = min(
            step_of(now_ns - self._sudden_ns, GRID_NS),
            step_of(now_ns - self._gradual_ns, GRADUAL_GRID_NS),
        )
        if now_ns % step_ns != 0 or now_ns < self._next_ns:
            return False
        steps = min(flows, MOST) // LOOKED_AT_FLOWS + flows // STORM_FLOWS
        self._gap_ns = min(GRID_NS * (1 + steps), STORM_GRID_NS)
        self._next_ns = now_ns + self._gap_ns
        return True


def step_of(age_ns: int, least_ns: int) -> int:
    """Return the grid on which evidence of an age is decided upon, in nanoseconds.

    The largest of `least_ns`, twice, four times it and so on, up to `CALM_GRID_NS`, that is at most
    `1 / AGE_SHARE` of the age.

    Examples
    --------
    >>> [step_of(age_s * 10**9, 250_000_000) // 10**6 for age_s in (0, 3, 4, 8, 16, 99)]
    [250, 250, 500, 1000, 2000, 2000]
    """
    step_ns = least_ns
    while step_ns < CALM_GRID_NS and 2 * step_ns * AGE_SHARE <= age_ns:
        step_ns *= 2
    return min(step_ns, CALM_GRID_NS)
