"""The key file: what it may hold and who may read it."""

import os
from pathlib import Path

import pytest

from probers.config.keys import read_keys
from probers.config.settings import build_config
from schemas.process.settings import ConfigError

KEY = "k" * 32


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    """Return a file with that text and mode."""
    path = folder / "probe.key"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_keys_are_lines_without_comments(tmp_path: Path) -> None:
    """One key a line, in order; blank lines and comments do not count."""
    path = written(tmp_path, f"# made on Monday\n{KEY}\n\n  {'o' * 20}  \n")
    assert read_keys(path) == (KEY.encode(), b"o" * 20)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (KEY, 0o644, "chmod 600"),
        ("# nothing\n", 0o600, "0 keys"),
        (f"{KEY}\n" * 5, 0o600, "5 keys"),
        ("short\n", 0o600, "key 1 has less than 16 bytes"),
        ("x" * 5_000, 0o600, "4096 bytes at most"),
    ],
)
def test_a_bad_file_is_refused_with_what_to_do(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    """The message says what is wrong, and never a key."""
    with pytest.raises(ConfigError, match=why) as caught:
        read_keys(written(tmp_path, text, mode))
    assert KEY not in str(caught.value)


def test_a_missing_file_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    """An agent that should have a key does not start without it."""
    table = {"probe_key_file": str(tmp_path / "none"), "rnic": [{"rail": 0, "address": "10.0.0.1"}]}
    with pytest.raises(ConfigError, match=r"probe_key_file .*No such file"):
        build_config({}, {}, table)


def test_the_settings_hold_the_keys_and_do_not_show_them(tmp_path: Path) -> None:
    """What prints the settings prints no key."""
    path = written(tmp_path, KEY)
    table = {"probe_key_file": str(path), "rnic": [{"rail": 0, "address": "10.0.0.1"}]}
    config = build_config({}, {}, table)
    assert config.probe_keys == (KEY.encode(),)
    assert KEY not in repr(config)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A FIFO would be waited for for ever; a folder and a NUL are no files either."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for path, why in (
        (fifo, "Not a regular file"),
        (tmp_path, "directory"),
        (Path("/dev/zero"), "Not a regular file"),
        (tmp_path / "a\0b", "null"),
    ):
        with pytest.raises(ConfigError, match=why):
            read_keys(path)
