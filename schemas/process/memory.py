"""Memory of a process: when the garbage collector runs, and what goes back to the system.

Records, messages and paths do not hold themselves: the collector finds nothing among them, and
its default, a run after 700 new objects, took a tenth of a worker's time.
"""

import contextlib
import ctypes
import gc
import sys
from collections import OrderedDict, defaultdict
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

# Free memory is returned when so many objects have gone, and this share of them.
RETURN_OBJECTS: Final = 4_000
RETURN_SHARE: Final = 0.1
# A table of so many bytes for each of its entries was once much larger: a full one takes 30 to 110.
SPARSE_BYTES: Final = 200
# Smaller tables are left alone.
TABLE_BYTES: Final = 64 * 1024
TABLES: Final = (dict, set, OrderedDict, defaultdict)

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


def return_free() -> None:
    """Return free memory to the system, as far as the C library can; it can with glibc.

    What lies free between objects that stay is returned as well, page by page.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Returner:
    """Returns free memory after much has gone, and only then.

    To return pages takes time, and so does a page that is needed again.
    """

    def __init__(self) -> None:
        self._most = 0

    def observe_count(self, objects: int) -> bool:
        """Return free memory if far fewer objects are held than before; say whether it was.

        Parameters
        ----------
        objects
            Held now; only what comes and goes by the thousand need be counted.
        """
        self._most = max(self._most, objects)
        if self._most - objects < max(RETURN_OBJECTS, RETURN_SHARE * self._most):
            return False
        self._most = objects
        return_free()
        return True


def shrink_tables(owner: object) -> None:
    """Replace an object's dicts and sets that are nearly empty but were large by copies.

    Python makes a table smaller only when it is full. Nobody else may hold these tables.
    """
    for name, table in list(vars(owner).items()):
        size = sys.getsizeof(table) if type(table) in TABLES else 0
        if size > TABLE_BYTES and size > SPARSE_BYTES * len(table):
            setattr(owner, name, table.copy())


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
