"""Compiles kernels with numba, and keeps their machine code on disk.

numba's own cache compares the file of a function only. The code that it keeps also depends on
the functions inlined into that function and on constants of other modules. So the code is kept in
a folder whose name is a digest of all sources that can be part of it.
"""

import hashlib
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

import schemas

F = TypeVar("F", bound=Callable[..., Any])

DIGEST_CHARS: Final = 16


def cache_folder(package: str) -> Path | None:
    """Return the folder of the machine code of a package's kernels.

    Parameters
    ----------
    package
        A top-level package that is being imported. Its kernels may use anything of this package
        and of `schemas`.

    Returns
    -------
    Path or None
        A folder beside this module, or else in the user's cache; None if neither can be written.
    """
    folders = {
        Path(cast(str, module.__file__)).parent for module in (schemas, sys.modules[package])
    }
    digest = hashlib.sha256()
    for source in sorted(path for folder in folders for path in folder.rglob("*.py")):
        digest.update(source.read_bytes())
    name = f"kernels-{digest.hexdigest()[:DIGEST_CHARS]}"
    for place in (Path(__file__).parent / "__pycache__", Path("~/.cache/skeletonhunter")):
        folder = place.expanduser() / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except (OSError, RuntimeError):
            continue
    return None


_folder = cache(cache_folder)


def compiled(function: F) -> F:
    """Compile a function at its first call.

    Without reference counts, for it makes no arrays: counting would take most of the time.
    """
    return _jit(function, inline="never")


def inlined(function: F) -> F:
    """Compile a function into each of its callers."""
    return _jit(function, inline="always")


def _jit(function: F, inline: str) -> F:
    # Neither the folder nor `_nrt` is in numba's type stubs.
    config, njit = cast(Any, numba.config), cast(Any, numba.njit)
    folder = _folder(function.__module__.partition(".")[0])
    before = config.CACHE_DIR
    config.CACHE_DIR = "" if folder is None else str(folder)
    try:
        jit = njit(
            nogil=True, _nrt=False, inline=inline, error_model="numpy", cache=folder is not None
        )
        return cast(F, jit(function))
    finally:
        config.CACHE_DIR = before


@intrinsic
def _load_word(_context: Any, data: Any, at: Any) -> Any:
    signature = types.uint64(data, at)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return signature, generate


@intrinsic
def _store_word(_context: Any, data: Any, at: Any, _word: Any) -> Any:
    signature = types.void(data, at, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        builder.store(arguments[2], builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _low_zeros(_context: Any, _word: Any) -> Any:
    signature = types.uint64(types.uint64)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return signature, generate


@intrinsic
def _high_zeros(_context: Any, _word: Any) -> Any:
    signature = types.uint64(types.uint64)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return signature, generate


# The 8 bytes of a uint8 array from a place on, little-endian; no bound is checked.
load_word = cast(Callable[[NDArray[np.uint8], int], np.uint64], _load_word)
# The same written.
store_word = cast(Callable[[NDArray[np.uint8], int, np.uint64], None], _store_word)
# How many of a word's lowest bits are 0; 64 for 0.
low_zeros = cast(Callable[[np.uint64], np.uint64], _low_zeros)
# The same of its highest bits.
high_zeros = cast(Callable[[np.uint64], np.uint64], _high_zeros)
