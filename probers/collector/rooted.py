"""Opens what a job names within the root folder of its own process.

A path below `/proc/PID/root` is resolved by the kernel in the collector's root as soon as it meets
a link: a job could name any file of the host by one. `openat2` keeps links within the root. Where
the kernel has no such call (before 5.6) or forbids it, links are refused.
"""

import ctypes
import errno
import os
import struct
from typing import Final

# linux/openat2.h; the call's number is the same on all machines that NCCL runs on.
_SYS_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_IN_ROOT: Final = 0x10
_HOW: Final = struct.Struct("=QQQ")
_PLACE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_UNKNOWN: Final = (errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL)


def open_place(root: str | None, path: str) -> int:
    """Return a descriptor of a place (`O_PATH`), which is nothing but where something is.

    Parameters
    ----------
    root
        The folder that is `/` for the path; None: the collector's own.
    path
        A link at its end is not followed.

    Raises
    ------
    OSError
        If there is no such place.
    ValueError
        If the path holds a zero byte.
    """
    if root is None:
        return os.open(path, _PLACE)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            return _openat2(folder, path)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
        return _without_links(folder, path)
    finally:
        os.close(folder)


def _openat2(folder: int, path: str) -> int:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a zero byte in a path")
    how = _HOW.pack(_PLACE, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    found = int(libc.syscall(_SYS_OPENAT2, folder, name, how, _HOW.size))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return found


def _without_links(folder: int, path: str) -> int:
    """Open one folder after the other, none of them by a link."""
    at = os.dup(folder)
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        os.close(at)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    for part in parts:
        try:
            # Of a link it opens the link itself, in which nothing can be found.
            following = os.open(part, _PLACE, dir_fd=at)
        finally:
            os.close(at)
        at = following
    return at
