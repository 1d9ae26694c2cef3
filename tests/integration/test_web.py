"""The operator's page in a real browser, over a real broker."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from schemas import topics as t
from schemas.kafka.connection import KafkaSettings
from schemas.topics import Topic
from tests.integration.data_tools import produce
from tests.integration.web_harness import chromium, needs_browser, of_kafka, open_page, site
from tests.unit.ops.view_samples import (
    LINK,
    entry,
    fault,
    heartbeat,
    progress,
    resolved,
    small_cluster,
    state_of,
)

pytestmark = [pytest.mark.broker, needs_browser]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give one browser for all tests."""
    with chromium() as running:
        yield running


def write(kafka: KafkaSettings, *records: tuple[Topic, Any]) -> None:
    """Write records to their topics, as of now."""
    at_ms = time.time_ns() // 10**6
    for topic, record in records:
        produce(kafka, topic, [entry(topic, record, at_ms=at_ms)])


def write_fault(kafka: KafkaSettings, event: Any) -> None:
    """Write a transition and the state that it leads to."""
    write(kafka, (t.FAULT_EVENT, event), (t.FAULT_STATE, state_of(event)))


def now_ms() -> int:
    """Return the time."""
    return time.time_ns() // 10**6


@contextmanager
def alive(kafka: KafkaSettings) -> Iterator[None]:
    """Keep agents and worker alive meanwhile."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.5):
            beats = [(t.HEARTBEAT, heartbeat(f"agent-{h}", now_ms())) for h in ("h0", "h1")]
            write(kafka, *beats, (t.ANOMALY, progress(now_ms() - 1_500)))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_fault_is_on_the_page_within_two_seconds(browser: Browser, kafka: KafkaSettings) -> None:
    """From quiet to a fault and back, without an error or a request beyond the page's origin."""
    write(kafka, *small_cluster(now_ms()))
    with (
        alive(kafka),
        site(*of_kafka(kafka)) as running,
        open_page(browser, running.url) as watched,
    ):
        page = watched.page
        expect(page.get_by_role("heading", level=1)).to_contain_text("No", timeout=20_000)
        assert watched.axe() == []
        watched.shoot("now-quiet-light")
        began = fault(1, now_ms(), onset_at=(now_ms() - 4_000) * 1000, opened_at=now_ms() * 1000)
        write_fault(kafka, began)
        expect(page.locator(".fault")).to_contain_text(LINK, timeout=2_000)
        expect(page.get_by_role("heading", level=1)).to_contain_text("Yes")
        expect(page.locator(".fault")).to_contain_text("job-1")
        assert watched.axe() == []
        watched.shoot("now-fault-light")
        page.emulate_media(color_scheme="dark")
        assert watched.axe() == []
        watched.shoot("now-fault-dark")
        write_fault(kafka, resolved(2, now_ms(), onset_at=began.onset_at))
        expect(page.locator(".fault")).to_have_count(0, timeout=2_000)
        expect(page.get_by_role("heading", level=1)).to_contain_text("No", timeout=3_000)
        assert (watched.errors, watched.strangers) == ([], [])


def test_the_page_goes_on_after_its_server_was_killed(
    browser: Browser, kafka: KafkaSettings
) -> None:
    """What came while the server was away is there once, and nothing is doubled."""
    write(kafka, *small_cluster(now_ms()))
    write_fault(kafka, fault(1, now_ms()))
    with site(*of_kafka(kafka)) as running, open_page(browser, running.url) as watched:
        page = watched.page
        expect(page.locator(".fault")).to_have_count(1, timeout=20_000)
        running.kill()
        expect(page.get_by_role("alert")).to_contain_text("does not answer", timeout=10_000)
        write_fault(kafka, fault(1, now_ms(), fault_id="f-2", component_id="spine:7"))
        running.again()
        expect(page.locator(".fault")).to_have_count(2, timeout=20_000)
        expect(page.get_by_role("alert")).to_have_count(0)
        assert watched.strangers == []
