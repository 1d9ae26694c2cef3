"""Posts: what is tried again, what is given up, and whom the bridge trusts."""

import socket
import ssl
from pathlib import Path

import pytest

from ops.bench.operator.receivers import Receiver, receiving
from ops.bridge.http import Client, Outcome
from schemas.process.settings import ConfigError
from tests.certificates import make_certificates


class Answering(Receiver):
    """Answers everything with one status."""

    status = 200

    def take(self, _post: object) -> int | None:
        """Return the status."""
        return self.status


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.DELIVERED), (202, Outcome.DELIVERED), (400, Outcome.REFUSED),
        (413, Outcome.REFUSED), (401, Outcome.FAILED), (404, Outcome.FAILED),
        (429, Outcome.FAILED), (503, Outcome.FAILED), (302, Outcome.FAILED),
    ],
)  # fmt: skip
def test_what_a_status_means(status: int, outcome: Outcome) -> None:
    """A wrong key or address is put right by somebody; what is malformed stays so."""
    server = Answering()
    server.status = status
    with receiving(server):
        answer = Client(timeout_s=5).post(server.url, b"{}", {"authorization": "Bearer s3"})
    assert answer.outcome is outcome
    assert "s3" not in answer.reason


def test_who_does_not_answer_is_tried_again() -> None:
    """Nobody listens, a name that nobody has, and an answer that never ends."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        client = Client(timeout_s=0.2)
        assert client.post(silent_url, b"", {}).outcome is Outcome.FAILED
    assert client.post(silent_url, b"", {}).outcome is Outcome.FAILED
    assert client.post("http://nowhere.invalid/", b"", {}).outcome is Outcome.FAILED


def test_certificates_are_checked(tmp_path: Path) -> None:
    """Without its authority a server is not trusted; a file that is none stops the bridge."""
    files = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server_pem)
    with receiving(Receiver(), context) as server:
        refused = Client(timeout_s=5).post(server.url, b"{}", {})
        trusted = Client(timeout_s=5, ca_file=str(files.ca)).post(server.url, b"{}", {})
    assert (refused.outcome, trusted.outcome) == (Outcome.FAILED, Outcome.DELIVERED)
    assert "certificate" in refused.reason.lower()
    with pytest.raises(ConfigError, match="ca_file"):
        Client(timeout_s=5, ca_file=str(tmp_path / "none"))
