"""Lets a forked process show an environment of its own in /proc/PID/environ.

The kernel shows the memory in which a program found its environment when it began; a process that
was forked from a rank's parent shows that of the parent, and nobody could tell which rank it is.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# Fields env_start and env_end of proc(5), counted behind the name of the program.
_START, _END = 47, 48
STAT: Final = Path("/proc/self/stat")


def announce(environment: Mapping[str, str]) -> None:
    """Show this environment, and no other, where others look.

    Raises
    ------
    ValueError
        If it is longer than that with which the program was started.
    """
    # The C library still reads the old memory: it gets copies.
    os.environ.update(dict(os.environ))
    fields = STAT.read_text().rpartition(")")[2].split()
    start, end = int(fields[_START]), int(fields[_END])
    block = b"".join(f"{name}={value}\0".encode() for name, value in environment.items())
    if len(block) > end - start:
        raise ValueError(f"an environment of {len(block)} bytes, where {end - start} have room")
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, block, len(block))
