"""Where an agent may listen."""

import pytest

from probers.config.health import MAX_PATH_BYTES, parse_health
from probers.config.settings import build_config
from schemas.process.settings import ConfigError

RNIC = {"rail": 0, "address": "10.0.0.1"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("unix:/run/a.sock", "unix:/run/a.sock"),
        ("127.0.0.1:9464", "127.0.0.1:9464"),
        ("127.8.0.1:1", "127.8.0.1:1"),
        ("[::1]:9464", "[::1]:9464"),
        ("exposed:0.0.0.0:9464", "0.0.0.0:9464"),
        ("exposed:[2001:db8::1]:65535", "[2001:db8::1]:65535"),
    ],
)
def test_addresses_that_are_taken(text: str, shown: str) -> None:
    """Unix sockets, loopback, and others by the word that says so."""
    assert str(parse_health(text)) == shown


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0.0.0.0:9464", "exposed:"),
        ("[::]:9464", "exposed:"),
        ("10.0.0.17:9464", "exposed:"),
        ("localhost:9464", "unix:/PATH"),
        ("exposed:", "unix:/PATH"),
        ("9464", "unix:/PATH"),
        ("127.0.0.1:0", "port"),
        ("127.0.0.1:65536", "port"),
        ("127.0.0.1:٣", "port"),
        ("unix:agent.sock", "absolute"),
        ("unix:/" + "x" * MAX_PATH_BYTES, "at most"),
    ],
)
def test_addresses_that_are_refused(text: str, part: str) -> None:
    """What other hosts can reach is named as such; the sentence says what to write."""
    with pytest.raises(ValueError, match="health=") as caught:
        parse_health(text)
    assert part in str(caught.value)


def test_nothing_listens_unless_told() -> None:
    """The default is nowhere; what is wrong is told with all else that is."""
    assert build_config({}, {}, {"rnic": [RNIC]}).health is None
    with pytest.raises(ConfigError, match=r"exposed:.*") as caught:
        build_config({}, {}, {"rnic": [RNIC], "health": "0.0.0.0:1", "speed": 1})
    assert "speed" in str(caught.value)
