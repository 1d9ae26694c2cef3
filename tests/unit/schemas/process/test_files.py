"""Files that somebody named: regular ones are read, others are refused at once."""

import os
from pathlib import Path

import pytest

from schemas.process.files import open_regular, parse_json, read_file


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    """Whole, or not at all."""
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link") == b"abc"
    assert read_file(path, 3) == b"abc"
    with pytest.raises(OSError, match="Larger than 2 bytes"):
        read_file(path, 2)


@pytest.mark.parametrize("name", ["pipe", "folder", "missing", "a\0b", "/dev/zero"])
def test_anything_else_is_an_error_with_a_reason(tmp_path: Path, name: str) -> None:
    """Which every caller shows by `strerror`."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r".") as caught:
        open_regular(tmp_path / name)
    assert caught.value.strerror


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", "\xff".encode("latin-1")])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    """However deep it is nested."""
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
