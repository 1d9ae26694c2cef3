"""The page's server as a process, a browser, and a cluster that writes to its topics."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Final
from urllib.parse import urlsplit

from confluent_kafka import Producer

from ops.bench.operator.cluster import Told
from ops.bench.rig.waiting import wait_until
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import QUIET, producer_options

READY_S: Final = 120.0
TIMEOUT_S: Final = 60.0
# Enough for what a second of the largest cluster says.
QUEUE: Final = 1_000_000
ARGUMENTS: Final = (
    "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    # WebGL without a GPU.
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    *(("--no-sandbox",) if os.geteuid() == 0 else ()),
)  # fmt: skip


class Site:
    """A running `skeletonhunter web`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ops.cli.start", "web"),
                *("--listen", "127.0.0.1:0", *arguments),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = "" if self.process.stdout is None else self.process.stdout.readline()
        if not line:
            raise RuntimeError("skeletonhunter web ended at its start")
        self.url = line.split()[0].rstrip("/")

    def wait_ready(self) -> None:
        """Wait until it has read what is there."""
        wait_until(
            lambda: self.get("/readyz")[0] == 200, READY_S, "skeletonhunter web is not ready"
        )

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of an answer."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    def document(self, page: str) -> dict[str, Any]:
        """Return a page's document."""
        found: dict[str, Any] = json.loads(self.get(f"/api/pages/{page}")[1])
        return found

    def stream(self, page: str) -> HTTPResponse:
        """Open the stream of a page, with its parameters, as a browser does."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        connection.request("GET", f"/api/stream/{page}")
        return connection.getresponse()


@contextmanager
def site(*arguments: str) -> Iterator[Site]:
    """Run the server at a free port."""
    running = Site(*arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@contextmanager
def browser() -> Iterator[Any]:
    """Give Debian's Chromium.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    path = shutil.which("chromium")
    if path is None:
        raise FileNotFoundError("no chromium: install Debian's chromium and fonts-dejavu-core")
    # Here, since only figures with a browser need it.
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield running
        running.close()


class Writer:
    """Writes records to topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._codec = Codec()
        self._producer = Producer(
            producer_options(
                settings,
                fixed={"linger.ms": 5, "queue.buffering.max.messages": QUEUE, **QUIET},
            )
        )

    def write(self, told: Iterable[Told]) -> None:
        """Write records, also such as are encoded, and wait until the broker has them."""
        for topic, key, record in told:
            value = record if isinstance(record, bytes) else self._codec.encode(topic, record)
            self._producer.produce(
                self._settings.topic(topic.name),
                value,
                key.encode(),
                timestamp=time.time_ns() // 10**6,
            )
            self._producer.poll(0)
        self._producer.flush()
