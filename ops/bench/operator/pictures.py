"""First paint of the pages that draw: a matrix of 2,048 endpoints, a fault in 100,000 links."""

import time
from typing import Final

from ops.bench.operator.site import browser
from ops.bench.operator.still import StillSource, served
from ops.bench.operator.watched import BEGIN_US, FIRST_SICK, Harm, WatchedCluster
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.view.cluster import ClusterView
from ops.web.pages.matrix import document as matrix_document
from schemas import topics

# Segments of 128 RNICs: 2,048 endpoints; 100,032 links.
MATRIX_SEGMENTS: Final = 16
TOPOLOGY_SEGMENTS: Final = 521
# 409,600 5-tuples, as the skeleton of 40,000 RNICs has.
FOLD_SEGMENTS: Final = 200
FOLD_TURNS: Final = 2
LEAF: Final = "leaf:s0-r3"
GOOD_TRACES: Final = 10_000
# What stands of a cluster's state topics; the page does not draw ping lists.
PLACED: Final = frozenset({topics.TOPOLOGY.name, topics.ENDPOINT.name})


def matrix(runs: int, say: Say) -> list[Figure]:
    """Time the matrix of endpoints until its cells are drawn, with a sick leaf in it."""
    cluster = WatchedCluster(MATRIX_SEGMENTS, {LEAF: Harm(lost=6)})
    view, now_ms = cluster.view(FIRST_SICK + 1)
    flows = cluster.world.cluster.flows
    cells = len(set(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)))
    took_s, drawn = [], 0
    with served(StillSource(view, now_ms)) as url, browser() as chromium:
        for _ in range(runs):
            context = chromium.new_context()
            page = context.new_page()
            began_s = time.monotonic()
            page.goto(f"{url}/matrix?level=endpoint", wait_until="commit")
            canvas = page.locator("canvas[data-cells]")
            canvas.wait_for()
            took_s.append(time.monotonic() - began_s)
            drawn = int(canvas.get_attribute("data-cells") or 0)
            context.close()
    say(f"{', '.join(f'{s:.2f}' for s in took_s)} s; {drawn:,} cells that show something")
    return [
        figure("first paint: matrix of 2,048²", took_s, "s", 1.5),
        figure("… cells drawn otherwise than probed", [abs(drawn - cells)], "", 0),
    ]


def topology(runs: int, say: Say) -> list[Figure]:
    """Time the neighbourhood of a sick leaf until it is drawn, and of a sick spine."""
    took_s: list[float] = []
    for component in (LEAF, "spine:2"):
        cluster, view = WatchedCluster(TOPOLOGY_SEGMENTS), ClusterView()
        for seen in cluster.setup():
            if seen.topic.name in PLACED:
                view.apply(seen)
        paths = cluster.world.paths
        for flow in range(0, paths, max(1, paths // GOOD_TRACES)):
            view.apply(cluster.seen(cluster.world.trace(flow, BEGIN_US * 1_000)))
        for seen in cluster.symptoms(component, BEGIN_US, most=4_000):
            view.apply(seen)
        view.apply(cluster.fault(component, "SWITCH", BEGIN_US + 10**6))
        now_ms = BEGIN_US // 1_000 + 20_000
        # As a server does before it is ready.
        view.prepare()
        with served(StillSource(view, now_ms)) as url, browser() as chromium:
            for _ in range(runs):
                context = chromium.new_context()
                page = context.new_page()
                began_s = time.monotonic()
                page.goto(f"{url}/topology", wait_until="commit")
                page.locator(".graph[data-nodes]").wait_for()
                took_s.append(time.monotonic() - began_s)
                context.close()
        say(f"{component}: {', '.join(f'{s:.2f}' for s in took_s[-runs:])} s")
    return [figure("first paint: a fault in 100,000 links", took_s, "s", 1.5)]


def fold(runs: int, say: Say) -> list[Figure]:
    """Fold windows of 409,600 5-tuples, and put them together."""
    cluster, view = WatchedCluster(FOLD_SEGMENTS), ClusterView()
    for seen in cluster.setup():
        if seen.topic.name in PLACED:
            view.apply(seen)
    used_s = 0.0
    count = 0
    for turn in range(FOLD_TURNS):
        for windows in cluster.windows(turn):
            began_s = time.process_time()
            view.apply(windows)
            used_s += time.process_time() - began_s
            count += len(windows)
    now_ms = (BEGIN_US + FOLD_TURNS * 30_000_000) // 1_000
    took_s = []
    for _ in range(runs + 1):
        began_s = time.process_time()
        matrix_document(view, {"level": "leaf"}, now_ms)
        took_s.append(time.process_time() - began_s)
    say(f"{count:,} windows, {used_s / count * 1e6:.1f} µs each; {took_s[-1]:.2f} s a matrix")
    return [
        figure("fold of a window, 409,600 5-tuples (CPU)", [used_s / count * 1e6], "µs"),
        # The first one finds where endpoints stand.
        figure("… the matrix of all leaves (CPU)", took_s[1:], "s"),
    ]


PARTS: Final[Parts] = {"matrix": matrix, "topology": topology, "fold": fold}
