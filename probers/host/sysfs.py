"""Reads text files of the kernel (sysfs, procfs): bounded in size; None if not readable."""

import os
from itertools import islice
from typing import Final

# A sysfs attribute is one page at most (Documentation/filesystems/sysfs.rst).
PAGE_BYTES: Final = 4_096
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def read_text(path: str, limit_bytes: int = PAGE_BYTES) -> str | None:
    """Return the stripped text of a file, cut at the limit; None: not there, or not readable."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        content = os.read(descriptor, limit_bytes)
        # procfs gives a page at a time; a sysfs attribute ends before its page does.
        while content and len(content) < limit_bytes and limit_bytes > PAGE_BYTES:
            more = os.read(descriptor, limit_bytes - len(content))
            if not more:
                break
            content += more
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content.decode("ascii", "replace").strip()


def read_bytes(path: str, offset: int, count: int) -> bytes:
    """Return bytes of a binary attribute; fewer, or none, where it ends or may not be read."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(descriptor, count, offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def names_in(folder: str, limit: int) -> list[str]:
    """Return the first names in a folder, sorted; none where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, limit))
    except (OSError, ValueError):
        return []


def link_name(path: str) -> str | None:
    """Return the last part of what a symbolic link points to; None: there is no link."""
    try:
        return os.path.basename(os.readlink(path)) or None
    except (OSError, ValueError):
        return None
