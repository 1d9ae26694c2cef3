"""What a reader remembers of the bytes and names that it has met, within bounds of memory."""

from collections import deque
from dataclasses import fields
from itertools import chain
from sys import getsizeof
from types import NoneType
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

# What all entries of a kind may take in memory. One that says who sent a message takes 1.5 KB with
# usual names. A rank names its communicators in a few orders, one for each phase of an iteration
# in which a batch begins: six of each of 10,240 ranks take 90 MB.
MAX_KNOWN_BYTES: Final = 128_000_000
# The names of 10,240 ranks take 4 MB.
MAX_NAMES_BYTES: Final = 32_000_000
# Beside what it holds an entry takes up to four places of 30 bytes in a table that has just become
# larger (`GROWTH_RATE` in cpython/dictobject.c), and 96 bytes in the order of all.
ENTRY_BYTES: Final = 216

_PLAIN: Final = (str, bytes, int, NoneType)


class Known(Generic[T]):
    """What bytes mean, by who wrote them; the oldest are forgotten."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bytes], T] = {}
        # The oldest first, with what each takes. To look for it in the table would take long where
        # many have gone.
        self._order: deque[tuple[tuple[int, bytes], int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, writer: int, data: bytes) -> T | None:
        """Return what bytes mean; None: it is not known, or was forgotten."""
        return self._found.get((writer, data))

    def put(self, writer: int, data: bytes, value: T) -> None:
        """Note what bytes mean, which is always the same."""
        key = writer, data
        if key in self._found:
            return
        size = ENTRY_BYTES + memory_of((key, value))
        self._found[key] = value
        self._order.append((key, size))
        self._bytes += size
        while self._bytes > MAX_KNOWN_BYTES:
            oldest, size = self._order.popleft()
            del self._found[oldest]
            self._bytes -= size


class SharedNames:
    """Equal names as one object; once they take too much memory it begins anew.

    `sys.intern` is no choice: Python 3.12.0 to 3.12.6 never free what it was given (cpython
    #113993). Nor is `schemas.process.names`, unless a process regularly looks through all of them.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._names)

    def shared(self, name: str) -> str:
        """Return the one object for an equal name, which may be this one."""
        known = self._names.get(name)
        if known is not None:
            return known
        self._bytes += ENTRY_BYTES + getsizeof(name)
        if self._bytes > MAX_NAMES_BYTES:
            # Whoever holds one keeps it; only the next equal name is another object.
            self._names.clear()
            self._bytes = ENTRY_BYTES + getsizeof(name)
        self._names[name] = name
        return name


def memory_of(value: object) -> int:
    """Return the bytes that a value takes, with all that its tuples and records hold.

    An object that it holds twice counts once.
    """
    found: dict[int, object] = {}
    level = {id(value): value}
    while level:
        found |= level
        parts = chain.from_iterable(
            each if isinstance(each, tuple) else _fields_of(each)
            for each in level.values()
            if not isinstance(each, _PLAIN)
        )
        level = {id(part): part for part in parts if id(part) not in found}
    return sum(map(getsizeof, found.values()))


def _fields_of(record: Any) -> list[object]:
    return [getattr(record, each.name) for each in fields(record)]
