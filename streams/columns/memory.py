"""Memory: what the collector of garbage need not look at, and what goes back to the system."""

import ctypes
import gc
import mmap
from typing import Any, Final

from numpy.typing import NDArray

# A batch is some thousand message objects, none of which holds itself; the collector's default,
# a pass after 700 of them, took a tenth of a worker's time and found nothing.
THRESHOLDS: Final = (100_000, 20, 100)

# glibc's malloc learns from the first large array that is freed to keep all of them (up to
# 32 MiB): what a closing window takes on the way stayed, a third of a worker of 50,000 5-tuples.
# From this size on an array is the system's; smaller ones, as the client's buffers, are kept.
LARGE_BYTES: Final = 4 * 2**20
# So much may lie idle at the heap's end.
IDLE_BYTES: Final = 16 * 2**20
# Of malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def give_back() -> None:
    """Let large arrays go back to the system when they are freed; glibc alone knows how."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(_TRIM_THRESHOLD, IDLE_BYTES)


def empty(array: NDArray[Any]) -> None:
    """Give the pages of an array back; what it holds afterwards is nobody's.

    Nothing happens where the system cannot.

    Parameters
    ----------
    array
        C-contiguous, and writable.
    """
    first = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (array.ctypes.data + array.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if size <= 0 or not hasattr(mmap, "MADV_DONTNEED"):
        return
    libc = ctypes.CDLL(None)
    libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), ctypes.c_int(mmap.MADV_DONTNEED))


def settle() -> None:
    """Leave what is there now out of all later passes, and make passes rarer.

    To be called again whenever something large goes: what was left out is never freed else,
    and a partition's machine holds itself.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
