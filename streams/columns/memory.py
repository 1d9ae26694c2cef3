"""Pages of an array that go back to the system while the array stays."""

import ctypes
import mmap
from typing import Any

from numpy.typing import NDArray


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
