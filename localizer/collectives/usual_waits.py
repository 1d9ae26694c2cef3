"""How long operations of a communicator usually take, and from when on one takes too long.

Of n waits that are alike the longest so far is the longest again once in n + 1 times, whatever
their distribution. Where its tail is exponential, the longest of n is about ln(n) times the mean,
and one that is f times as long comes once in n to the power of f. With f = 1 + ln(C / E) / ln(n)
that is once in n · C / E. Over the waits of a communicator these chances add up to E / C for each
time that n grows by a factor of e, and over the C communicators of a job to E: in a million waits
of each, ten times E. Of a job with ten communicators f is 3 after a hundred waits, and 1.7 after a
million.

No distribution covers a pause: a checkpoint is no longer wait of an iteration. What all ranks do
alike lets nobody wait; where one of them works and the others wait for it, the rank that works is
seen to work, and has as long as the program itself lets it: a share of the operation's timeout.
"""

from dataclasses import dataclass
from math import log
from typing import Final

# False alarms to be expected of a job while its waits become e times as many.
FALSE_ALARMS: Final = 1e-3
# From so few waits nothing follows; the other communicators of the job tell then.
LEAST_WAITS: Final = 32
# A collector reads each rank every two seconds, and ranks at different moments. What two reads of
# each rank show pending is not one that began between the reads of two ranks.
READ_TWICE_US: Final = 4_000_000
# What the kernel says of a process, or two records say of one operation, is true after one reading,
# too; it only must have lasted from one to the next.
READ_ONCE_US: Final = 2_000_000
# The first operation of a communicator takes longer than others' do: connections are made for it,
# and in a job's first iteration each rank compiles its program at its own pace.
FIRST_US: Final = 6_000_000
# Of fewer waits that ended it may be the first operation still, which some ranks have finished.
FIRST_WAITS: Final = 8
# Of the timeout after which the program gives an operation up. With NCCL's ten minutes it is one.
TIMEOUT_SHARE: Final = 0.1
# Where an operation has no timeout: PyTorch's of NCCL.
TIMEOUT_MS: Final = 600_000
US_PER_MS: Final = 1_000


@dataclass(slots=True)
class UsualWaits:
    """Waits that ended: how many, and the longest of them in microseconds."""

    count: int = 0
    longest: int = 0

    def observe(self, longest: int, count: int = 1) -> None:
        """Add waits that ended, of which one was the longest."""
        self.count += count
        self.longest = max(self.longest, longest)

    def limit(self, communicators: int) -> int | None:
        """Return how long a wait may be (µs) in a job of so many; None: too few are known."""
        if self.count < LEAST_WAITS:
            return None
        factor = 1.0 + log(max(1, communicators) / FALSE_ALARMS) / log(self.count)
        return max(READ_TWICE_US, round(factor * self.longest))


def limit_of(own: UsualWaits, every: UsualWaits, communicators: int, timeout_ms: int | None) -> int:
    """Return how long (µs) an operation may wait before something is wrong.

    Parameters
    ----------
    own
        Waits of its communicator.
    every
        Those of all communicators of the job; they count while `own` are few.
    communicators
        How many the job has.
    timeout_ms
        After which the program gives it up.
    """
    if (limit := own.limit(communicators)) is not None:
        return limit
    if (limit := every.limit(communicators)) is None:
        return patience(timeout_ms)
    return limit if own.count >= FIRST_WAITS else max(FIRST_US, limit)


def longest_of(own: UsualWaits, every: UsualWaits) -> int | None:
    """Return from when on (µs) an operation waits longer than any did; None: too few are known.

    In a job that is well that is rare, too, and reason enough to look at it. Arguments as above.
    """
    known = next((waits for waits in (own, every) if waits.count >= LEAST_WAITS), None)
    return None if known is None else max(READ_ONCE_US, known.longest)


def given_up(timeout_ms: int | None) -> int:
    """Return after how long (µs) the program gives an operation up."""
    return (timeout_ms or TIMEOUT_MS) * US_PER_MS


def patience(timeout_ms: int | None) -> int:
    """Return how long (µs) a rank that works may let the others wait."""
    return round(TIMEOUT_SHARE * given_up(timeout_ms))
