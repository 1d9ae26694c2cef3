"""Memory of a process: when the garbage collector runs, and what goes back to the system.

Records, messages and paths do not hold themselves: the collector finds nothing among them, and
its default, a run after 700 new objects, took a tenth of a worker's time.
"""

import contextlib
import ctypes
import gc
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from schemas.process.names import forget_unused

# Of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
# glibc's malloc learns from the first large array that is freed to keep all of them (up to
# 32 MiB): what a closing window allocates on the way stayed, a third of a worker of 50,000
# 5-tuples. From this size on an array is the system's; smaller ones, as a client's buffers, stay.
LARGE_BYTES: Final = 4 * 2**20
# So much may lie idle at the heap's end.
IDLE_BYTES: Final = 16 * 2**20

# Domains of Python's allocators (cpython/pymem.h): of plain memory, and those of small objects.
_RAW: Final = 0
_SMALL: Final = (1, 2)

# Free memory is returned when so many objects have gone, and this share of them.
RETURN_OBJECTS: Final = 4_000
RETURN_SHARE: Final = 0.1
# And every so often; to return it may take this share of the time.
RETURN_EVERY_S: Final = 10.0
RETURN_TIME_SHARE: Final = 0.005
# A table of more bytes for each of its entries was once larger, or entries come and go: a new one
# has room for one and a half to three times as many as it holds; one from which entries had gone
# when it was full, for three to six times as many (`GROWTH_RATE` in cpython/dictobject.c).
ROOMY_BYTES: Final[Mapping[type, int]] = {dict: 64, defaultdict: 64, set: 64, OrderedDict: 116}
# To copy a larger one takes more than some milliseconds: only one that is nearly empty is copied.
COPIED_BYTES: Final = 4 * 2**20
SPARSE_BYTES: Final = 200
# Smaller tables are left alone.
TABLE_BYTES: Final = 64 * 1024

# New objects until a run over them; runs until one over those that outlived a run, and over all.
YOUNG: Final = 100_000
OLDER: Final = 20
OLDEST: Final = 100


def _set_malloc(options: Mapping[int, int]) -> None:
    """Set options of glibc's malloc; elsewhere nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in options.items():
            mallopt(name, value)


def return_large_arrays() -> None:
    """Let large arrays go back to the system when they are freed; glibc alone knows how."""
    _set_malloc({_MMAP_THRESHOLD: LARGE_BYTES, _TRIM_THRESHOLD: IDLE_BYTES})


def use_one_arena() -> None:
    """Let all threads allocate from one heap; to be called before a second thread starts.

    glibc gives each thread a heap of its own, up to eight for a core, and what one thread has
    freed is of no use to the others. librdkafka alone has eight threads that are never busy at
    once.
    """
    _set_malloc({_ARENA_MAX: 1})


class _Allocator(ctypes.Structure):
    """`PyMemAllocatorEx` of cpython/pymem.h."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


def allocate_by_page() -> bool:
    """Let objects that are created from now on lie where free pages can be returned; say if so.

    Python packs small objects into arenas of a megabyte, and returns one only when nothing in it
    is left: after a flood 70 MB were free in arenas of which each held a few objects. The C
    library's allocator returns them page by page (`return_free`). A process with millions of
    objects takes a tenth more memory by it. Nothing happens where a tool has replaced the
    allocators.
    """
    try:
        get, put = ctypes.pythonapi.PyMem_GetAllocator, ctypes.pythonapi.PyMem_SetAllocator
    except AttributeError:
        return False
    plain, found = _Allocator(), [_Allocator() for _ in _SMALL]
    get(_RAW, ctypes.byref(plain))
    for domain, allocator in zip(_SMALL, found, strict=True):
        get(domain, ctypes.byref(allocator))
    # Allocators of Python itself have no context; those of `tracemalloc` and of debugging have.
    if any(allocator.context for allocator in (plain, *found)):
        return False
    for domain, allocator in zip(_SMALL, found, strict=True):
        # What arenas hold is still resized and freed there, and all else handed on by them.
        allocator.malloc, allocator.calloc = plain.malloc, plain.calloc
        put(domain, ctypes.byref(allocator))
    return True


def return_free() -> None:
    """Return free memory to the system, as far as the C library can; it can with glibc.

    What lies free between objects that stay is returned as well, page by page.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _empty_free_lists() -> None:
    """Free the objects that Python keeps for new ones; each of them holds its page back.

    Only a run of the collector over everything does so. To be short it finds nothing: what
    outlived a run is left out of it and of all later ones, see `leave_out_present`.
    """
    gc.collect(1)
    gc.freeze()
    gc.collect()


class Returner:
    """Returns free memory after much has gone, and every now and then.

    Much goes by and by: what a client allocated for messages, or containers that come and go as
    they always did. To return pages takes time, and so does a page that is needed again.

    Parameters
    ----------
    clock
        Seconds; never goes back.
    work_clock
        Seconds of CPU of this thread. A busy machine makes what it takes no dearer.
    """

    def __init__(self, clock: Callable[[], float], work_clock: Callable[[], float]) -> None:
        self._clock = clock
        self._work_clock = work_clock
        self._most = 0
        self._next_s = clock() + RETURN_EVERY_S

    def observe_count(self, objects: int) -> bool:
        """Return free memory if far fewer objects are held than before, or if it is time.

        Returns
        -------
        Whether it was returned.

        Parameters
        ----------
        objects
            Held now; only what comes and goes by the thousand need be counted.
        """
        self._most = max(self._most, objects)
        if self._most - objects >= max(RETURN_OBJECTS, RETURN_SHARE * self._most):
            self._most = objects
            _empty_free_lists()
        elif self._clock() < self._next_s:
            return False
        begin_s = self._work_clock()
        forget_unused()
        return_free()
        took_s = self._work_clock() - begin_s
        self._next_s = self._clock() + max(RETURN_EVERY_S, took_s / RETURN_TIME_SHARE)
        return True


def shrink_tables(owner: object) -> None:
    """Replace an object's dicts and sets that have much more room than they need by copies.

    Python makes a table smaller only when it is full, and larger where entries come and go. Nobody
    else may hold these tables.
    """
    for name, table in list(vars(owner).items()):
        roomy = ROOMY_BYTES.get(type(table))
        if roomy is None:
            continue
        size = sys.getsizeof(table)
        most = roomy if size <= COPIED_BYTES else SPARSE_BYTES
        if size > TABLE_BYTES and size > most * len(table):
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


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Make runs rarer for a while, in a process that does other things as well."""
    usual = gc.get_threshold()
    gc.set_threshold(YOUNG, OLDER, OLDEST)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


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
