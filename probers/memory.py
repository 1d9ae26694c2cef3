"""Keeps the agent's memory small: it shares its host with a training job.

`hashlib` loads OpenSSL's libcrypto (3.6 MB) when it finds the module `_hashlib`. The agent
computes few hashes, and CPython's own do. fastavro imports `cramjam` where it is installed (1.6
MB), and always `bz2` and `lzma` (0.4 MB), for compressed files that the agent never reads. A
module that is None in `sys.modules` counts as not installed (Python reference, "The import
system"); where fastavro insists on a module, an empty one takes its place.

`dataclasses` imports `inspect`, and with it `ast` and `dis` (0.8 MB), for classes without a
docstring; `logging` imports `traceback`, and with it `tokenize` (0.3 MB), for exceptions. Lazy
modules take their places: each is loaded when one of its attributes is asked for.
"""

import importlib
import importlib.util
import sys
from threading import RLock
from types import ModuleType
from typing import Any, Final

LAZY: Final = ("inspect", "traceback")
UNNEEDED: Final = ("_hashlib", "cramjam")
EMPTY: Final = ("bz2", "lzma")
# CPython's own hashes; a build without them needs OpenSSL's.
_BUILTIN_HASHES: Final = ("_md5", "_sha1", "_sha256", "_sha512", "_sha3", "_blake2")
# Two threads that ask at once get one module.
_LOADING: Final = RLock()


class _Lazy(ModuleType):
    """Stands for a module until one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        with _LOADING:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return getattr(importlib.import_module(self.__name__), name)


def hide_unneeded_modules() -> None:
    """Hide modules that the agent does not need; to be called before anything imports them."""
    for name in LAZY:
        sys.modules.setdefault(name, _Lazy(name))
    for name in EMPTY:
        sys.modules.setdefault(name, ModuleType(name))
    if any(importlib.util.find_spec(name) is None for name in _BUILTIN_HASHES):
        return
    for name in UNNEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
