"""The operator's page in a real browser, over a real broker."""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from ops.recording.source import Source
from ops.topics.admin import TopicAdmin, apply_topics
from ops.topics.plan import Options, wanted_topics
from ops.web.pages.registry import PAGES
from ops.web.recorded import RecordedSource
from schemas import topics as t
from schemas.enums import NoteAction
from schemas.kafka.connection import KafkaSettings
from schemas.topics import Topic
from tests.certificates import make_certificates
from tests.conftest import embedded, topics_of_a_test
from tests.integration.data_tools import produce
from tests.integration.web_harness import Site, chromium, needs_browser, of_kafka, open_page, site
from tests.unit.ops.view_samples import (
    LINK,
    anomaly,
    entry,
    fault,
    heartbeat,
    note,
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


def test_a_fault_comes_to_the_page_and_leaves_it(browser: Browser, kafka: KafkaSettings) -> None:
    """From quiet to a fault and back, without an error or a request beyond the page's origin.

    How soon: `make bench-operator`.
    """
    write(kafka, *small_cluster(now_ms()))
    with (
        alive(kafka),
        site(*of_kafka(kafka)) as running,
        open_page(browser, running.url) as watched,
    ):
        page = watched.page
        expect(page.get_by_role("heading", level=1)).to_contain_text("No")
        assert watched.axe() == []
        watched.shoot("now-quiet-light")
        began = fault(1, now_ms(), onset_at=(now_ms() - 4_000) * 1000, opened_at=now_ms() * 1000)
        write_fault(kafka, began)
        expect(page.locator(".fault")).to_contain_text(LINK)
        expect(page.get_by_role("heading", level=1)).to_contain_text("Yes")
        expect(page.locator(".fault")).to_contain_text("job-1")
        assert watched.axe() == []
        watched.shoot("now-fault-light")
        page.emulate_media(color_scheme="dark")
        assert watched.axe() == []
        watched.shoot("now-fault-dark")
        write_fault(kafka, resolved(2, now_ms(), onset_at=began.onset_at))
        expect(page.locator(".fault")).to_have_count(0)
        expect(page.get_by_role("heading", level=1)).to_contain_text("No")
        assert (watched.errors, watched.strangers) == ([], [])


def test_the_page_goes_on_after_its_server_was_killed(
    browser: Browser, kafka: KafkaSettings
) -> None:
    """What came while the server was away is there once, and nothing is doubled."""
    write(kafka, *small_cluster(now_ms()))
    write_fault(kafka, fault(1, now_ms()))
    with site(*of_kafka(kafka)) as running, open_page(browser, running.url) as watched:
        page = watched.page
        expect(page.locator(".fault")).to_have_count(1)
        running.kill()
        expect(page.get_by_role("alert")).to_contain_text("does not answer", timeout=10_000)
        write_fault(kafka, fault(1, now_ms(), fault_id="f-2", component_id="spine:7"))
        running.again()
        expect(page.locator(".fault")).to_have_count(2)
        expect(page.get_by_role("alert")).to_have_count(0)
        assert watched.strangers == []


def test_the_page_goes_on_after_the_broker_was_away(browser: Browser) -> None:
    """It says since when, keeps what it knew, and reads on."""
    with (
        embedded() as broker,
        topics_of_a_test(broker.bootstrap, Options()) as kafka,
        site(*of_kafka(kafka)) as running,
        open_page(browser, running.url) as watched,
    ):
        page = watched.page
        write_fault(kafka, fault(1, now_ms()))
        expect(page.locator(".fault")).to_have_count(1)
        broker.kill()
        expect(page.get_by_role("alert")).to_contain_text("no Kafka broker answers")
        expect(page.get_by_role("alert")).to_contain_text("is the broker up")
        expect(page.locator(".fault")).to_have_count(1)
        broker.restart()
        write_fault(kafka, fault(1, now_ms(), fault_id="f-2", component_id="spine:7"))
        expect(page.locator(".fault")).to_have_count(2, timeout=30_000)
        expect(page.get_by_role("alert")).to_have_count(0, timeout=10_000)
        assert (watched.errors, watched.strangers) == ([], [])


def test_topics_that_are_missing_are_named_and_may_come(
    browser: Browser, kafka_bootstrap: str
) -> None:
    """The page shows what is there meanwhile."""
    kafka = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=f"t{uuid.uuid4().hex[:10]}.")
    with site(*of_kafka(kafka)) as running, open_page(browser, running.url) as watched:
        alert = watched.page.get_by_role("alert")
        expect(alert).to_contain_text("no topic")
        expect(alert).to_contain_text("skeletonhunter topics apply")
        expect(watched.page.get_by_role("heading", level=1)).to_contain_text("Cannot tell")
        apply_topics(kafka, Options())
        expect(alert).to_have_count(0)
        write_fault(kafka, fault(1, now_ms()))
        expect(watched.page.locator(".fault")).to_have_count(1, timeout=10_000)
        TopicAdmin(kafka).delete([topic.name for topic in wanted_topics(kafka.topic_prefix)])


def test_a_page_for_others_asks_for_the_token(
    browser: Browser, kafka: KafkaSettings, tmp_path: Path
) -> None:
    """Over TLS; a wrong one is refused with where the right one is; then all works as without."""
    made = make_certificates(tmp_path)
    pem = str(made.server_pem)
    (tmp_path / "token").write_text("a token of the tests\n")
    secured = (
        *("--tls-cert", pem, "--tls-key", pem, "--token-file", str(tmp_path / "token")),
        *of_kafka(kafka),
    )
    write_fault(kafka, fault(1, now_ms()))
    with site(*secured) as running, open_page(browser, running.url) as watched:
        page = watched.page
        assert running.url.startswith("https://")
        expect(page.get_by_text("those who know its token")).to_be_visible(timeout=20_000)
        assert watched.axe() == []
        page.get_by_label("Token").fill("another one of the tests")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_text("This is not the token.")).to_be_visible()
        page.get_by_label("Token").fill("a token of the tests")
        page.get_by_role("button", name="Open").click()
        expect(page.locator(".fault")).to_have_count(1)
        assert watched.strangers == []


def test_a_recording_shows_what_the_page_showed(kafka: KafkaSettings, tmp_path: Path) -> None:
    """At three moments of a fault's life: before, in it, and when somebody has written of it."""
    shown: list[tuple[int, dict[str, Any]]] = []
    with site(*of_kafka(kafka)) as running:
        write(kafka, *small_cluster(now_ms()))
        shown.append(moment(running))
        began_ms = now_ms()
        write(kafka, (t.ANOMALY, anomaly(at_ms=began_ms)))
        write_fault(kafka, fault(1, began_ms, onset_at=began_ms * 1_000))
        shown.append(moment(running))
        write(kafka, (t.INCIDENT_NOTE, note(NoteAction.ACKNOWLEDGE, "on it", now_ms())))
        write_fault(kafka, resolved(2, now_ms(), onset_at=began_ms * 1_000))
        shown.append(moment(running))
        write(kafka, (t.ANOMALY, progress(now_ms())))
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.start", "record", str(tmp_path / "r"), "--topics", "all",
         *of_kafka(kafka)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [document["open_total"] for _, document in shown] == [0, 1, 0]
    with Source(tmp_path / "r") as recording:
        source = RecordedSource(recording)
        source.read()
        for at_ms, document in shown:
            recorded = source.look(lambda view, ms: PAGES["now"].document(view, {}, ms), at_ms)
            assert json.loads(json.dumps(recorded)) == document


def moment(running: Site) -> tuple[int, dict[str, Any]]:
    """Return what the page Now shows once all that was written has been read, and when."""
    time.sleep(2)
    connection = HTTPConnection(urlsplit(running.url).netloc, timeout=30)
    connection.request("GET", "/api/stream/now")
    answer = connection.getresponse()
    event: dict[str, str] = {}
    while event.get("event") != "state" or "data" not in event or "id" not in event:
        name, _, text = answer.readline().decode().rstrip("\r\n").partition(": ")
        event = {**event, name: text} if name else {}
    connection.close()
    return int(event["id"].partition("@")[0]), json.loads(event["data"])
