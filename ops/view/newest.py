"""The newest items of a stream, as many as are to be kept."""

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Room beyond the bound, as a share of it: sorting out the oldest then costs little an item.
SLACK: Final = 4


class Newest(Generic[K, V]):
    """A mapping that keeps the items with the latest times.

    What is kept does not depend on the order in which partitions are read: an item is dropped only
    when `limit` others are newer.

    Parameters
    ----------
    limit
        How many are kept for certain; a quarter more may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: dict[K, tuple[int, V]] = {}
        self.dropped = 0

    def put(self, key: K, at_ms: int, value: V) -> None:
        """Keep an item; one with the same key is replaced."""
        self._items[key] = (at_ms, value)
        if len(self._items) > self._limit + max(1, self._limit // SLACK):
            self._drop_oldest()

    def get(self, key: K) -> V | None:
        """Return the item with that key."""
        found = self._items.get(key)
        return None if found is None else found[1]

    def remove(self, key: K) -> None:
        """Forget the item with that key, if there is one."""
        self._items.pop(key, None)

    def values(self) -> Iterator[V]:
        """Yield what is kept, in no particular order."""
        return (value for _, value in self._items.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values, in no particular order."""
        return ((key, value) for key, (_, value) in self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def copy(self) -> "Newest[K, V]":
        """Return a mapping with the same items that changes by itself."""
        other: Newest[K, V] = Newest(self._limit)
        other._items = self._items.copy()
        other.dropped = self.dropped
        return other

    def _drop_oldest(self) -> None:
        # By key where times are equal, so that it does not matter which came first.
        oldest = sorted(self._items, key=lambda key: (self._items[key][0], repr(key)))
        for key in oldest[: len(self._items) - self._limit]:
            del self._items[key]
            self.dropped += 1
