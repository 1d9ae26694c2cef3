"""Errors of the embedded servers; each message says what to do."""

import errno
from pathlib import Path
from typing import Final, Self

# Names the folder of fetched artifacts.
CACHE_ENV: Final = "SKELETONHUNTER_CACHE_DIR"
DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class EmbeddedServerError(RuntimeError):
    """An embedded server cannot be fetched, started or reached."""


class FetchError(EmbeddedServerError):
    """An artifact could not be fetched."""


class OfflineError(FetchError):
    """The Maven repository cannot be reached."""


class HashMismatchError(FetchError):
    """A fetched file is not the one that the lock file names."""


class CacheError(FetchError):
    """The cache folder is full or cannot be written to."""

    @classmethod
    def from_os_error(cls, folder: Path, error: OSError) -> Self:
        """Say what the operating system said, and what to do about it."""
        if error.errno in DISK_FULL:
            return cls(
                f"no space left for the download in {folder} ({error.strerror}): free some space, "
                f"or set {CACHE_ENV} to a folder with room; what is there already is kept"
            )
        return cls(
            f"cannot write to the cache folder {folder} ({error.strerror}): make it writable, "
            f"or set {CACHE_ENV} to a folder that is"
        )


class BrokerError(EmbeddedServerError):
    """A server does not start, or has ended by itself; the message holds the end of its log."""
