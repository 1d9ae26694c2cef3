"""The report: what its tables say, and that the page holds all of it and needs nothing else."""

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from arena.reporting.page import page, write_report
from arena.reporting.results import by_diagnoser
from arena.reporting.tables import (
    FALSE,
    GRADES,
    MISSED,
    UNDEFINED,
    confusion,
    failures,
    headings,
    rows,
)
from tests.unit.arena.reporting.made import OTHER, RESULTS

CASES = by_diagnoser(RESULTS)


def cell(name: str, heading: str) -> tuple[str, bool]:
    """Return a cell's text, and whether it is the best of its column."""
    found = rows(CASES)[name][headings().index(heading)]
    return found.text, found.best


def test_the_table_holds_scores_and_marks_the_best() -> None:
    """By hand: ours is right twice; the other missed one, misplaced one and cried wolf once."""
    assert cell("ours", "precision") == ("100.0 %", True)
    assert cell(OTHER, "precision") == ("50.0 %", False)
    assert cell(OTHER, "recall, hard") == ("100.0 %", True)
    assert cell(OTHER, "recall, gray") == ("0.0 %", False)
    assert cell(OTHER, "place, top 1") == ("0.0 %", False)
    assert cell("ours", "kind") == ("100.0 %", True)
    assert cell("ours", "false pages a month") == ("0", True)
    assert cell(OTHER, "false pages a month") == ("240", False)
    assert cell("ours", "delay, hard") == ("10.0 s", True)
    assert cell(OTHER, "delay, hard") == ("50.0 s", False)
    assert cell(OTHER, "delay, gray") == (UNDEFINED, False)


def test_troubles_are_worst_first_and_name_scenario_and_place() -> None:
    """None of ours; of the other a false page, a missed gray fault, a wrong place."""
    assert failures(CASES["ours"]) == []
    found = failures(CASES[OTHER])
    assert [(t.what, t.scenario) for t in found] == [
        (GRADES[1], "calm"), (GRADES[2], "two"), (GRADES[3], "one"),
    ]  # fmt: skip
    assert found[1].detail == "crc_error at a, b"
    assert found[2].detail.endswith("said: packet_loss at c, d, e and 1 more (undecided)")


def test_confusion_counts_what_was_said_for_what() -> None:
    """A kind that is as right as the true one is on the diagonal."""
    true, said, counts = confusion(CASES["ours"])
    assert true == said == ["crc_error", "port_down"]
    assert set(counts) == {("crc_error", "crc_error"), ("port_down", "port_down")}
    true, said, counts = confusion(CASES[OTHER])
    assert (true[-1], said[-1]) == (FALSE, MISSED)
    assert counts["crc_error", MISSED] == counts[FALSE, "packet_loss"] == 1


class Reader(HTMLParser):
    """Collects text, images and tags that are open at the end."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.sources: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what begins."""
        self.sources += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note what ends: the last that began."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.text.append(data)


def test_the_page_holds_everything_and_needs_nothing() -> None:
    """Names, figures, pictures, worst cases; no address of anything outside."""
    made = page(CASES, "Arena & more")
    reader = Reader()
    reader.feed(made)
    assert reader.open == []
    text = " ".join(reader.text)
    for wanted in ("Arena & more", "ours", OTHER, "3 scenarios, 2 faults", *headings(),
                   "crc_error at a, b", GRADES[2], "None: everything found"):  # fmt: skip
        assert wanted in text
    assert "<b>" not in made
    assert len(reader.sources) == 2
    for source in reader.sources:
        kind, _, data = source.partition(";base64,")
        assert kind == "data:image/svg+xml"
        picture = base64.b64decode(data).decode()
        assert "<svg" in picture
        assert not re.search(r"(?:href|src)=\"(?!#)", picture)


def test_a_report_is_the_same_twice_and_has_a_picture(tmp_path: Path) -> None:
    """The page byte by byte; the picture is one."""
    html, png = tmp_path / "a.html", tmp_path / "a.png"
    write_report(RESULTS, html, png, title="Arena")
    assert html.read_text("utf-8") == page(CASES, "Arena")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_diagnosers_that_never_spoke_can_be_reported(tmp_path: Path) -> None:
    """Silence on calm scenarios only: nothing is defined, nothing falls over."""
    calm = [r for r in RESULTS if r.case.name == "calm" and not r.case.verdicts]
    write_report(calm, tmp_path / "a.html", tmp_path / "a.png")
    assert UNDEFINED in (tmp_path / "a.html").read_text()


def test_no_results_are_no_report(tmp_path: Path) -> None:
    """Told as that."""
    with pytest.raises(ValueError, match="no results"):
        write_report([], tmp_path / "a.html")


def test_comparing_needs_no_matplotlib() -> None:
    """Only drawing does: results and runs work without it."""
    code = "import sys, arena.compare, arena.reporting.results, arena.reporting.tables; " \
           "sys.exit('matplotlib' in sys.modules)"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
