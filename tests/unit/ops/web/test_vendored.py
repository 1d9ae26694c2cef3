"""Libraries of others are what they published, and their licences are with them."""

from pathlib import Path

import pytest

from ops.web.vendored import FOLDER, read_list, wrong_files
from tests import DATA, ROOT


@pytest.mark.parametrize("folder", [FOLDER, DATA / "axe"], ids=["page", "tests"])
def test_vendored_files_are_those_of_the_list(folder: Path) -> None:
    """By SHA-256; none is missing, none is there besides."""
    assert wrong_files(folder) == []
    for library in read_list(folder):
        assert library["licence"]
        assert any("LICENSE" in file["file"] for file in library["files"]), library["name"]


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    """As is one that nobody listed."""
    (tmp_path / "vendored.json").write_text(
        '[{"name": "x", "files": [{"file": "a.js", "sha256": "00"}, {"file": "b.js"}]}]'
    )
    (tmp_path / "a.js").write_text("1")
    (tmp_path / "c.js").write_text("1")
    assert [line.partition(":")[0] for line in wrong_files(tmp_path)] == ["a.js", "b.js", "c.js"]


def test_the_page_asks_nobody_else() -> None:
    """No address of another site stands in the page's own files."""
    own = [p for p in (ROOT / "ops/web/page").rglob("*") if p.is_file() and "vendor" not in p.parts]
    named = [
        p.name
        for p in own
        if "//" in p.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        and any(
            scheme in p.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            for scheme in ("http:", "https:", 'src="//')
        )
    ]
    assert named == []
