"""The pages Matrix and Topology in a real browser, over a view that stands still."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from ops.bench.operator.still import StillSource, served
from ops.bench.operator.watched import BEGIN_US, FIRST_SICK, WINDOW_US, Harm, WatchedCluster
from ops.view.cluster import ClusterView
from schemas import topics as t
from schemas.records import Candidate
from tests.integration.web_harness import Watched, chromium, needs_browser, open_page
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, fault, window

pytestmark = [needs_browser]

LEAF, SPINE = "leaf:s0-r3", "spine:2"
# Browsers without WebGL2 draw on a plain canvas.
NO_WEBGL = """
const own = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind === "webgl2" ? null : own.call(this, kind, ...more);
};
"""
# The canvas as it is shown: how many of its pixels have each colour.
COLOURS = """canvas => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d");
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, copy.width, copy.height);
  const found = {};
  for (let i = 0; i < data.length; i += 4) {
    const colour = "#" + [0, 1, 2].map(c => data[i + c].toString(16).padStart(2, "0")).join("");
    found[colour] = (found[colour] ?? 0) + 1;
  }
  return found;
}"""
PALETTE = """canvas => Object.fromEntries(
  [...Array(10).keys()].map(
    code => [code, getComputedStyle(canvas).getPropertyValue(`--heat-${code}`).trim()]))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give one browser for all tests."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> WatchedCluster:
    """Return a cluster with a sick leaf."""
    return WatchedCluster(4, {LEAF: Harm(lost=6, late_ns=20_000)})


@pytest.fixture
def sick(cluster: WatchedCluster) -> StillSource:
    """Return a view of it when the leaf has been sick for three windows."""
    return StillSource(*replace(cluster).view(FIRST_SICK + 3))


@contextmanager
def opened(browser: Browser, source: StillSource, path: str, **context: Any) -> Iterator[Watched]:
    """Open a page of a source."""
    with served(source) as url, open_page(browser, url, path, **context) as watched:
        yield watched
        assert (watched.errors, watched.strangers) == ([], [])


def drawn(page: Page) -> dict[str, str]:
    """Return what the canvas says of itself, once it is drawn."""
    canvas = page.locator("canvas[data-cells]")
    canvas.wait_for()
    found: dict[str, str] = canvas.evaluate("canvas => ({...canvas.dataset})")
    return found


def shares(page: Page) -> dict[int, float]:
    """Return which share of the canvas each code has, by its colour."""
    canvas = page.locator("canvas[data-cells]")
    palette = canvas.evaluate(PALETTE)
    counts = canvas.evaluate(COLOURS)
    total = sum(counts.values())
    return {int(code): counts.get(colour, 0) / total for code, colour in palette.items()}


@pytest.mark.parametrize("renderer", ["webgl", "canvas"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_sick_leaf_is_drawn(
    browser: Browser, sick: StillSource, renderer: str, scheme: str
) -> None:
    """As many cells as there are, in the colours of their codes, read back pixel by pixel."""
    with opened(browser, sick, "/matrix?level=leaf", color_scheme=scheme) as watched:
        page = watched.page
        if renderer == "canvas":
            page.add_init_script(NO_WEBGL)
            page.reload()
        told = drawn(page)
        assert (told["renderer"], told["cells"]) == (renderer, "96")
        found = shares(page)
        # Without the lines between cells, a pixel at two of their sides.
        cell = 1 / 32**2
        assert 6 * cell * 0.8 < found[7] < 6 * cell
        assert 90 * cell * 0.8 < found[3] < 90 * cell
        assert 928 * cell * 0.8 < found[0] < 928 * cell
        assert sum(found[code] for code in (1, 2, 4, 5, 6, 8, 9)) == 0
        expect(page.locator(".lines")).to_contain_text(f"Towards {LEAF}: bad from 3 of 3 leaves")
        # The first cell that is told of is the worst.
        expect(page.locator(".told")).to_contain_text(f"{LEAF} → leaf:s1-r3: loss: 10 to 50 % lost")
        expect(page.locator(".legend li").nth(7)).to_contain_text("10 to 50 % lost 6")
        assert watched.axe() == []
        watched.shoot(f"matrix-{renderer}-{scheme}")


def test_states_have_patterns_in_both_renderers(browser: Browser) -> None:
    """A cell of each state: as much of its colour is left, but for smooth edges, whoever draws."""
    view, log = ClusterView(), Log()
    now_ms = START_MS + 600_000
    for host, age_ms, lost in ((0, 300_000, 0), (1, 0, 30), (2, 0, 0)):
        one = window(f"h{host}", "h9", 0, now_ms - age_ms, lost=lost)
        view.apply(log.seen(t.PROBE_WINDOW, one))
    found = []
    for script in ("", NO_WEBGL):
        with opened(browser, StillSource(view, now_ms), "/matrix?level=endpoint") as watched:
            watched.page.add_init_script(script)
            watched.page.reload()
            drawn(watched.page)
            found.append(shares(watched.page))
            watched.shoot(f"matrix-states-{len(found)}")
    for code in (0, 1, 3, 9):
        assert found[0][code] == pytest.approx(found[1][code], rel=0.4)
        assert found[0][code] > 0


def test_only_changed_rows_are_drawn_anew(browser: Browser, sick: StillSource) -> None:
    """A window later another leaf's losses are over; the texture gets the rows that changed."""
    with opened(browser, sick, "/matrix?level=leaf") as watched:
        page = watched.page
        drawn(page)
        well = WatchedCluster(4)
        well._offsets = {t.PROBE_WINDOW.name: 10**6}
        turn = FIRST_SICK + 3
        records = list(well.windows(turn))

        def change(view: ClusterView) -> None:
            for seen in records:
                view.apply(seen)

        sick.change(change, (BEGIN_US + (turn + 1) * WINDOW_US) // 1_000 + 2_000)
        expect(page.get_by_text("None: all that is measured is well.")).to_be_visible(
            timeout=10_000
        )
        page.wait_for_timeout(300)
        assert drawn(page)["cells"] == "96"
        assert shares(page)[7] == 0
        canvas = page.locator("canvas")
        # The leaf's own row, and the rows of the three from which it is probed.
        assert int(canvas.get_attribute("data-sent") or "") in {0, 4}


def test_from_pods_to_a_5_tuple_by_keyboard(browser: Browser, sick: StillSource) -> None:
    """Next bad cell, open, and so on, down to the series of a pair; and back by the links."""
    with opened(browser, sick, "/matrix?level=pod") as watched:
        page = watched.page
        drawn(page)
        cells = page.get_by_role("application")
        cells.focus()
        told = page.locator(".told")
        expect(told).to_contain_text("leaf:s0 → leaf:s1: loss: 1 to 10 % lost")
        page.keyboard.press("n")
        expect(told).to_contain_text("leaf:s0 → leaf:s2: loss: 1 to 10 % lost")
        page.keyboard.press("p")
        page.keyboard.press("Shift+ArrowDown")
        expect(told).to_contain_text("leaf:s3 → leaf:s1")
        page.keyboard.press("Control+Home")
        page.keyboard.press("n")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("from 128 endpoints")
        drawn(page)
        page.get_by_role("application").focus()
        page.keyboard.press("Enter")
        pair = page.locator(".pair")
        expect(pair).to_contain_text("P50 of the RTT")
        expect(pair.locator("canvas")).to_have_count(2)
        pair.locator("summary").click()
        expect(pair.locator("details tbody tr")).to_have_count(FIRST_SICK + 3)
        expect(pair.locator("thead")).to_contain_text("responder's delay, µs")
        assert "src=" in page.url
        assert watched.axe() == []
        watched.shoot("matrix-pair-light")
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(200)
        assert watched.axe() == []
        watched.shoot("matrix-pair-dark")
        pair.get_by_role("link", name="close").click()
        expect(pair).to_have_count(0)
        page.get_by_role("link", name="whole cluster").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("from 32 leaves")


def test_a_narrow_screen_does_not_scroll_sideways(browser: Browser, sick: StillSource) -> None:
    """Only tables do, by themselves."""
    narrow = {"width": 390, "height": 800}
    with opened(browser, sick, "/matrix?level=leaf", viewport=narrow) as watched:
        drawn(watched.page)
        wide = watched.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390
        assert watched.axe() == []
        watched.shoot("matrix-narrow")


HOSTILE = (
    "<script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=1>',
    "'; window.hacked=1; //",
    "\u202egnp.evil\u2066",
    "${window.hacked=1}",
    "x" * 10_000,
    "__proto__",
)


def test_hostile_names_are_text(browser: Browser) -> None:
    """On axes, in the table, in the series of a pair, in the address."""
    view, log = ClusterView(), Log()
    for number, name in enumerate(HOSTILE):
        one = replace(window("h0", "h1", 0, START_MS, lost=30), src=name, dst=HOSTILE[number - 1])
        view.apply(log.seen(t.PROBE_WINDOW, one))
    with opened(browser, StillSource(view, START_MS), "/matrix?level=endpoint") as watched:
        page = watched.page
        drawn(page)
        assert page.locator("section[aria-labelledby=worst] tbody tr").count() == len(HOSTILE)
        watched.shoot("matrix-hostile")
        assert watched.axe() == []
        for row in range(len(HOSTILE)):
            page.locator("section[aria-labelledby=worst] tbody a").nth(row).click()
            expect(page.locator(".pair summary")).to_be_visible()
        assert page.evaluate("window.hacked") is None
        page.goto(f"{watched.origin}/matrix?rows=pod/<script>window.hacked=1</script>")
        expect(page.get_by_text("no pod")).to_be_visible()
        assert page.evaluate("window.hacked") is None


def broken(component: str, kind: str, candidates: dict[str, float] | None = None) -> StillSource:
    """Return a view with a fault, its symptoms and good paths."""
    cluster, view = WatchedCluster(4), ClusterView()
    for seen in cluster.setup():
        view.apply(seen)
    for flow in range(0, cluster.world.paths, 7):
        view.apply(cluster.seen(cluster.world.trace(flow, BEGIN_US * 1_000)))
    for seen in cluster.symptoms(component, BEGIN_US):
        view.apply(seen)
    view.apply(cluster.fault(component, kind, BEGIN_US + 10**6, candidates))
    return StillSource(view, BEGIN_US // 1_000 + 20_000)


@pytest.mark.parametrize(
    ("component", "kind", "candidates", "look"),
    [
        (LEAF, "SWITCH", None, ("light", 1280)),
        (SPINE, "SWITCH", None, ("dark", 1280)),
        ("link:leaf:s0-r0--spine:2", "LINK",
         {"link:leaf:s0-r0--spine:2": 0.6, SPINE: 0.4}, ("light", 390)),
    ],
)  # fmt: skip
def test_the_neighbourhood_of_a_fault(
    browser: Browser,
    component: str,
    kind: str,
    candidates: dict[str, float] | None,
    look: tuple[str, int],
) -> None:
    """From the page Now to the picture, its tables, and the windows of a bad path."""
    source = broken(component, kind, candidates)
    scheme, width = look
    screen = {"width": width, "height": 800}
    with opened(browser, source, "/now", color_scheme=scheme, viewport=screen) as watched:
        page = watched.page
        page.get_by_role("link", name=f"paths through it: {component}").click()
        graph = page.locator(".graph[data-nodes]")
        graph.wait_for()
        assert int(graph.get_attribute("data-nodes") or "") >= 5
        suspects = page.locator("section[aria-labelledby=suspects] tbody tr")
        expect(suspects).to_have_count(len(candidates or [component]))
        expect(suspects.first).to_contain_text(component)
        assert page.locator("section[aria-labelledby=bad] tbody tr").count() == 20 or candidates
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert watched.axe() == []
        watched.shoot(f"topology-{kind.lower()}-{component[:4]}-{scheme}-{width}")
        page.locator("section[aria-labelledby=bad] tbody a").first.click()
        expect(page.locator(".pair")).to_contain_text("no window of")


def test_a_picture_that_would_be_grey_is_a_table(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the links, the worst first."""
    monkeypatch.setattr("ops.view.neighbourhood.MAX_NODES", 4)
    with opened(browser, broken(SPINE, "SWITCH"), "/topology") as watched:
        page = watched.page
        expect(page.get_by_text("too many for a picture")).to_be_visible()
        assert page.locator("section[aria-labelledby=picture] tbody tr").count() == 4
        assert page.locator(".graph").count() == 0
        assert watched.axe() == []


def test_hostile_faults_are_text(browser: Browser) -> None:
    """Component, candidates and summary, in the picture and in the tables."""
    view, log = ClusterView(), Log()
    for number, name in enumerate(HOSTILE):
        candidates = tuple(Candidate(component_id=other, score=0.1) for other in HOSTILE)
        event = fault(fault_id=f"f{number}{name}", component_id=name, candidates=candidates,
                      summary=name, fault_kind=name)  # fmt: skip
        view.apply(log.seen(t.FAULT_EVENT, event))
    with opened(browser, StillSource(view, START_MS), "/topology") as watched:
        page = watched.page
        page.locator(".graph[data-nodes]").wait_for()
        assert page.locator(".graph").get_attribute("data-nodes") == str(len(HOSTILE))
        watched.shoot("topology-hostile")
        assert watched.axe() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        choices = page.locator("select")
        for number in range(len(HOSTILE)):
            choices.select_option(index=number)
            page.locator(".graph[data-nodes]").wait_for()
        assert page.evaluate("window.hacked") is None
