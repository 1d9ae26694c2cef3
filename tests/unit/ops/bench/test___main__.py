"""What a run of a bench writes."""

import sys
from pathlib import Path

import pytest

from ops.bench import __main__ as command
from ops.bench.collectives import collectives
from ops.bench.rig.report import Figure, Say, figure


@pytest.mark.parametrize("measured", [[], [figure("said", [1.0], "", 1, ">=")]])
def test_a_run_that_measures_nothing_leaves_the_page(
    measured: list[Figure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a part that lacks root or JAX: the page would tell of a run of today."""

    def part(_runs: int, _say: Say, **_further: object) -> list[Figure]:
        return measured

    page = tmp_path / "page.md"
    page.write_text("# as it was\n")
    monkeypatch.setitem(command.PAGES, "collectives", page)
    monkeypatch.setattr(collectives, "PARTS", {"unrecorded": part})
    monkeypatch.setattr(command, "kept_rows", lambda *_: [])
    monkeypatch.setattr(command, "write_json", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["bench", "collectives", "--only", "unrecorded"])
    assert command.main() == 0
    assert (page.read_text() != "# as it was\n") is bool(measured)
