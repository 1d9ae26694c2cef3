"""The same pages over a recording, in a real browser: any moment, and hostile names."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from schemas import topics as t
from tests.integration.web_harness import Watched, chromium, needs_browser, open_page, site
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import (
    LINK,
    Log,
    counters,
    fault,
    heartbeat,
    record_all,
    skeleton,
    small_cluster,
    story,
)

pytestmark = needs_browser

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "a\u202egnp.exe\u2066",
    "'; DROP TABLE faults; --",
    "</title></style><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "x" * 250,
    "ʇǝxʇ العربية 文字",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give one browser for all tests."""
    with chromium() as running:
        yield running


def test_any_moment_of_a_recording_can_be_looked_at(browser: Browser, tmp_path: Path) -> None:
    """By address, by jumps, by keyboard; the evidence is that of the moment."""
    record_all(tmp_path, story())
    with (
        site("--recording", str(tmp_path)) as running,
        open_page(browser, running.url, f"/now?at={START_MS + 6_500}") as watched,
    ):
        page = watched.page
        expect(page.locator(".fault")).to_contain_text("undecided among 2")
        assert watched.axe() == []
        page.get_by_role("button", name="Next verdict").click()
        expect(page.locator(".fault")).to_contain_text("connectivity")
        expect(page.locator(".fault")).not_to_contain_text("undecided")
        page.get_by_role("link", name=LINK, exact=True).click()
        expect(page.locator(".entry.verdict")).to_have_count(2)
        page.get_by_role("slider", name="Time").press("End")
        expect(page.locator(".entry.verdict")).to_have_count(4)
        expect(page.locator(".entry.symptom")).to_have_count(2)
        expect(page.get_by_role("heading", level=1)).to_have_text(LINK)
        assert "fault=f-1" in page.url
        assert watched.axe() == []
        watched.shoot("incident-light")
        page.emulate_media(color_scheme="dark")
        assert watched.axe() == []
        watched.shoot("incident-dark")
        page.set_viewport_size({"width": 360, "height": 740})
        watched.shoot("incident-narrow")
        wider = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wider
        watched.page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_role("link", name="Matrix").click()
        watch_the_matrix(watched)
        assert (watched.errors, watched.strangers) == ([], [])


def watch_the_matrix(watched: Watched) -> None:
    """Move the time over the window with losses, and look into a pair."""
    page = watched.page
    canvas = page.locator("canvas[data-cells]")
    slider = page.get_by_role("slider", name="Time")
    worst = page.locator("section[aria-labelledby=worst]")
    expect(canvas).to_have_attribute("data-cells", "2")
    expect(worst.locator("tbody tr")).to_have_count(1)
    expect(worst.locator("tbody tr")).to_contain_text("30.00% lost")
    slider.press("Home")
    expect(worst).to_contain_text("None: all that is measured is well.")
    expect(canvas).to_have_attribute("data-cells", "2")
    slider.press("End")
    worst.get_by_role("link").first.click()
    lost = page.locator(".pair details tbody td:nth-child(3)")
    page.locator(".pair summary").click()
    expect(lost).to_have_text(["9"])
    slider.press("Home")
    expect(lost).to_have_text(["0"])
    assert watched.axe() == []
    watched.shoot("matrix-recorded-dark")


def test_a_job_shows_its_skeleton(browser: Browser, tmp_path: Path) -> None:
    """By host and rail; an endpoint that is chosen shows its counters, and who probes it."""
    log = Log()
    told = [*small_cluster(), (t.SKELETON_TOPIC, skeleton()), (t.FAULT_EVENT, fault(1))]
    told += [(t.FAULT_EVENT, fault(1, fault_id="g", component_id="h1"))]
    counted = [
        log.seen(topic, record, at_ms=START_MS + (second + 1) * 1_000)
        for second in range(29)
        for topic, record in (
            (t.RNIC_COUNTERS, counters("h0", second, 10**6, 0)),
            (t.RNIC_COUNTERS, counters("h1", second, 10**7, 0)),
            (t.HEARTBEAT, heartbeat("agent-h0", START_MS + (second + 1) * 1_000)),
        )
    ]
    record_all(tmp_path, [*log.all(told), *counted])
    with (
        site("--recording", str(tmp_path)) as running,
        open_page(browser, running.url, "/job") as watched,
    ):
        page = watched.page
        expect(page.get_by_text("bursts of 24 windows agree")).to_be_visible(timeout=20_000)
        loads = page.locator(".load")
        expect(loads).to_have_count(2)
        expect(loads.last).to_contain_text("80 Mbit/s")
        page.get_by_role("button", name="stage 1, group 1").press("Enter")
        expect(page.locator(".pair .uplot canvas")).to_be_visible()
        page.get_by_text("The same as a table").click()
        expect(page.locator(".pair details tbody tr")).to_have_count(29)
        expect(page.get_by_text("h0/r0 → h1/r0")).to_be_visible()
        expect(page.locator("td.ill")).to_have_count(1)
        assert watched.axe() == []
        watched.shoot("job-light")
        page.emulate_media(color_scheme="dark")
        assert watched.axe() == []
        watched.shoot("job-dark")
        assert (watched.errors, watched.strangers) == ([], [])


def test_playing_moves_the_time_and_stops_at_the_end(browser: Browser, tmp_path: Path) -> None:
    """From the beginning, if the end was looked at."""
    record_all(tmp_path, story())
    with site("--recording", str(tmp_path)) as running, open_page(browser, running.url) as watched:
        page = watched.page
        play = page.get_by_role("button", name="Play")
        play.wait_for(timeout=20_000)
        page.get_by_label("Speed").select_option("60")
        play.click()
        expect(page.locator("output")).to_contain_text("00:00:29")
        expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=10_000)
        assert watched.errors == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/incident?fault=nothing", "no fault 'nothing' is known here"),
        ("/incident", "no fault is named"),
        ("/now?at=5", "is outside the recording"),
        ("/now?at=noon", "is no time"),
        ("/elsewhere", "There is no page elsewhere"),
    ],
)
def test_what_is_not_there_is_said(browser: Browser, tmp_path: Path, path: str, words: str) -> None:
    """With what to do."""
    record_all(tmp_path, story())
    with (
        site("--recording", str(tmp_path)) as running,
        open_page(browser, running.url, path) as watched,
    ):
        expect(watched.page.get_by_text(words)).to_be_visible(timeout=20_000)
        assert watched.axe() == []
        assert watched.strangers == []


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    """On every page and in every report: nothing runs, nothing breaks, nothing hides."""
    log = Log()
    records = []
    for number, name in enumerate(HOSTILE):
        event = fault(
            1, START_MS + number, fault_id=f"{number}-{name}", component_id=name,
            component_kind=name, fault_kind=name, severity=name, summary=name, tasks=(name,),
            evidence=(name,), cluster=name,
        )  # fmt: skip
        records.append(log.seen(t.FAULT_EVENT, event))
        beat = heartbeat(f"{number}-{name}")
        beat = replace(beat, host_id=name, state_reason=name, producer_version=name, cluster=name)
        records.append(log.seen(t.HEARTBEAT, beat))
    record_all(tmp_path, records)
    with site("--recording", str(tmp_path)) as running, open_page(browser, running.url) as watched:
        page = watched.page
        expect(page.locator(".fault")).to_have_count(len(HOSTILE))
        assert page.locator("#main img, #main script, #main svg[onload]").count() == 0
        assert "\u202e" not in page.inner_text("#main")
        assert "\\u202e" in page.inner_text("#main")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        watched.shoot("hostile-now")
        links = page.locator(".fault h3 a")
        addresses = [links.nth(i).get_attribute("href") for i in range(links.count())]
        for address in addresses:
            page.goto(f"{running.url}{address}")
            expect(page.locator(".entry.verdict")).to_have_count(1)
            assert page.locator("#main img, #main script").count() == 0
            for ending in ("html", "md"):
                report = f"/api/report.{ending}?{str(address).partition('?')[2]}"
                text = running.get(report)
                assert not re.search(r"<(script|img|svg onload)", text), report
                assert "\u202e" not in text
        page.goto(f"{running.url}/agents")
        expect(page.locator("tr[data-agent]")).to_have_count(len(HOSTILE))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        watched.shoot("hostile-agents")
        assert watched.axe() == []
        assert page.title() == "Agents · SkeletonHunter"
        assert (watched.errors, watched.strangers) == ([], [])


def test_a_page_is_what_its_documents_say(tmp_path: Path) -> None:
    """The server's JSON at a time holds no more and no less than was known then."""
    record_all(tmp_path, story())
    with site("--recording", str(tmp_path)) as running:
        source: dict[str, object] = {}
        while not source.get("ready"):
            source = json.loads(running.get("/api/source"))
        assert source["span_ms"] == [START_MS, START_MS + 29_000]
        counts = [
            json.loads(running.get(f"/api/pages/now?at={START_MS + ms}"))["open_total"]
            for ms in (5_999, 6_000, 24_999, 25_000, 0)
        ]
        assert counts == [0, 1, 1, 0, 0]
