"""Rows of state in columns: one numpy array per quantity, one row per key.

State per 5-tuple lives in a few wide arrays instead of one object each, so that
a round or a window touches it with whole-array operations.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K", bound=Hashable)

FIRST_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity: its dtype, the shape of one row's value, and the value of a fresh row."""

    dtype: type
    fresh: int | float
    shape: tuple[int, ...] = ()


class Table(Generic[K]):
    """A growing set of keyed rows; a removed key's row is used again.

    >>> table = Table[str]({"seen": Column(np.int64, 0)})
    >>> row = table.row("a")
    >>> table["seen"][row] += 1
    >>> int(table["seen"][table.row("a")])
    1
    """

    def __init__(self, columns: dict[str, Column]) -> None:
        self._columns = columns
        self._arrays: dict[str, NDArray[Any]] = {
            name: np.full((FIRST_ROWS, *c.shape), c.fresh, c.dtype) for name, c in columns.items()
        }
        self._rows: dict[K, int] = {}
        self._keys: list[K | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the column's array; growth replaces it, so look it up anew after `row`."""
        return self._arrays[name]

    @property
    def capacity(self) -> int:
        """Rows that fit before the arrays grow."""
        return len(next(iter(self._arrays.values())))

    def find(self, key: K) -> int | None:
        """Return the key's row, None if there is none."""
        return self._rows.get(key)

    def find_all(self, keys: list[K]) -> list[int | None]:
        """Return the rows of many keys, None where there is none."""
        return list(map(self._rows.get, keys))

    def key(self, row: int) -> K:
        """Return the key of a row in use; raises KeyError for a free one."""
        key = self._keys[row]
        if key is None:
            raise KeyError(row)
        return key

    def rows(self) -> NDArray[np.int64]:
        """Return all rows in use, in order of their creation."""
        return np.fromiter(self._rows.values(), np.int64, len(self._rows))

    def row(self, key: K) -> int:
        """Return the key's row; a new one is fresh in every column."""
        row = self._rows.get(key)
        if row is None:
            row = self._take(key)
        return row

    def remove(self, key: K) -> None:
        """Give the key's row back."""
        row = self._rows.pop(key)
        self._keys[row] = None
        self._free.append(row)

    def _take(self, key: K) -> int:
        if self._free:
            row = self._free.pop()
            self._keys[row] = key
        else:
            row = len(self._keys)
            self._keys.append(key)
            if row == self.capacity:
                self._grow()
        for name, column in self._columns.items():
            self._arrays[name][row] = column.fresh
        self._rows[key] = row
        return row

    def _grow(self) -> None:
        for name, column in self._columns.items():
            old = self._arrays[name]
            new: NDArray[Any] = np.full((2 * len(old), *column.shape), column.fresh, column.dtype)
            new[: len(old)] = old
            self._arrays[name] = new
