"""Servers that stand for those whom a bridge tells: they record, and fail as often as is wanted."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any


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
