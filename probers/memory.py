"""Keeps the agent's memory small: it shares its host with a training job.

`hashlib` loads OpenSSL's libcrypto (3.6 MB) when it finds the module `_hashlib`. The agent
computes few hashes, and CPython's own do. fastavro imports `cramjam` where it is installed (1.6
MB), and always `bz2` and `lzma` (0.4 MB), for compressed files that the agent never reads. A
module that is None in `sys.modules` counts as not installed (Python reference, "The import
system"); where fastavro insists on a module, an empty one takes its place.
"""

import contextlib
import ctypes
import importlib.util
import sys
from types import ModuleType
from typing import Final

UNNEEDED: Final = ("_hashlib", "cramjam")
EMPTY: Final = ("bz2", "lzma")
# CPython's own hashes; a build without them needs OpenSSL's.
_BUILTIN_HASHES: Final = ("_md5", "_sha1", "_sha256", "_sha512", "_sha3", "_blake2")
# glibc's malloc.h.
_M_ARENA_MAX: Final = -8
# The C library that this process has anyway.
_C: Final = ctypes.CDLL(None)


def hide_unneeded_modules() -> None:
    """Hide modules that the agent does not need; to be called before anything imports them."""
    for name in EMPTY:
        sys.modules.setdefault(name, ModuleType(name))
    if any(importlib.util.find_spec(name) is None for name in _BUILTIN_HASHES):
        return
    for name in UNNEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def use_one_arena() -> None:
    """Let all threads allocate from one heap; to be called before a second thread starts.

    glibc gives each thread a heap of its own, and librdkafka has eight threads that are
    never busy at once: what one of them has freed is of no use to the others. Elsewhere
    nothing happens.
    """
    with contextlib.suppress(AttributeError):
        _C.mallopt(_M_ARENA_MAX, 1)
