"""Operations of many batches in one array are those of each batch."""

from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.batch_operations import (
    BatchOperations,
    check_references,
    greatest_references,
)
from localizer.collectives.operation_columns import ROW, ROWS
from localizer.collectives.rank_operations import RankOperations
from schemas.columns.interpreter import NULL
from schemas.records import CollectiveOp
from schemas.records.batches import BatchError, Tables
from tests.unit.localizer.collectives.test_rank_operations import OPERATIONS

KEEP: Final = 2
REFERENCES: Final = ("communicator", "signature", "stack", "missing_reason")


@given(batches=st.lists(st.lists(OPERATIONS, max_size=8), min_size=1, max_size=5))
def test_where_operations_stand_does_not_matter(batches: list[list[CollectiveOp]]) -> None:
    """What comes before and behind them, and whether the array ends with them."""
    parts = [BatchOperations.of_records(batch) for batch in batches]
    ends = np.cumsum([len(part) for part in parts])
    numbers = np.concatenate([part.numbers for part in parts], axis=1)
    wide = np.zeros((ROWS, numbers.shape[1] + 3), np.int64)
    wide[:, :-3] = numbers
    for held in (numbers, wide[:, :-3], wide[:-1]):
        alone, among = RankOperations(), RankOperations()
        for part, end in zip(parts, ends.tolist(), strict=True):
            same = replace(part, numbers=held, begin=end - len(part), end=end)
            assert same.columns().records() == part.columns().records()
            one = alone.apply(part, KEEP, whole=False)
            other = among.apply(same, KEEP, whole=False)
            assert one.numbers.tolist() == other.numbers.tolist()
            assert alone.records() == among.records()
    greatest = greatest_references(numbers, ends)
    for part, row in zip(parts, greatest.tolist(), strict=True):
        own = part.numbers[[ROW[name] for name in REFERENCES]]
        assert row == [max(values, default=NULL) for values in own.tolist()]


@pytest.mark.parametrize("place", range(4))
def test_an_index_beyond_what_the_batch_holds_is_an_error(place: int) -> None:
    """Of communicators, signatures, stacks and reasons; an index is less than their number."""
    tables = Tables((), (), ())
    none = [NULL] * 4
    check_references(none, (), tables)
    with pytest.raises(BatchError, match="beyond the 0"):
        check_references([*none[:place], 0, *none[place + 1 :]], (), tables)
