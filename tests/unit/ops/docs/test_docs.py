"""The generated pages say what registry, schemas, catalogue and settings say."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from localizer.config import LocalizerConfig
from localizer.facts.states import RULES
from localizer.verdict.catalogue import KINDS
from ops.docs import kinds, settings, topics
from ops.docs.__main__ import FOLDER, PAGES, main
from probers.config.settings import OPTIONS
from schemas import avro
from schemas.topics import TOPICS
from skeleton_job.config import SkeletonConfig
from streams.config import WorkerConfig


def test_the_pages_are_current() -> None:
    """Each is what `python -m ops.docs` would write now."""
    assert main(["--check"]) == 0


def test_a_stale_page_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page that differs, or is missing, is reported by exit code 1 and a way out."""
    folder = tmp_path / "docs"
    assert main(["--check"], folder) == 1
    assert "python -m ops.docs" in capsys.readouterr().err
    assert main([], folder) == 0
    assert main(["--check"], folder) == 0
    for name in PAGES:
        page = folder / name
        text = page.read_text(encoding="utf-8")
        page.write_text(text + "x", encoding="utf-8")
        assert main(["--check"], folder) == 1
        page.write_text(text, encoding="utf-8")
    assert main(["--check"], folder) == 0


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
    """No topic and no field, nested ones included, is left out; each has its doc.

    Fields that all records have are in the introduction. A record with the fields of an earlier
    one refers to it and lists what differs.
    """
    page = topics.page()
    introduction = page.split("\n## ", maxsplit=1)[0]
    described: dict[tuple[str, ...], dict[str, Any]] = {}
    for topic in TOPICS:
        section = page.split(f"\n## {topic.name}\n")[1].split("\n## ")[0]
        schema = json.loads(avro.current(topic.name).text)
        names = tuple(field["name"] for field in schema["fields"])
        assert set(names) >= topics.COMMON_FIELDS
        assert topic.doc in section
        assert topic.dlq in section
        earlier = described.setdefault(names, schema)
        if earlier is not schema:
            assert f"**{schema['name']}** has the fields of [`{earlier['name']}`]" in section
            for field, same in zip(schema["fields"], earlier["fields"], strict=True):
                assert (f"| `{field['name']}` | " in section) == (field != same)
            continue
        for record in topics._records(schema):
            assert f"**{record['name']}**" in section
            for field in record["fields"]:
                if field["name"] in topics.COMMON_FIELDS:
                    assert f"`{field['name']}` (" in introduction
                else:
                    assert f"| `{field['name']}` | " in section


def test_links_of_the_overview_lead_somewhere() -> None:
    """Each anchor in the table is that of a heading, as GitHub makes them."""
    page = topics.page()
    headings = {line[3:].replace(".", "") for line in page.splitlines() if line.startswith("## ")}
    linked = {part.split(")")[0] for part in page.split("](#")[1:]}
    assert linked == headings
    for part in page.split("](../")[1:]:
        assert (FOLDER.parent / part.split(")")[0]).is_file()


def test_every_setting_is_on_the_page_of_settings() -> None:
    """With its table, default, bounds and meaning."""
    page = settings.page()
    for cls in (WorkerConfig, SkeletonConfig, LocalizerConfig):
        for field in fields(cls):
            start = f"| `{field.name}` | "
            (line,) = [row for row in _section(page, cls) if row.startswith(start)]
            assert len(line.rsplit(" | ", 1)[1]) > len(" |")
    for option in OPTIONS:
        assert option.doc in page


def _section(page: str, cls: type) -> list[str]:
    titles = {
        WorkerConfig: "Stream worker", SkeletonConfig: "Skeleton job", LocalizerConfig: "Localizer"
    }  # fmt: skip
    return page.split(f"## {titles[cls]}\n")[1].split("\n## ", maxsplit=1)[0].splitlines()
