"""Opens files that somebody named: regular ones only, and never waits.

A named pipe without a writer would hold the process up for ever, and a device has no end.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Final

# A settings file, a key or a manifest: nobody writes a larger one by hand.
MAX_BYTES: Final = 16 * 2**20


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it.

    Raises
    ------
    OSError
        If there is none, it is no regular file, or its name holds a NUL; with `strerror`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no name of a file: {error}", str(path)) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "Not a regular file", str(path))


def read_file(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return what a file holds.

    Raises
    ------
    OSError
        As `open_regular`, and if it is larger.
    """
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"Larger than {max_bytes} bytes", str(path))
    return content


def parse_json(content: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        If it is not JSON, not UTF-8, or nested too deep.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
