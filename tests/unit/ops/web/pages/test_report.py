"""Reports of incidents."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from ops.view.cluster import ClusterView
from ops.web.pages.incident import document
from ops.web.pages.page import Document
from ops.web.pages.report import commands, to_html, to_markdown
from schemas import topics as t
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import LINK, Log, fault, story


def of_story() -> Document:
    """Return the story's incident."""
    view = ClusterView()
    for seen in story():
        view.apply(seen)
    return document(view, {"fault": "f-1"}, START_MS + 40_000)


def test_both_forms_tell_the_story() -> None:
    """Head, time line, evidence, 5-tuples, and how to replay it."""
    replay = commands(None, START_MS, START_MS + 60_000)
    page, text = to_html([of_story()], replay), to_markdown([of_story()], replay)
    for words in ("0 good ones", "port_state up → down", "first symptom", "2026-01-01 00:00:06"):
        assert words in page
    assert "kind: packet\\_loss → connectivity" in text
    assert LINK in text
    assert "--from 2026-01-01T00:00:00.000 --to 2026-01-01T00:01:00.000" in page
    assert commands("a folder; rm -rf", 0, 0)[0] == "skeletonhunter diagnose 'a folder; rm -rf'"


def test_the_file_loads_nothing_and_runs_nothing() -> None:
    """It can be mailed, and opened years later."""
    page = to_html([of_story()], [])
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import|https?:", page)


class Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, ...]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag and the names of its attributes."""
        self.found.add((tag, *(name for name, _ in attrs)))


def tags(page: str) -> set[tuple[str, ...]]:
    """Return the tags of a page."""
    parser = Tags()
    parser.feed(page)
    return parser.found


PLAIN = tags(to_html([of_story()], []))


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_texts_of_records_are_never_markup(text: str) -> None:
    """Whatever they hold: the file has the tags it always has, and Markdown none at all."""
    view, log = ClusterView(), Log()
    event = fault(
        component_id=text, component_kind=text, fault_kind=text, severity=text, summary=text,
        tasks=(text,), evidence=(text,), cluster=text,
    )  # fmt: skip
    view.apply(log.seen(t.FAULT_EVENT, event))
    found = document(view, {"fault": "f-1"}, START_MS)
    assert tags(to_html([found], [text])) <= PLAIN | {("p",)}
    markdown = to_markdown([found], [])
    assert "<" not in markdown.replace("<br>", "")
    assert not re.search(r"(?<!\\)[\[\]]", markdown)
    # One fault's table stays a table: no text breaks its lines.
    rows = [line for line in markdown.splitlines() if line.startswith("| 2026")]
    assert len(rows) == 1
