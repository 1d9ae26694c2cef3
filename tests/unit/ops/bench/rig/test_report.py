"""The one bench shape: rows, marks, JSON and the page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ops.bench.rig.report import Figure, figure, read_page, render_page, titled, write_json
from tests import ROOT


def row(samples: list[float], bar: float = 3.0, *, worst: bool = False) -> Figure:
    """Return a figure with a `<=` bar."""
    return figure("delay", samples, "s", bar=bar, sense="<=", command="make x", worst=worst)


def test_the_median_is_compared_with_the_bar() -> None:
    """One bad run of three does not miss a bar on the median, but does on the worst."""
    assert row([1.0, 2.0, 9.0]).met
    assert not row([1.0, 2.0, 9.0], worst=True).met


def test_a_figure_without_runs_misses_its_bar() -> None:
    """What was not measured is not met."""
    assert row([]).value is None
    assert not row([]).met


def test_a_bar_from_below() -> None:
    """`>=` bars take the least run as the worst."""
    assert not figure(
        "right", [1.0, 0.0], "", bar=1.0, sense=">=", command="make x", worst=True
    ).met


def test_json_has_exactly_the_agreed_fields(tmp_path: Path) -> None:
    """Each row has the fields that tools rely on."""
    rows = json.loads(write_json("x", [row([1.0])], tmp_path).read_text())
    assert set(rows[0]) == {
        "figure",
        "value",
        "unit",
        "bar",
        "sense",
        "low",
        "high",
        "runs",
        "command",
        "at",
    }


def test_the_page_is_written_between_its_marks_only(tmp_path: Path) -> None:
    """Rendering twice replaces the table and leaves the prose around it alone."""
    page = tmp_path / "speed.md"
    render_page(page, [row([1.0])], "make x", "a machine")
    page.write_text("before\n" + page.read_text() + "after\n")
    render_page(page, [row([2.0])], "make x", "a machine")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| delay | 2 s |" in text
    assert "| delay | 1 s |" not in text


def test_a_figure_without_a_bar_is_told_and_judged_by_nobody(tmp_path: Path) -> None:
    """It has a dash for the bar, misses none, and notes stand below the table."""
    free = figure("PSS", [20.0], "MB", bar=None, sense="<=", command="make x")
    assert free.met
    page = tmp_path / "cost.md"
    render_page(page, [free], "make x", "a machine", ["as read somewhere"])
    assert f"| PSS | 20 MB | – | 20 – 20 | 1 | {free.at[:10]} | – |" in page.read_text()
    assert "- as read somewhere\n" in page.read_text()


def test_a_page_can_hold_two_tables(tmp_path: Path) -> None:
    """Each command writes its own."""
    page = tmp_path / "both.md"
    for command, value in (("make x", 1.0), ("make y", 2.0), ("make x", 3.0), ("make y", 4.0)):
        render_page(page, [row([value])], command, "a machine")
    text = page.read_text()
    assert [f"| delay | {n} s |" in text for n in (1, 2, 3, 4)] == [False, False, True, True]
    assert text.count("end of figures") == 2


def test_a_page_gives_back_the_rows_that_were_written(tmp_path: Path) -> None:
    """A run of one part elsewhere keeps the other rows of the page, with the digits shown."""
    rows = [
        row([1.0, 2.5]),
        figure("share", [-0.5], "", bar=0.25, sense=">=", command="make x"),
        figure("none", [], "MB an hour", bar=1.0, command="make x"),
        figure("PSS", [20_000.0], "MB", command="make x"),
    ]
    page = tmp_path / "speed.md"
    render_page(page, rows, "make x", "a machine")
    assert read_page(page, "make x") == [replace(one, at=one.at[:10]) for one in rows]
    assert read_page(page, "make y") == []
    assert read_page(tmp_path / "missing.md", "make x") == []


def test_rows_that_continue_another_are_told_apart_by_it() -> None:
    """Two parts may each have a row for their memory."""
    rows = [figure(name, [1.0]) for name in ("storm", "… RSS", "faults", "… RSS")]
    assert list(titled(rows).values()) == rows


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "figures").glob("*.md")), ids=lambda page: page.stem
)
def test_the_tables_of_the_pages_can_be_read(page: Path) -> None:
    """Each page that a bench wrote, with as many rows as it has lines."""
    for command in re.findall(r"figures: written by `(.+?)`", page.read_text()):
        table = page.read_text().partition(f"written by `{command}`")[2].partition("<!-- end")[0]
        lines = [line for line in table.splitlines() if line.startswith("| ")]
        assert len(titled(read_page(page, command))) == len(lines) - 1
