"""The Maven source against a repository on loopback that misbehaves."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ops.broker.errors import FetchError, HashMismatchError, OfflineError
from ops.broker.fetch import ATTEMPTS, fetch_artifacts
from ops.broker.lock import LockedArtifact
from ops.broker.maven import MavenSource
from tests.unit.ops.broker_files import Recorded

CONTENT = b"a jar of some kind " * 5_000
PATH = "/repo/org/test/thing/1.2/thing-1.2-all.tar.gz"
THING = LockedArtifact(
    group="org.test",
    name="thing",
    version="1.2",
    classifier="all",
    packaging="tar.gz",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


class Repository(ThreadingHTTPServer):
    """Answers with the artifact; `faults` says how each next answer goes wrong."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults: list[str] = []
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        """The repository's root."""
        return f"http://127.0.0.1:{self.server_port}/repo"


class _Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        if not self.path.endswith(".gz"):
            self.send_error(404)
            return
        self.server.asked.append(self.path)
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if self.path != PATH or fault == "missing":
            self.send_error(404)
            return
        body = b"<html>please log in</html>" if fault == "portal" else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """Serve on loopback, with jgo configured to use it instead of its own."""
    with Repository() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        config = tmp_path / "jgo.conf"
        config.write_text(f"[repositories]\ncentral = {server.address}\n")
        monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
        yield server
        server.shutdown()
        thread.join()


def fetch_thing(folder: Path, progress: Recorded | None = None) -> Path:
    """Fetch the one artifact."""
    (path,) = fetch_artifacts((THING,), folder, source=MavenSource(2), progress=progress)
    return path


def test_downloads_by_coordinate(repository: Repository, tmp_path: Path) -> None:
    """Group, name, version, classifier and packaging lead to the file; its bytes are counted."""
    progress = Recorded()
    assert fetch_thing(tmp_path / "c", progress).read_bytes() == CONTENT
    assert repository.asked == [PATH]
    assert progress.n_bytes == len(CONTENT)


def test_connection_cut_in_the_middle_is_tried_again(
    repository: Repository, tmp_path: Path
) -> None:
    """Half a file is never taken for a whole one, and a second attempt gets the whole."""
    repository.faults = ["cut"]
    assert fetch_thing(tmp_path / "c").read_bytes() == CONTENT
    assert len(repository.asked) == 2


def test_repository_that_keeps_failing_is_offline(repository: Repository, tmp_path: Path) -> None:
    """After some attempts the message names the file and the host."""
    repository.faults = ["cut"] * ATTEMPTS
    with pytest.raises(OfflineError, match=r"cannot download thing-1\.2-all\.tar\.gz from 127"):
        fetch_thing(tmp_path / "c")
    assert len(repository.asked) == ATTEMPTS


def test_login_page_is_refused(repository: Repository, tmp_path: Path) -> None:
    """What a captive portal sends instead of the file does not reach the cache."""
    repository.faults = ["portal"]
    with pytest.raises(HashMismatchError, match="proxy or mirror"):
        fetch_thing(tmp_path / "c")
    assert not (tmp_path / "c" / THING.filename).exists()


def test_artifact_that_is_not_there_is_named(repository: Repository, tmp_path: Path) -> None:
    """A repository without the file is told from one that is away."""
    repository.faults = ["missing"] * ATTEMPTS
    with pytest.raises(FetchError, match=r"org\.test:thing:1\.2:all@tar\.gz is not to be had"):
        fetch_thing(tmp_path / "c")


def test_no_network_is_a_sentence(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing answers, the message says what is missing and what to do."""
    config = tmp_path / "offline.conf"
    config.write_text("[repositories]\ncentral = http://127.0.0.1:1/repo\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    with pytest.raises(OfflineError) as caught:
        fetch_thing(tmp_path / "c")
    message = str(caught.value)
    assert "refused" in message
    assert "run `skeletonhunter broker fetch`" in message
    assert "object at 0x" not in message
    assert repository.asked == []
