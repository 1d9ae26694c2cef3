"""The page on topics says what registry and schemas say."""

import json
from pathlib import Path

import pytest

from localizer.facts.states import RULES
from localizer.verdict.catalogue import KINDS
from ops.docs import kinds, topics
from schemas import avro
from schemas.topics import TOPICS


def test_the_page_is_current() -> None:
    """docs/topics.md and docs/kinds.md are what `python -m ops.docs` would write now."""
    assert topics.main(["--check"]) == 0


def test_a_stale_page_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that differs, or is missing, is told by exit code 1 and a way out."""
    monkeypatch.setattr(topics, "FOLDER", tmp_path / "docs")
    assert topics.main(["--check"]) == 1
    assert "python -m ops.docs" in capsys.readouterr().err
    assert topics.main([]) == 0
    assert topics.main(["--check"]) == 0
    for name in ("topics.md", "kinds.md"):
        page = topics.FOLDER / name
        text = page.read_text(encoding="utf-8")
        page.write_text(text + "x", encoding="utf-8")
        assert topics.main(["--check"]) == 1
        page.write_text(text, encoding="utf-8")
    assert topics.main(["--check"]) == 0


def test_every_kind_and_state_is_on_the_page_of_kinds() -> None:
    """With what it needs and what to do first; every rule names a kind that there is."""
    page = kinds.page()
    for kind in KINDS.values():
        (line,) = [li for li in page.splitlines() if li.startswith(f"| `{kind.name}` | ")]
        assert kind.symptom in line
        assert kind.runbook in line
    for rule in RULES:
        assert rule.kind in KINDS
        assert f"| `{rule.attribute}` | " in page


def test_every_field_and_topic_is_on_it() -> None:
    """No topic and no field, nested ones included, is left out; each has its doc."""
    page = topics.page()
    for topic in TOPICS:
        section = page.split(f"\n## {topic.name}\n")[1].split("\n## ")[0]
        for record in topics._records(json.loads(avro.current(topic.name).text)):
            assert f"**{record['name']}**" in section
            for field in record["fields"]:
                assert f"| `{field['name']}` | " in section
        assert topic.doc in section
        assert topic.dlq in section


def test_links_of_the_overview_lead_somewhere() -> None:
    """Each anchor in the table is that of a heading, as GitHub makes them."""
    page = topics.page()
    headings = {line[3:].replace(".", "") for line in page.splitlines() if line.startswith("## ")}
    linked = {part.split(")")[0] for part in page.split("](#")[1:]}
    assert linked == headings
    for part in page.split("](../")[1:]:
        assert (topics.FOLDER.parent / part.split(")")[0]).is_file()
