"""The cost of a decision of the localizer after one container came and another one left.

A cable is cut all the time, so that every decision runs an inference. In each second the
heartbeats come with the first grid step and the containers with the third: the cost of the third
step is that of a decision and of the change. Healthy paths are not traced meanwhile. Each decision
reads the traces of a minute, of up to 2,048 bad 5-tuples and 1,024 others. CPU time of one core, as
in `ops.bench.scale.localizer`.
"""

import time
from dataclasses import replace
from statistics import median
from typing import Final

from arena.simulation.setup import Rec, host_endpoints, topology
from localizer.config import GRID_NS, CoreConfig
from localizer.core import Core
from ops.bench.rig.growth import Curve, call_alone, slope_figure
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.bench.scale.localizer import set_up
from ops.bench.scale.localizer_faults import Troubles, plan
from ops.bench.scale.localizer_world import NAME, RAILS, Numbered, World
from schemas.enums import ComponentKind
from schemas.process import memory
from schemas.units import SECOND_NS

# 49,152, 100,352 and 200,704 5-tuples.
SIZES: Final = (24, 49, 98)
# Of the issue: nearly nothing of it grows with the cluster.
SLOPE: Final = 0.2
CALM_S: Final = 3
# Decisions that are measured, one a second.
CHANGES: Final = 15
# Containers are taken from hosts so far apart, so that each has targets of its own.
STRIDE: Final = 37


class Containers:
    """Endpoints that go, one a second, and come again a second later."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._records = {
            rec.key: rec
            for rec in topology(NAME, world.cluster, 0)
            if rec.record.kind is ComponentKind.ENDPOINT
        }
        self._names = list(self._records)

    def change(self, count: int, at_ns: int) -> list[Rec]:
        """Return what is said when one goes, and the one that went before it comes."""
        went, came = self._of(count, at_ns), self._of(count - 1, at_ns)
        return [*(replace(rec, record=None) for rec in went), *(came if count else ())]

    def _of(self, count: int, at_ns: int) -> list[Rec]:
        number = count * STRIDE * RAILS % len(self._names)
        name, host = self._names[number], number // RAILS
        registered = host_endpoints(NAME, self._world.cluster, 0, host, at_ns)
        mine = next(rec for rec in registered if rec.key == name)
        return [replace(self._records[name], at_ns=at_ns), mine]


def run(segments: int) -> tuple[int, float, float]:
    """Return 5-tuples, and seconds of a decision after a change, and of the one before it."""
    world, numbered = World(segments), Numbered()
    core, containers = Core(CoreConfig(cluster=NAME)), Containers(world)
    now_ns = base_ns = set_up(core, world, numbered)
    troubles = Troubles(world, plan(world)[:1], base_ns + CALM_S * SECOND_NS)
    # As the service does when it has caught up.
    memory.leave_out_present()
    spent: list[list[float]] = []
    for second in range(2 * CALM_S + CHANGES):
        recs = [
            *world.heartbeats(second, base_ns, frozenset()),
            *troubles.until(base_ns + (second + 1) * SECOND_NS),
        ]
        spent.append([])
        for step in range(SECOND_NS // GRID_NS):
            now_ns += GRID_NS
            if step == 2 and second >= 2 * CALM_S:
                recs = containers.change(second - 2 * CALM_S, now_ns)
            events = [numbered.event(replace(rec, at_ns=now_ns)) for rec in recs]
            recs = []
            begin_s = time.process_time()
            for event in events:
                core.feed(event)
            core.advance(now_ns)
            spent[-1].append(time.process_time() - begin_s)
    if not core.lifecycle.open_faults():
        raise RuntimeError(f"no fault is open among {world.paths} 5-tuples: nothing was decided")
    late = spent[2 * CALM_S :]
    return world.paths, median(s[2] for s in late), median(s[1] for s in late)


def ends(runs: int, say: Say) -> list[Figure]:
    """Measure it at three sizes."""
    del runs  # A median of many decisions already.
    found = []
    for segments in SIZES:
        paths, after_s, before_s = call_alone(run, segments)
        found.append((paths, after_s))
        say(
            f"localizer, {paths:,} paths: a decision after a container came and one went "
            f"{1e3 * after_s:.1f} ms, without {1e3 * before_s:.1f} ms"
        )
    curve = Curve(
        name="localizer: a decision after one endpoint came and one went", axis="5-tuples",
        unit="s", sizes=tuple(float(paths) for paths, _ in found),
        costs=tuple(after_s for _, after_s in found),
    )  # fmt: skip
    return [
        slope_figure(curve, SLOPE, say),
        figure(f"… at {found[-1][0]:,} paths", [found[-1][1]], "s"),
    ]


PARTS: Final[Parts] = {"localizer-ends": ends}
