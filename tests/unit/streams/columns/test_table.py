"""Rows of state."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import streams.columns.table as table_module
from streams.columns.table import FIRST_ROWS, Column, Table


def make() -> Table[str]:
    """Return a table with a scalar and a vector column."""
    return Table({"n": Column(np.int64, -1), "ring": Column(np.int32, 0, (4,))})


def test_rows_survive_growth() -> None:
    """Values stay with their keys when the arrays grow, and new rows are fresh."""
    table = make()
    for i in range(3 * FIRST_ROWS):
        row = table.row(f"k{i}")
        assert table["n"][row] == -1
        table["n"][row] = i
        table["ring"][row, i % 4] = i
    for i in (0, FIRST_ROWS - 1, FIRST_ROWS, 3 * FIRST_ROWS - 1):
        row = table.row(f"k{i}")
        assert table["n"][row] == i
        assert table["ring"][row].sum() == i
    assert len(table) == 3 * FIRST_ROWS


def test_removed_row_is_fresh_for_the_next_key() -> None:
    """A removed key is gone; its row comes back with fresh values."""
    table = make()
    row = table.row("a")
    table["n"][row] = 7
    table.remove("a")
    assert table.find("a") is None
    with pytest.raises(KeyError):
        table.key(row)
    assert table.row("b") == row
    assert table["n"][row] == -1
    assert table.find_all(["a", "b"]) == [None, row]
    assert table.rows().tolist() == [row]


class Slow(list[int]):
    """A list that lets other threads run before it grows."""

    def extend(self, more: Iterable[int]) -> None:
        """Grow, after a moment."""
        time.sleep(1e-4)
        super().extend(more)


def test_tables_of_several_threads_number_their_rows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the numbers, and partitions are rebuilt side by side."""
    monkeypatch.setattr(table_module, "_NUMBERS", Slow())
    keys = [f"k{n}" for n in range(200)]

    def fill() -> list[int]:
        table = make()
        return [table.row(key) for key in keys]

    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(fill) for _ in range(3)]
    assert [each.result() for each in found] == [list(range(len(keys)))] * 3
