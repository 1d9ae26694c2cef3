"""Results on disk: what was written is read, and what is none is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.reporting.results import (
    Result,
    ResultsError,
    by_diagnoser,
    read_results,
    to_line,
    write_results,
)
from tests.unit.arena.reporting.made import RESULTS


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Every field, also those that are empty."""
    path = tmp_path / "results.jsonl"
    assert write_results(path, RESULTS) == len(RESULTS)
    assert read_results(path) == RESULTS
    assert len(path.read_text().splitlines()) == len(RESULTS)


def test_the_same_result_has_the_same_bytes() -> None:
    """Sets are written in order."""
    assert [to_line(r) for r in RESULTS] == [to_line(r) for r in RESULTS]
    assert '"components": ["a", "b"]' in to_line(RESULTS[1])


def test_what_was_written_before_a_failure_is_there(tmp_path: Path) -> None:
    """A run of an hour that stops leaves what it had."""
    path = tmp_path / "results.jsonl"

    def broken() -> Iterator[Result]:
        yield from RESULTS[:2]
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        write_results(path, broken())
    assert read_results(path) == RESULTS[:2]


@pytest.mark.parametrize(
    "line", ["no JSON", "{}", "[]", to_line(RESULTS[0]).replace('"version": 1', '"version": 2')]
)
def test_a_line_that_is_no_result_is_named(tmp_path: Path, line: str) -> None:
    """File and line."""
    path = tmp_path / "results.jsonl"
    path.write_text(to_line(RESULTS[0]) + "\n" + line + "\n")
    with pytest.raises(ResultsError, match=r"results.jsonl, line 2: no result"):
        read_results(path)


def test_cases_by_diagnoser_keep_their_order() -> None:
    """Who comes first in the results comes first."""
    found = by_diagnoser(RESULTS)
    assert list(found) == ["ours", "other <b>"]
    assert [c.name for c in found["ours"]] == ["calm", "one", "two"]
