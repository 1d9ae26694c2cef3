"""How the localizer's core keeps up with a large fabric: 50 faults at once, a spine that dies.

The core is the service's own (`localizer.core`), fed with events in the order of time and
advanced a grid step at a time, as the service does when it keeps up. Times are of one core
(`process_time`): the core is a single thread that waits for nothing, and what else runs on the
machine is not its matter. Each size is measured in a process of its own: what one left behind
is not counted to the next.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from localizer.config import GRID_NS, CoreConfig
from localizer.core import Core
from localizer.facts.inputs import Event
from localizer.inference import search
from localizer.verdict.silences import silent_agents
from ops.bench.rig import process_cost
from ops.bench.rig.growth import Curve, call_alone, slope_figure
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.bench.scale.localizer_faults import Fault, Troubles, plan, spine_off
from ops.bench.scale.localizer_world import (
    BEGIN_NS,
    NAME,
    Numbered,
    World,
    heartbeat_batch,
    trace_batch,
)
from schemas import topics
from schemas.enums import FaultLifecycle
from schemas.process import memory
from schemas.records import FaultEvent
from schemas.units import SECOND_NS

# What the service hands to the core as columns.
COLUMNS: Final = frozenset({topics.HEARTBEAT.name, topics.PATH_TRACE.name})
# Bars of the issue.
DECISION_S: Final = 0.5
STORM_OUT_S: Final = 2.0
# "A few".
STORM_VERDICTS: Final = 3.0
MB: Final = 1_000_000
# Links 192 each: 100,032 of them, and 1,067,008 5-tuples.
FULL: Final = 521
# 75,072 links and 800,768 5-tuples: of its spines each carries 100,000.
STORM: Final = 391
# 1,920, 4,992, 9,984, 29,952 and 100,032 links.
SIZES: Final = (10, 26, 52, 156, FULL)
# First traces consumed before time goes on: they are never all in memory.
CHUNK: Final = 20_000
# Agents are heard for so long before anything happens.
CALM_S: Final = 3
# The last sort of fault is claimed half a minute after it began.
FAULTS_S: Final = 30
STORM_S: Final = 10


@dataclass(slots=True)
class Run:
    """What a core did with some faults, step by step.

    Attributes
    ----------
    links, paths, anomalies : sizes
    setup_s : how long topology, ping lists and all first traces took
    steps_s : how long each grid step took, what came in before it included
    tended_s : passes of the collector between them, all together
    out_s : when all first verdicts were out, seconds after the first anomaly, of a core that
        works as time goes by: no step begins before its time or before the last one ended
    peak_mb : largest resident size of the process
    opened : components of the faults that were opened, each with all of its candidates
    silent : agents that a verdict lists, for those silent at once are one fault
    truth : what was wrong
    transitions : events published in all
    """

    links: int
    paths: int
    anomalies: int = 0
    setup_s: float = 0.0
    steps_s: list[float] = field(default_factory=list)
    tended_s: float = 0.0
    out_s: float = 0.0
    peak_mb: float = 0.0
    opened: dict[str, tuple[str, ...]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    truth: list[Fault] = field(default_factory=list)
    transitions: int = 0

    @property
    def named(self) -> list[Fault]:
        """Faults of which a verdict names the component, or lists it among silent agents."""
        first = {names[0] for names in self.opened.values()} | self.silent
        return [fault for fault in self.truth if fault.component_id in first]

    @property
    def false(self) -> list[tuple[str, ...]]:
        """Verdicts that name nothing that is at fault."""
        truth = {fault.component_id for fault in self.truth}
        return [names for names in self.opened.values() if truth.isdisjoint(names)]


def run_faults(segments: int, lasts_s: int = FAULTS_S) -> Run:
    """Put fifty faults into a fabric of that size."""
    world = World(segments)
    return _run(world, plan(world), lasts_s, at_once=False)


def run_storm(segments: int, lasts_s: int = STORM_S) -> Run:
    """Let a spine die in a fabric of that size."""
    world = World(segments)
    return _run(world, [spine_off(world)], lasts_s, at_once=True)


def _run(world: World, faults: list[Fault], lasts_s: int, *, at_once: bool) -> Run:
    core, numbered = Core(CoreConfig(cluster=NAME)), Numbered()
    run = Run(links=world.links, paths=world.paths, truth=faults)
    # The collector is held and kernels are read as the service does, before it reads.
    memory.collect_on_demand()
    search.warm()
    begin_s = time.process_time()
    now_ns = base_ns = set_up(core, world, numbered)
    run.setup_s = time.process_time() - begin_s
    troubles = Troubles(world, faults, base_ns + CALM_S * SECOND_NS, at_once=at_once)
    run.anomalies = troubles.anomalies
    memory.leave_out_present()
    first_ns, ended_s = None, 0.0
    for second in range(CALM_S + lasts_s):
        quiet = _quiet(world, troubles, numbered, second, base_ns)
        while now_ns < base_ns + (second + 1) * SECOND_NS:
            now_ns += GRID_NS
            due = [numbered.event(rec) for rec in troubles.until(now_ns)]
            if first_ns is None and any(e.topic == topics.ANOMALY.name for e in due):
                first_ns = now_ns
            while quiet and quiet[-1].at_ns <= now_ns:
                due.append(quiet.pop())
            traces = [event for event in due if event.topic == topics.PATH_TRACE.name]
            beats = [event for event in due if event.topic == topics.HEARTBEAT.name]
            trace_columns = trace_batch(traces) if traces else None
            beat_columns = heartbeat_batch(beats) if beats else None
            begin_s = time.process_time()
            for event in due:
                if event.topic not in COLUMNS:
                    core.feed(event)
            if beat_columns is not None:
                core.feed_heartbeats(beat_columns)
            if trace_columns is not None:
                core.feed_traces(trace_columns)
            said = core.advance(now_ns)
            spent_s = time.process_time() - begin_s
            # As the service does, between decisions.
            memory.collect_if_due()
            tended_s = time.process_time() - begin_s - spent_s
            if first_ns is None:
                continue
            run.steps_s.append(spent_s)
            run.tended_s += tended_s
            ended_s = max(ended_s, (now_ns - first_ns) / SECOND_NS) + spent_s
            if _note(run, said):
                run.out_s = ended_s
            ended_s += tended_s
    # Not getrusage's, which begins with what the parent had.
    run.peak_mb = process_cost.memory(os.getpid()).peak_bytes / MB
    return run


def _quiet(
    world: World, troubles: Troubles, numbered: Numbered, second: int, base_ns: int
) -> list[Event]:
    """Return what comes in a second whether anything is wrong or not, the last first."""
    dead = troubles.dead if second >= CALM_S else frozenset[int]()
    recs = [*world.heartbeats(second, base_ns, dead)]
    recs += world.refreshes(second, base_ns, frozenset(troubles.bad))
    recs.sort(key=lambda rec: rec.at_ns, reverse=True)
    return [numbered.event(rec) for rec in recs]


def set_up(core: Core, world: World, numbered: Numbered) -> int:
    """Feed what the cluster is and all first traces; return the time when all is in."""
    now_ns = BEGIN_NS
    for rec in world.setup(BEGIN_NS):
        core.feed(numbered.event(rec))
    now_ns += GRID_NS
    core.advance(now_ns)
    for begin in range(0, world.paths, CHUNK):
        flows = range(begin, min(begin + CHUNK, world.paths))
        traces = [numbered.event(world.trace(flow, BEGIN_NS)) for flow in flows]
        core.feed_traces(trace_batch(traces))
        now_ns += GRID_NS
        core.advance(now_ns)
    # Heartbeats begin with a whole second.
    now_ns += SECOND_NS - now_ns % SECOND_NS
    core.advance(now_ns)
    return now_ns


def _note(run: Run, said: Sequence[FaultEvent]) -> bool:
    """Take note of verdicts; say whether one was new."""
    run.transitions += len(said)
    for event in said:
        names = (event.component_id, *(c.component_id for c in event.candidates))
        run.opened[event.fault_id] = tuple(dict.fromkeys(names))
        run.silent |= silent_agents(event.evidence)
    return any(event.state is FaultLifecycle.OPEN for event in said)


@cache
def _measured(what: Callable[[int], Run], segments: int) -> Run:
    """Measure in a process of its own; what one part measured the next need not."""
    return call_alone(what, segments)


def faults(runs: int, say: Say) -> list[Figure]:
    """Measure fifty faults at once in the full fabric."""
    del runs  # A run takes minutes, and nothing of it is chance but the machine.
    run = _measured(run_faults, FULL)
    say(_line("50 faults", run))
    right = [float(fault in run.named) for fault in run.truth]
    size = f"{run.links:,} links, {run.paths:,} paths, {len(run.truth)} faults"
    named = figure("… faults named", right, "of faults", sense=">=")
    return [
        figure(f"localizer, {size}: longest decision", [max(run.steps_s)], "s", DECISION_S),
        figure("… a second of events takes", [_per_second(run)], "s"),
        figure("… all verdicts are out after", [run.out_s], "s"),
        replace(named, value=sum(right) / len(right)),
        figure("… false verdicts", [float(len(run.false))]),
        figure("… peak RSS", [run.peak_mb], "MB"),
        figure("… first traces and topology taken in", [run.setup_s], "s"),
    ]


def storm(runs: int, say: Say) -> list[Figure]:
    """Measure the death of a spine that a hundred thousand 5-tuples cross."""
    del runs
    run = _measured(run_storm, STORM)
    say(_line("storm", run))
    what = f"localizer, {run.anomalies:,} anomalies at once: verdicts out after"
    return [
        figure(what, [run.out_s], "s", STORM_OUT_S),
        figure("… verdicts", [float(len(run.opened))], bar=STORM_VERDICTS),
        figure("… of these not the spine", [float(len(run.false))]),
        figure("… events published", [float(run.transitions)]),
        figure("… a second of events takes", [_per_second(run)], "s"),
        figure("… peak RSS", [run.peak_mb], "MB"),
    ]


def growth(runs: int, say: Say) -> list[Figure]:
    """Measure both at five sizes, and print the slopes of time and memory over links."""
    del runs
    rows = []
    for name, what in (("50 faults", run_faults), ("a spine's death", run_storm)):
        found = [_measured(what, segments) for segments in SIZES]
        for run in found:
            say(_line(name, run))
        for of, values, unit in (
            ("longest decision", [max(run.steps_s) for run in found], "s"),
            ("peak RSS", [run.peak_mb for run in found], "MB"),
        ):
            curve = Curve(
                name=f"localizer, {name}: {of}", axis="links", unit=unit,
                sizes=tuple(float(run.links) for run in found), costs=tuple(values),
            )  # fmt: skip
            rows.append(slope_figure(curve, None, say))
    return rows


def _per_second(run: Run) -> float:
    return (sum(run.steps_s) + run.tended_s) / (len(run.steps_s) * GRID_NS / SECOND_NS)


def _line(name: str, run: Run) -> str:
    return (
        f"{name}: {run.links:,} links, {run.paths:,} paths, {run.anomalies:,} anomalies: "
        f"{len(run.named)} of {len(run.truth)} named, {len(run.false)} false, "
        f"longest decision {max(run.steps_s):.2f} s, {_per_second(run):.2f} s of work a second, "
        f"out after {run.out_s:.1f} s, {run.peak_mb:.0f} MB"
    )


PARTS: Final[Parts] = {
    "localizer-faults": faults,
    "localizer-storm": storm,
    "localizer-growth": growth,
}
