"""The iteration that each rank began last: when, and what CPU time it had used by then.

In memory that a launcher shares with the ranks that it forks.
"""

import mmap
import struct
import time
from typing import Final, NamedTuple

# Iteration, nanoseconds, nanoseconds.
STEP: Final = struct.Struct("qqq")


class Begun(NamedTuple):
    """The iteration that a rank began last.

    Attributes
    ----------
    step
        Its number; -1: the rank has begun none.
    at_ns
        When, by CLOCK_MONOTONIC, which all processes of a machine share; 0 without one.
    cpu_ns
        CPU time that all threads of the rank had used by then, nanoseconds.
    """

    step: int
    at_ns: int
    cpu_ns: int


NONE: Final = Begun(-1, 0, 0)


class BegunSteps:
    """One place for each rank."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._shared = mmap.mmap(-1, STEP.size * ranks)
        self.forget()

    def forget(self) -> None:
        """Begin anew: no rank has begun an iteration."""
        for rank in range(self._ranks):
            STEP.pack_into(self._shared, rank * STEP.size, *NONE)

    def begin(self, rank: int, step: int) -> None:
        """Write, in the process of a rank, that it begins an iteration now."""
        now = Begun(step, time.monotonic_ns(), time.process_time_ns())
        STEP.pack_into(self._shared, rank * STEP.size, *now)

    def read(self) -> list[Begun]:
        """Return what each rank wrote last."""
        return [self._of(rank) for rank in range(self._ranks)]

    def _of(self, rank: int) -> Begun:
        # Three numbers are not written at once: what is the same twice was not being written.
        before = None
        while True:
            found = Begun(*STEP.unpack_from(self._shared, rank * STEP.size))
            if found == before:
                return found
            before = found
