"""Whether a 5-tuple has become slower: no detector, only the reason to trace it now. Pure.

What is anomalous is decided by the stream worker, over windows and against a false-alarm
rate. But where a delay arises only a trace made during it can tell, and by the time a
verdict is due it must be there.
"""

from dataclasses import dataclass
from typing import Final

# A switch's CPU, which answers a trace, scatters by some hundred microseconds: a
# smaller rise would not be seen in a trace.
LEAST_RISE_NS: Final = 500_000
# One slow answer happens to a process that the machine did not schedule.
IN_A_ROW: Final = 2
# The typical round trip follows faster ones within some probes and slower ones within
# a minute of probes at 1 Hz: a rise is one for so long, and then the new level.
FALL_SHIFT: Final = 3
RISE_SHIFT: Final = 6


@dataclass(slots=True)
class Pace:
    """Typical round trip of one 5-tuple, and how many in a row were slower.

    `typical_ns` is an exponential average with a short memory downwards and a long one
    upwards (the estimator of RFC 6298 with two gains); None before the first answer.
    """

    typical_ns: int | None = None
    slow: int = 0

    def answered(self, rtt_ns: int) -> bool:
        """Take in a round trip; say whether the 5-tuple is slower than it typically is."""
        typical_ns = self.typical_ns
        if typical_ns is None:
            self.typical_ns = rtt_ns
            return False
        raised = rtt_ns > typical_ns + max(typical_ns, LEAST_RISE_NS)
        self.slow = self.slow + 1 if raised else 0
        rise_ns = rtt_ns - typical_ns
        shift = RISE_SHIFT if rise_ns > 0 else FALL_SHIFT
        self.typical_ns = typical_ns + (rise_ns >> shift)
        return self.slow >= IN_A_ROW
