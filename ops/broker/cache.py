"""The folder of fetched artifacts, with a lock for its writer."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ops.broker.errors import CACHE_ENV, CacheError


def cache_dir() -> Path:
    """Return the folder of the cache: SKELETONHUNTER_CACHE_DIR, or the user's cache folder."""
    own = os.environ.get(CACHE_ENV)
    if own:
        return Path(own)
    import platformdirs  # noqa: PLC0415 - only where the default is asked for

    return platformdirs.user_cache_path("skeletonhunter")


@contextlib.contextmanager
def locked(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Make `folder` and hold its lock; `on_wait` is called when another process has it.

    Raises
    ------
    CacheError
        If the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("ab")
    except OSError as error:
        raise CacheError.from_os_error(folder, error) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
