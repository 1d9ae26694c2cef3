"""What people do on the page, in a real browser over a real broker."""

import re
import time

import pytest
from playwright.sync_api import expect

from ops.bridge.operator_topics import OperatorTopics
from schemas import topics as t
from schemas.kafka.connection import KafkaSettings
from schemas.records import Silence
from tests.integration.data_tools import produce
from tests.integration.web_harness import (
    Watched,
    chromium,
    needs_browser,
    of_kafka,
    open_page,
    site,
)
from tests.unit.ops.view_samples import LINK, entry, fault, state_of

pytestmark = [pytest.mark.broker, needs_browser]


def test_what_is_done_on_the_page_is_on_the_topics_and_comes_back(kafka: KafkaSettings) -> None:
    """By keyboard: silenced, acknowledged, the silence ended, closed; each with who and why."""
    at_ms = time.time_ns() // 10**6
    began = fault(1, at_ms, cluster=kafka.cluster, onset_at=at_ms * 1_000, opened_at=at_ms * 1_000)
    for topic, record in ((t.FAULT_EVENT, began), (t.FAULT_STATE, state_of(began))):
        produce(kafka, topic, [entry(topic, record, at_ms=at_ms)])
    written = OperatorTopics(kafka)
    with (
        chromium() as browser,
        site(*of_kafka(kafka), "--allow-actions") as running,
        open_page(browser, running.url, "/incident?fault=f-1") as watched,
    ):
        made = silence_it(watched, written)
        answer_it(watched, written)
        end_it(watched, written, made)
        # The refused silence is told by its status, which the browser's console repeats.
        assert [error for error in watched.errors if "422" not in error] == []
        assert watched.strangers == []


def silence_it(watched: Watched, written: OperatorTopics) -> Silence:
    """Silence the component of the fault, from its page."""
    page = watched.page
    silence = page.get_by_role("button", name="Silence…")
    expect(silence).to_be_visible(timeout=20_000)
    silence.press("Enter")
    expect(page.locator("select[name=what]")).to_be_focused()
    page.keyboard.press("Escape")
    expect(silence).to_be_focused()
    silence.press("Enter")
    page.get_by_label("Reason").fill("new <optics>")
    page.get_by_label("Your name").fill("ann")
    assert watched.axe() == []
    watched.shoot("act-silence-light")
    page.emulate_media(color_scheme="dark")
    watched.shoot("act-silence-dark")
    page.get_by_label("Your name").press("Enter")
    expect(page.get_by_text(re.compile(r"Kafka has it: s-\w+"))).to_be_visible()
    expect(page.get_by_text("pages nobody until")).to_contain_text("ann: new <optics>")
    (made,) = written.silences()
    assert (made.author, made.reason, made.ended_by) == ("ann", "new <optics>", None)
    assert [(m.label, m.pattern) for m in made.matchers] == [("component", LINK)]
    assert made.until_at - made.from_at == 3_600 * 10**6

    return made


def answer_it(watched: Watched, written: OperatorTopics) -> None:
    """Acknowledge the fault, and close it with a cause."""
    page = watched.page
    page.get_by_role("button", name="Acknowledge…").press("Enter")
    page.get_by_role("button", name="Acknowledge", exact=True).press("Enter")
    expect(page.get_by_text("acknowledged by ann")).to_be_visible()
    page.get_by_role("button", name="Close…").press("Enter")
    page.get_by_label("Cause").fill("dirty optics")
    page.set_viewport_size({"width": 390, "height": 844})
    watched.shoot("act-close-narrow-dark")
    page.get_by_role("button", name="Close", exact=True).press("Enter")
    expect(page.get_by_text("cause: dirty optics")).to_be_visible()
    expect(page.get_by_text("closed by ann at")).to_contain_text("UTC: dirty optics")
    notes = [(note.action.value, note.author, note.cause) for note in written.notes("f-1")]
    assert notes == [("ACKNOWLEDGE", "ann", None), ("CLOSE", "ann", "dirty optics")]


def end_it(watched: Watched, written: OperatorTopics, made: Silence) -> None:
    """Try a silence of everything, which is refused, and end the one that was made."""
    page = watched.page
    page.get_by_role("link", name="Silences").click()
    row = page.locator(f"[data-silence={made.silence_id}]")
    expect(row).to_contain_text("hides 1 open fault")
    page.get_by_role("button", name="New silence…").press("Enter")
    page.get_by_label("Pattern").fill("*")
    page.get_by_label("Reason").fill("all")
    watched.shoot("silences-narrow-dark")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="New silence", exact=True).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The conditions have no pattern")
    page.keyboard.press("Escape")
    row.get_by_role("button", name="End…").press("Enter")
    assert watched.axe() == []
    watched.shoot("silences-end-dark")
    row.get_by_role("button", name="End", exact=True).press("Enter")
    expect(page.get_by_label("Silences lately ended")).to_contain_text("ended by ann")
    assert [one.ended_by for one in written.silences()] == ["ann"]
