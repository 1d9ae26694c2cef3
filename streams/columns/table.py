"""Rows of state in columns: one numpy array per quantity, one row per key.

State per 5-tuple lives in a few wide arrays instead of one object each, so that
a round or a window touches it with whole-array operations.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=np.generic)

FIRST_ROWS: Final = 256
# Tables of more rows than this grow by a quarter: half of what doubling takes lies idle.
LARGE_ROWS: Final = 32_768
NO_ROW: Final = -1
# Rows by their number: one object for all tables, where each of them would have its own.
_NUMBERS: Final[list[int]] = []
# Partitions are rebuilt in several threads. What is in the list stays as it is.
_GROWING: Final = threading.Lock()


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
        # Rows that fit before the arrays grow.
        self.capacity = FIRST_ROWS
        self._arrays: dict[str, NDArray[Any]] = {
            name: grown(np.zeros((0, *c.shape), c.dtype), FIRST_ROWS, c.fresh)
            for name, c in columns.items()
        }
        self._rows: dict[K, int] = {}
        self._keys: list[K | None] = []
        # By row, whether it has a key.
        self._in_use = np.zeros(FIRST_ROWS, np.bool_)
        self._free: list[int] = []
        # Told of each row whose key is removed.
        self.on_removed: list[Callable[[int], None]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the column's array; growth replaces it, so look it up anew after `row`."""
        return self._arrays[name]

    @property
    def rows_ever(self) -> int:
        """Rows that have been used; those behind them are fresh."""
        return len(self._keys)

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

    def kept(self, key: K) -> K:
        """Return the key as it is kept here, or this one; also while another thread removes it."""
        row = self._rows.get(key)
        found = None if row is None else self._keys[row]
        # By now the row may be nobody's, or another key's.
        return found if found is not None and found == key else key

    def rows(self) -> NDArray[np.int64]:
        """Return all rows in use, ascending."""
        return np.flatnonzero(self._in_use)

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
        self._in_use[row] = False
        self._free.append(row)
        for told in self.on_removed:
            told(row)

    def _take(self, key: K) -> int:
        if self._free:
            row = self._free.pop()
            self._keys[row] = key
            for name, column in self._columns.items():
                self._arrays[name][row] = column.fresh
        else:
            row = _number(len(self._keys))
            self._keys.append(key)
            if row == self.capacity:
                self._grow()
        self._rows[key] = row
        self._in_use[row] = True
        return row

    def _grow(self) -> None:
        before = self.capacity
        self.capacity += before if before < LARGE_ROWS else before // 4
        self._in_use = grown(self._in_use, self.capacity)
        for name, column in self._columns.items():
            self._arrays[name] = grown(self._arrays[name], self.capacity, column.fresh)


class Links(Generic[K]):
    """Rows of one table by the rows of another that have the same keys, looked up once.

    >>> one, other = Table[str]({"n": Column(int, 0)}), Table[str]({"n": Column(int, 0)})
    >>> links = Links(one, other)
    >>> row = one.row("a")
    >>> links.find(np.array([row])).tolist()
    [-1]
    >>> links.make(np.array([row])).tolist() == [other.find("a")]
    True
    """

    def __init__(self, source: Table[K], target: Table[K]) -> None:
        self._source = source
        self._target = target
        self._to = np.full(FIRST_ROWS, NO_ROW, np.int32)
        self._back = np.full(FIRST_ROWS, NO_ROW, np.int32)
        source.on_removed.append(self._source_removed)
        target.on_removed.append(self._target_removed)

    def find(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the target's rows, NO_ROW where it does not have the key."""
        return self._linked(rows, self._target.find)

    def make(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the target's rows, making those that are not there."""
        return self._linked(rows, self._target.row)

    def _linked(
        self, rows: NDArray[np.int64], look_up: Callable[[K], int | None]
    ) -> NDArray[np.int64]:
        self._to = _widened(self._to, self._source.capacity)
        for row in rows[self._to[rows] == NO_ROW].tolist():
            found = look_up(self._source.key(row))
            if found is not None:
                self._back = _widened(self._back, self._target.capacity)
                self._to[row], self._back[found] = found, row
        return self._to[rows].astype(np.int64)

    def _source_removed(self, row: int) -> None:
        if row < len(self._to) and self._to[row] != NO_ROW:
            self._back[self._to[row]] = self._to[row] = NO_ROW

    def _target_removed(self, row: int) -> None:
        if row < len(self._back) and self._back[row] != NO_ROW:
            self._to[self._back[row]] = self._back[row] = NO_ROW


def _number(row: int) -> int:
    if row >= len(_NUMBERS):
        with _GROWING:
            _NUMBERS.extend(range(len(_NUMBERS), row + 1))
    return _NUMBERS[row]


def grown(old: NDArray[T], rows: int, fresh: float = 0) -> NDArray[T]:
    """Return an array of so many rows, the old ones first; of zeros no memory is taken yet."""
    new = np.zeros((rows, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    if fresh:
        new[len(old) :] = fresh
    return new


def _widened(rows: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    return rows if size <= len(rows) else grown(rows, size, NO_ROW)
