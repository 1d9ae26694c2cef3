"""Servers that stand for those whom a bridge tells: they record, and fail as often as is wanted."""

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.request import urlopen

from ops.bench.rig.waiting import wait_until

ALERTMANAGER: Final = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
READY_S: Final = 60.0


@dataclass
class Post:
    """What came, and when, seconds since the epoch."""

    path: str
    headers: dict[str, str]
    body: bytes
    at_s: float = field(default_factory=time.time)

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


@dataclass
class Receiver:
    """A server and what it took.

    Attributes
    ----------
    failing
        Share of posts that get a 503, or are cut off after they were taken.
    forward
        Is given each post that is taken.
    """

    failing: float = 0.0
    forward: Callable[[Post], None] | None = None
    posts: list[Post] = field(default_factory=list)
    failed: int = 0
    url: str = ""
    random: Random = field(default_factory=lambda: Random(7))  # noqa: S311 - a chance
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, post: Post) -> int | None:
        """Take a post or not; return the status, None: no answer at all."""
        with self.lock:
            chance = self.random.random()
        if chance < self.failing / 2:
            self.failed += 1
            return 503
        if self.forward is not None:
            self.forward(post)
        with self.lock:
            self.posts.append(post)
        if chance < self.failing:
            # Taken, and the sender does not hear of it.
            self.failed += 1
            return None
        return 202


@contextmanager
def receiving(receiver: Receiver, context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver on loopback; with TLS if there is a context."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.take(Post(self.path, headers, self.rfile.read(size)))
            if status is not None:
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    receiver.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def alertmanager(folder: Path, receiver: Receiver) -> Iterator[str]:
    """Run a real Alertmanager that tells a receiver of each fault by itself; give its address.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    if ALERTMANAGER is None:
        raise FileNotFoundError("no Alertmanager: install Debian's prometheus-alertmanager")
    folder.mkdir()
    route = {
        "receiver": "test", "group_by": ["cluster", "fault_id"], "group_wait": "0s",
        "group_interval": "1s", "repeat_interval": "1h",
    }  # fmt: skip
    receivers = [{"name": "test", "webhook_configs": [{"url": f"{receiver.url}/am"}]}]
    settings = folder / "alertmanager.yml"
    settings.write_text(json.dumps({"route": route, "receivers": receivers}), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [ALERTMANAGER, f"--config.file={settings}", f"--storage.path={folder}/db",
             f"--web.listen-address={place}", "--cluster.listen-address="],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        wait_until(
            lambda: _answers(f"http://{place}/-/ready"), READY_S, "Alertmanager is not ready"
        )
        yield f"http://{place}"
    finally:
        running.terminate()
        running.wait(30)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):  # noqa: S310 - of our own
            return True
    except OSError:
        return False
