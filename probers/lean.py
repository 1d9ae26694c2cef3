"""Keeps out what the standard library would load for functions an agent never calls.

`hashlib` loads OpenSSL's libcrypto when it finds `_hashlib` (3.6 MB), for faster
hashes of which the agent computes one at start; without it, CPython's own are used.
fastavro imports `cramjam` where it is installed (1.6 MB), for compressed files the
agent never reads. A module that is None in `sys.modules` counts as not there
(Python reference, "The import system").
"""

import importlib.util
import sys
from typing import Final

UNNEEDED: Final = ("_hashlib", "cramjam")
# CPython's own hashes; a build without them needs OpenSSL's.
_BUILTIN_HASHES: Final = ("_md5", "_sha1", "_sha256", "_sha512", "_sha3", "_blake2")


def skip_unneeded() -> None:
    """Hide the modules, before anything imports them."""
    if any(importlib.util.find_spec(name) is None for name in _BUILTIN_HASHES):
        return
    for name in UNNEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
