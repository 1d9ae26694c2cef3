"""The command line: checks, the registry, what is loaded when."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from probers import cli
from probers.publish.codec import make_codec
from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import RegistryError
from tests.unit.probers.makers import endpoint

KNOWN = frozenset(
    f"{topic.name}-value"
    for topic in topics.TOPICS
    if topics.AGENT in topic.producers + topic.consumers
)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Put back the log handlers that a command sets up for its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class _Handler(BaseHTTPRequestHandler):
    """Knows some subjects by name, and gives each an id."""

    known: frozenset[str] = KNOWN
    asked: int = 0

    def do_POST(self) -> None:
        """Answer the lookup of a schema."""
        type(self).asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        subject = self.path.removeprefix("/subjects/")
        if subject in self.known:
            body = json.dumps({"id": 100 + sorted(KNOWN).index(subject)}).encode()
            self.send_response(200)
        else:
            body = b"{}"
            self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[type[_Handler]]:
    """Run a registry on loopback; its address is the class's `url`."""
    handler = type("Handler", (_Handler,), {})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    handler.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def settings(registry: type[_Handler]) -> KafkaSettings:
    """Return settings that name the registry."""
    return KafkaSettings(
        bootstrap="127.0.0.1:1",
        registry_url=registry.url,  # type: ignore[attr-defined]
    )


def test_with_a_registry_all_schemas_are_looked_up_at_the_start(
    registry: type[_Handler],
) -> None:
    """Afterwards nothing is asked: the loop never waits for the registry to encode."""
    codec = make_codec(settings(registry), topics.AGENT)
    asked = registry.asked
    assert asked == len(KNOWN)
    value = codec.encode(topics.ENDPOINT, endpoint("w0/r0"))
    assert value[0] == 0
    assert codec.decode(topics.ENDPOINT, value) == endpoint("w0/r0")
    assert registry.asked == asked


def test_a_schema_that_is_not_registered_is_told_at_the_start(registry: type[_Handler]) -> None:
    """With what to do about it."""
    registry.known = KNOWN - {"probe.round.v1-value"}
    with pytest.raises(RegistryError, match="schemas register"):
        make_codec(settings(registry), topics.AGENT)


def test_check_reads_the_settings_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a deployment's tests: exit code 0 and one line."""
    config = tmp_path / "agent.toml"
    config.write_text(
        '[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[agent]\nhost_id = "h0"\n'
        '[[agent.rnic]]\nrail = 0\naddress = "127.0.0.1"\n'
    )
    assert cli.main(["--config", str(config), "--check"]) == 0
    assert capsys.readouterr().out == "agent-h0: settings are good, 1 RNICs\n"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[agent]\nlog_level = 'LOUD'\n[[agent.rnic]]\nrail=0\naddress='127.0.0.1'", "LOUD"),
        ("[agent]\nspeed = 1\n[[agent.rnic]]\nrail=0\naddress='127.0.0.1'", "speed"),
        ("[agent", "config file"),
        ("", "RNICs"),
    ],
)
def test_bad_files_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, part: str
) -> None:
    """Exit code 2; the sentence names the setting."""
    config = tmp_path / "agent.toml"
    config.write_text(text)
    assert cli.main(["--config", str(config), "--bootstrap", "127.0.0.1:1"]) == 2
    assert part in capsys.readouterr().err


def test_a_host_namespace_that_is_not_there_is_told_at_the_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line names it; the exit code is that of the environment."""
    config = tmp_path / "agent.toml"
    config.write_text(
        '[agent]\nhost_id = "h0"\n[[agent.rnic]]\nrail = 0\naddress = "10.0.0.1"\n'
        'host_netns = "no-such-one"\ncounters = "/sys/class/net/r0/statistics"\n'
    )
    arguments = ["--config", str(config), "--bootstrap", "127.0.0.1:1", "--log-json"]
    assert cli.main(arguments) == 3
    captured = capfd.readouterr()
    assert "network namespace /run/netns/no-such-one" in captured.out + captured.err
