"""Keeps the agent's memory small: it shares its host with a training job.

`hashlib` loads OpenSSL's libcrypto (3.6 MB) when it finds the module `_hashlib`. The agent
computes few hashes, and CPython's own do. fastavro imports `cramjam` where it is installed (1.6
MB), and always `bz2` and `lzma` (0.4 MB), for compressed files that the agent never reads. A
module that is None in `sys.modules` counts as not installed (Python reference, "The import
system"); where fastavro insists on a module, an empty one takes its place.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Final

UNNEEDED: Final = ("_hashlib", "cramjam")
EMPTY: Final = ("bz2", "lzma")
# CPython's own hashes; a build without them needs OpenSSL's.
_BUILTIN_HASHES: Final = ("_md5", "_sha1", "_sha256", "_sha512", "_sha3", "_blake2")


def hide_unneeded_modules() -> None:
    """Hide modules that the agent does not need; to be called before anything imports them."""
    for name in EMPTY:
        sys.modules.setdefault(name, ModuleType(name))
    if any(importlib.util.find_spec(name) is None for name in _BUILTIN_HASHES):
        return
    for name in UNNEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
