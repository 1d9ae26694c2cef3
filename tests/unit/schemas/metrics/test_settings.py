"""`[metrics] listen`: addresses, and where they come from."""

import argparse
from pathlib import Path

import pytest

from schemas.metrics.settings import add_option, parse_listen, read_listen
from schemas.process.settings import ConfigError


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", None),
        ("9464", ("127.0.0.1", 9464)),
        (":0", ("127.0.0.1", 0)),
        ("10.0.0.1:9464", ("10.0.0.1", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("pod-3.local:1", ("pod-3.local", 1)),
    ],
)
def test_addresses(text: str, place: tuple[str, int] | None) -> None:
    """A port alone is on loopback."""
    assert parse_listen(text) == place


@pytest.mark.parametrize("text", ["localhost", "127.0.0.1:", "127.0.0.1:-1", ":70000", ":\u0663"])
def test_what_is_no_address_is_named(text: str) -> None:
    """With the setting, its value and the form that it must have."""
    with pytest.raises(ConfigError, match=r"\[metrics\] listen=.*HOST:PORT"):
        parse_listen(text)


def test_the_flag_comes_before_the_variable_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with all settings; other keys of the table are refused."""
    file = tmp_path / "s.toml"
    file.write_text('[metrics]\nlisten = "1"\n')
    parser = add_option(argparse.ArgumentParser())
    parser.add_argument("--config", type=Path)

    def read(*arguments: str) -> str:
        return read_listen(vars(parser.parse_args(["--config", str(file), *arguments])))

    assert read() == "1"
    monkeypatch.setenv("SKELETONHUNTER_METRICS_LISTEN", "2")
    assert read() == "2"
    assert read("--metrics-listen", "3") == "3"
    file.write_text('[metrics]\nlissten = "1"\n')
    with pytest.raises(ConfigError, match="lissten: no such setting; did you mean listen"):
        read()
