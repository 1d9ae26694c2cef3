"""Ranks of a job on the page Job, and faults of ranks, in a real browser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.hang_watch import HangWatch
from localizer.collectives.rank_operations import RankOperations
from ops.bench.operator.still import StillSource, served
from ops.view.cluster import ClusterView
from ops.view.job_ranks import RANK_LOGS, RANK_STATES, JobNow
from schemas import topics as t
from schemas.enums import Layer
from schemas.ids import rank_id
from schemas.records import Hang
from schemas.units import MS_NS
from tests.collective_batches import CLUSTER, Job, arrivals, seconds
from tests.integration.test_web_recorded import HOSTILE
from tests.integration.web_harness import Watched, chromium, needs_browser, open_page, site
from tests.unit.ops.view_samples import Log, fault, heartbeat, record_all, task

pytestmark = needs_browser

TASK = "job-1"
HANG_FAULT = "f-hang"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give one browser for all tests."""
    with chromium() as running:
        yield running


def hung(folder: Path, log: Log) -> tuple[ClusterView, JobNow, list[Hang], int]:
    """Return a view with a job whose rank 1 never launches, its fault, and the time (ms)."""
    records = arrivals(Job.load("stalled", folder), task=TASK)
    watch, now, hangs = HangWatch(CLUSTER), JobNow.of(TASK), []
    for until_ns, come in seconds(records):
        for arrival in come:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
            now.apply(arrival.record, arrival.at_ns)
        for hang in watch.advance(until_ns):
            now.apply(hang, until_ns)
            hangs.append(hang)
    now_ms = records[-1].at_ns // MS_NS
    view = ClusterView()
    for seen in log.all(faults(now_ms), at_ms=now_ms):
        view.apply(seen)
    view.ranks.put([now])
    return view, now, hangs, now_ms


def faults(now_ms: int) -> list[tuple[t.Topic, object]]:
    """Return the job, the fault of its hang, and a fault of the network beside it."""
    ranks = tuple(rank_id(TASK, rank) for rank in range(4))
    of_hang = fault(
        1, now_ms, fault_id=HANG_FAULT, component_id=ranks[1], component_kind="RANK",
        fault_kind="rank_never_launched", layer=Layer.JOB, ranks=ranks, tasks=(TASK,),
        related_fault_ids=("f-network",), summary="job-1 hangs in all_reduce",
    )  # fmt: skip
    beside = fault(1, now_ms, fault_id="f-network", tasks=())
    return [(t.TASK, task()), (t.FAULT_EVENT, of_hang), (t.FAULT_EVENT, beside)]


def check_matrix(watched: Watched) -> None:
    """Rank 1 is marked, the others wait; nothing is wrong with the page."""
    page = watched.page
    rows = page.locator("tr[data-rank]")
    expect(rows).to_have_count(4)
    expect(page.locator("tr[data-rank].ill")).to_contain_text("rank 1")
    expect(rows.first).to_contain_text("for rank 1")
    expect(page.locator(".hang.open")).to_contain_text("NEVER_LAUNCHED (sure)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert watched.axe() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_where_ranks_stand_and_the_fault_of_the_hang(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    """From the job to its fault, to the one beside it, and back: by links."""
    view, _, _, now_ms = hung(tmp_path, Log())
    with (
        served(StillSource(view, now_ms)) as url,
        open_page(browser, url, "/job", color_scheme=scheme) as watched,
    ):
        page = watched.page
        check_matrix(watched)
        watched.shoot(f"job-ranks-{scheme}")
        page.locator(".hang").get_by_role("link", name=HANG_FAULT).click()
        expect(page.get_by_text("of the job, not of the network")).to_be_visible()
        expect(page.get_by_text("ranks 0–3")).to_be_visible()
        assert watched.axe() == []
        watched.shoot(f"incident-hang-{scheme}")
        page.locator("dd").get_by_role("link", name="link:").first.click()
        # The other one is named there, too, though that fault does not name it.
        page.locator("dd").get_by_role("link", name=rank_id(TASK, 1)).click()
        page.locator("dd").get_by_role("link", name=TASK, exact=True).click()
        expect(page.locator("tr[data-rank]")).to_have_count(4)
        page.goto(f"{url}/")
        expect(page.locator(f"[data-fault={HANG_FAULT}]")).to_contain_text("in the job, not in the")
        assert watched.axe() == []
        assert (watched.errors, watched.strangers) == ([], [])


def test_what_changes_reaches_the_page(browser: Browser, tmp_path: Path) -> None:
    """A rank that is stopped, and the hang that is over; on a narrow screen, too."""
    view, now, _, now_ms = hung(tmp_path, Log())
    source = StillSource(view, now_ms)
    narrow = {"width": 390, "height": 800}
    with served(source) as url, open_page(browser, url, "/job", viewport=narrow) as watched:
        check_matrix(watched)
        hang = now.hang
        assert hang is not None
        now.hang = replace(hang, state=hang.state.RESOLVED)
        source.change(lambda _view: None, now_ms + 60_000)
        expect(watched.page.get_by_text("The last hang is over")).to_be_visible()
        expect(watched.page.locator("tr[data-rank]").first).to_contain_text("unheard for 6")
        expect(watched.page.locator("tr.ill")).to_have_count(0)
        assert (watched.errors, watched.strangers) == ([], [])


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    """Of hosts, communicators, operations, and in all that a hang says."""
    view, now, _, now_ms = hung(tmp_path, Log())
    states = list(now.job.ranks.values())
    hang = now.hang
    assert hang is not None
    for number, name in enumerate(HOSTILE):
        state = states[number % len(states)]
        state.batch = state.batch._replace(host_id=name, missing_reason=name)
        told = [o._replace(operation=name) for o in state.operations.records()]
        state.operations = RankOperations()
        state.operations.apply(BatchOperations.of_records(told), len(told), whole=False)
        for group, known in list(now.job.communicators.items())[number % 5 :: 5]:
            now.job.communicators[group] = replace(known, description=name)
        now.hang = replace(hang, summary=name, evidence=HOSTILE, next_steps=HOSTILE)
        with served(StillSource(view, now_ms)) as url, open_page(browser, url, "/job") as watched:
            expect(watched.page.locator("tr[data-rank]")).to_have_count(4)
            assert watched.page.locator("#main img, #main script, #main svg[onload]").count() == 0
            assert "\u202e" not in watched.page.inner_text("#main")
            assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            if number == 0:
                watched.shoot("job-ranks-hostile")
                assert watched.axe() == []
            assert watched.page.title() == "Job · SkeletonHunter"
            assert (watched.errors, watched.strangers) == ([], [])


def test_a_recording_shows_where_ranks_stood(browser: Browser, tmp_path: Path) -> None:
    """Read from the file around the moment that is looked at."""
    log = Log()
    _, _, hangs, now_ms = hung(tmp_path / "job", Log())
    told = [
        log.seen(topic, arrival.record, at_ms=arrival.at_ns // MS_NS, key=arrival.key)
        for arrival in arrivals(Job.load("stalled", tmp_path / "again"), task=TASK)
        for topic in (*RANK_STATES, *RANK_LOGS)
        if topic.record is type(arrival.record)
    ]
    told += [log.seen(t.COLLECTIVE_HANG, one, at_ms=one.event_at // 1_000) for one in hangs]
    folder = tmp_path / "recording"
    folder.mkdir()
    beat = log.seen(t.HEARTBEAT, heartbeat(at_ms=now_ms), at_ms=now_ms)
    record_all(folder, [*log.all(faults(now_ms), at_ms=now_ms - 1_000), beat, *told])
    with (
        site("--recording", str(folder)) as running,
        open_page(browser, running.url, "/job") as watched,
    ):
        check_matrix(watched)
        assert (watched.errors, watched.strangers) == ([], [])
