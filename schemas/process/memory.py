"""Memory of a process: when the garbage collector runs, and what goes back to the system.

Records, messages and paths do not hold themselves: the collector finds nothing among them, and
its default, a run after 700 new objects, took a tenth of a worker's time.
"""

import ctypes
import gc
from typing import Final

# Of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
# glibc's malloc learns from the first large array that is freed to keep all of them (up to
# 32 MiB): what a closing window allocates on the way stayed, a third of a worker of 50,000
# 5-tuples. From this size on an array is the system's; smaller ones, as a client's buffers, stay.
LARGE_BYTES: Final = 4 * 2**20
# So much may lie idle at the heap's end.
IDLE_BYTES: Final = 16 * 2**20

# New objects until a run over them; runs until one over those that outlived a run, and over all.
YOUNG: Final = 100_000
OLDER: Final = 20
OLDEST: Final = 100


def return_large_arrays() -> None:
    """Let large arrays go back to the system when they are freed; glibc alone knows how."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(_TRIM_THRESHOLD, IDLE_BYTES)


def collect_rarely() -> None:
    """Leave what is there now out of all later runs, and make runs rarer.

    Call it again whenever something large goes: objects that were left out and hold themselves,
    such as a partition's machine, are freed here alone.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDEST)


def collect_on_demand() -> None:
    """Run the collector from now on only where `collect_if_due` is called.

    A process whose answer must not wait for a run in its middle calls that between two answers.
    """
    gc.disable()


def leave_out_present() -> None:
    """Leave what is there now out of all later runs."""
    gc.freeze()


def collect_if_due() -> None:
    """Run the collector if enough objects are new, after `collect_on_demand`."""
    young, older, oldest = gc.get_count()
    if gc.isenabled() or young < YOUNG:
        return
    gc.collect(2 if oldest >= OLDEST else 1 if older >= OLDER else 0)
