"""A browser, the page's server as a process, and records for both."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from schemas.kafka.connection import KafkaSettings
from tests import DATA

CHROMIUM = shutil.which("chromium")
# Of Debian's chromium: no sandbox for root, and nothing that reaches out by itself.
ARGUMENTS = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    *(("--no-sandbox",) if os.geteuid() == 0 else ()),
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium: install Debian's packages chromium and fonts-dejavu-core",
)
# Left where one can look at them, if asked to.
SHOTS_ENV = "SKELETONHUNTER_SCREENSHOTS"
# The default of 5 s is short where other tests share two cores.
expect.set_options(timeout=20_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Give a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Site:
    """A running `skeletonhunter web`."""

    url: str
    process: subprocess.Popen[str]
    arguments: tuple[str, ...]

    def get(self, path: str) -> str:
        """Return what it answers."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def again(self) -> None:
        """Start it again at the same address."""
        port = urlsplit(self.url).port
        self.process = start(*self.arguments, "--listen", f"127.0.0.1:{port}")
        address_of(self.process)


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [sys.executable, "-m", "ops.cli.start", "web", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    """Return the address that it prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended"
    return line.split()[0].rstrip("/")


@contextmanager
def site(*arguments: str) -> Iterator[Site]:
    """Run the command at a free port."""
    process = start(*arguments, "--listen", "127.0.0.1:0")
    running = Site(address_of(process), process, arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def of_kafka(settings: KafkaSettings) -> tuple[str, ...]:
    """Return the options that name a broker and a prefix."""
    return ("--bootstrap", settings.bootstrap, "--prefix", settings.topic_prefix)


@dataclass
class Watched:
    """A page in the browser, and what it did that it must not do."""

    page: Page
    origin: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def axe(self) -> list[str]:
        """Return what axe-core finds wrong, of what stands still: text that fades in is pale."""
        self.page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")
        # Given by the browser's debugger: the page's policy would refuse the file.
        self.page.evaluate((DATA / "axe" / "axe.min.js").read_text(encoding="utf-8"))
        found: dict[str, Any] = self.page.evaluate("axe.run()")
        return [
            f"{v['id']}: {v['help']}: {json.dumps([n['html'] for n in v['nodes']])[:600]}"
            for v in found["violations"]
        ]

    def shoot(self, name: str) -> None:
        """Keep a picture, if somebody wants to look."""
        folder = os.environ.get(SHOTS_ENV)
        if folder:
            self.page.screenshot(path=f"{folder}/{name}.png", full_page=True)


@contextmanager
def open_page(browser: Browser, url: str, path: str = "/", **context: Any) -> Iterator[Watched]:
    """Open a page and watch what it asks for and complains about."""
    # Scripts that the test itself runs are no violation of the page's policy.
    own = browser.new_context(ignore_https_errors=True, **context)
    page = own.new_page()
    watched = Watched(page, url)

    def asked(request: Request) -> None:
        if not request.url.startswith((f"{url}/", "data:")):
            watched.strangers.append(request.url)

    page.on("request", asked)
    page.on("console", lambda m: watched.errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: watched.errors.append(str(error)))
    page.goto(f"{url}{path}", wait_until="commit")
    yield watched
    own.close()
