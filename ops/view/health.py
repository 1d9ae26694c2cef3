"""Whether it is the network: what the parts of the system say of themselves at a time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from localizer.facts.coverage import COVERED_SHARE, total
from ops.view.cluster import ClusterView
from ops.view.coverage import coverage
from ops.view.texts import age, counted, some
from schemas.enums import AgentState, Layer
from schemas.units import MS_NS, US_PER_MS

# A mark comes four times a second, of an idle partition every five seconds: three of those.
WORKER_SILENT_MS: Final = 15_000
# Marks are decided a round and the lateness behind their event time: some two seconds.
WORKER_BEHIND_MS: Final = 10_000
# A heartbeat may be late by a poll, a batch and a busy host. A clock that is off by more makes
# results count as late, by the worker's default.
CLOCK_MS: Final = 500
# The published inference looks at 15 to 25 minutes of counters.
SKELETON_MS: Final = 1_800_000


class Status(StrEnum):
    """How a part of the system does."""

    GOOD = "good"
    ODD = "odd"
    BAD = "bad"
    UNKNOWN = "unknown"


class Answer(StrEnum):
    """Whether it is the network."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one part of the system says; `todo` is empty when all is well."""

    name: str
    status: Status
    found: str
    todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The answer in one line, and why."""

    answer: Answer
    text: str


def parts(view: ClusterView, now_ms: int) -> list[Part]:
    """Return all parts, from the network to what watches it."""
    return [
        *(network(view, layer) for layer in (Layer.UNDERLAY, Layer.OVERLAY, Layer.HOST, Layer.JOB)),
        agents(view, now_ms),
        covered(view),
        worker(view, now_ms),
        skeletons(view, now_ms),
        records(view),
    ]


def headline(view: ClusterView, health: Iterable[Part]) -> Headline:
    """Return the answer: yes with an open fault; no only if those who would see one are well.

    A job that hangs for a reason that is not known may do so for the network's.
    """
    faults = view.faults.open()
    network_faults = [h for h in faults if h.last.layer not in (Layer.HOST, Layer.JOB)]
    if network_faults:
        first = network_faults[0].last
        return Headline(
            answer=Answer.YES,
            text=f"{counted(len(network_faults), 'open fault')}, the latest: {first.summary}",
        )
    blind = [p for p in health if p.name in WATCHERS and p.status in (Status.BAD, Status.UNKNOWN)]
    if blind:
        return Headline(
            answer=Answer.UNKNOWN,
            text="No open fault, but who would see one is not well: "
            + "; ".join(f"{p.name}: {p.found}" for p in blind),
        )
    unclear = [h for h in faults if h.last.layer is Layer.JOB and not h.last.decided]
    if unclear:
        return Headline(
            answer=Answer.UNKNOWN,
            text=f"No fault of the network is known, but: {unclear[0].last.summary}",
        )
    if faults:
        text = f"No fault of the network; {counted(len(faults), 'fault')} of hosts or jobs"
        return Headline(answer=Answer.NO, text=text)
    return Headline(answer=Answer.NO, text="No open fault, and all paths on ping lists are watched")


AGENTS, COVERAGE, WORKER = "agents", "coverage", "worker"
# Without these no fault would be seen.
WATCHERS: Final = (AGENTS, COVERAGE, WORKER)


def network(view: ClusterView, layer: Layer) -> Part:
    """Count the open faults of a layer."""
    faults = [h.last for h in view.faults.open() if h.last.layer is layer]
    name = layer.value.lower()
    if not faults:
        return Part(name=name, status=Status.GOOD, found="no open fault")
    by_severity = Counter(f.severity for f in faults)
    worst = "critical" in by_severity or "error" in by_severity
    return Part(
        name=name,
        status=Status.BAD if worst else Status.ODD,
        found=f"{counted(len(faults), 'open fault')}: "
        + ", ".join(f"{n} {severity}" for severity, n in sorted(by_severity.items())),
        todo="open the fault for its first step",
    )


def agents(view: ClusterView, now_ms: int) -> Part:
    """Say which agents are silent, degraded, twins, off in time, or drop results."""
    expected = {e.agent_id for e in view.endpoints.values()}
    leaving = {a for a, v in view.agents.items() if v.beat.record.state is AgentState.LEAVING}
    known = (expected | set(view.agents)) - leaving
    if not known:
        return Part(
            name=AGENTS,
            status=Status.UNKNOWN,
            found="no agent has ever registered",
            todo="start agents: `skeletonhunter agent --config …`",
        )
    silent = [
        a for a in known if (v := view.agents.get(a)) is None or v.silent_ms(now_ms) is not None
    ]
    degraded = [
        a for a in known - set(silent) if view.agents[a].beat.record.state is AgentState.DEGRADED
    ]
    off = [a for a in known - set(silent) if clock_off_ms(view, a) is not None]
    twins = [a for a in known - set(silent) if view.agents[a].twin(now_ms)]
    dropping = [a for a in known - set(silent) if view.agents[a].lately("rounds_dropped")]
    lines = [
        f"{len(ids)} {what} ({some(sorted(ids))})"
        for ids, what in (
            (silent, "silent"),
            (twins, "with a twin"),
            (degraded, "degraded"),
            (off, "with a wrong clock"),
            (dropping, "dropping results"),
        )
        if ids
    ]
    if not lines:
        return Part(
            name=AGENTS, status=Status.GOOD, found=f"{counted(len(known), 'agent')}, all well"
        )
    return Part(
        name=AGENTS,
        status=Status.BAD if silent or twins else Status.ODD,
        found=f"of {len(known):,}: {', '.join(lines)}",
        todo="see the agents page, and their logs",
    )


def clock_off_ms(view: ClusterView, agent: str) -> int | None:
    """Return by how much an agent's clock is ahead of the broker's; None: by little, or unknown."""
    seen = view.agents.get(agent)
    if seen is None or seen.beat.record.clock_offset_ns is None:
        return None
    off_ms = seen.beat.record.clock_offset_ns // MS_NS
    return off_ms if abs(off_ms) > CLOCK_MS else None


def covered(view: ClusterView) -> Part:
    """Compare 5-tuples that are probed with those on ping lists."""
    found = coverage(view)
    every = total(one for by_agent in found.values() for one in by_agent.values())
    if not every.expected:
        return Part(
            name=COVERAGE,
            status=Status.UNKNOWN,
            found="nothing on ping lists, or nobody says how much is probed",
            todo="submit a task: `skeletonhunter task submit FILE`",
        )
    text = f"{every.seen:,.0f} of {every.expected:,} 5-tuples on ping lists are probed"
    low = {
        task: whole
        for task, by_agent in found.items()
        if (whole := total(by_agent.values())).share < COVERED_SHARE
    }
    if not low:
        return Part(name=COVERAGE, status=Status.GOOD, found=text)
    worst = some(f"{task} {one.share:.0%}" for task, one in sorted(low.items()))
    return Part(
        name=COVERAGE,
        status=Status.BAD if every.share < COVERED_SHARE / 2 else Status.ODD,
        found=f"{text}; too few: {worst}",
        todo="see why on the agents page",
    )


def worker(view: ClusterView, now_ms: int) -> Part:
    """Say how far the stream worker has decided."""
    if not view.progress:
        return Part(
            name=WORKER,
            status=Status.UNKNOWN,
            found="no progress mark ever came",
            todo="start it: `skeletonhunter worker`",
        )
    silent = {p: now_ms - mark.arrived_ms for p, mark in view.progress.items()}
    late = {p: ms for p, ms in silent.items() if ms > WORKER_SILENT_MS}
    if late:
        return Part(
            name=WORKER,
            status=Status.BAD,
            found=f"silent for {age(max(late.values()))} on {counted(len(late), 'partition')}",
            todo="see its log; restart it: it loses nothing",
        )
    behind_ms = max(
        (m.arrived_ms - m.event_ms for m in view.progress.values() if not m.idle and m.event_ms),
        default=0,
    )
    text = f"{counted(len(view.progress), 'partition')} decided"
    if behind_ms > WORKER_BEHIND_MS:
        return Part(
            name=WORKER,
            status=Status.ODD,
            found=f"{text}, up to {age(behind_ms)} behind the probes",
            todo="start one more worker; see its log",
        )
    return Part(
        name=WORKER, status=Status.GOOD, found=f"{text}, {behind_ms / 1000:.1f} s behind the probes"
    )


def skeletons(view: ClusterView, now_ms: int) -> Part:
    """Say how old the skeletons of the running tasks are."""
    running = {name: task for name, task in view.tasks.items() if task.ended_at is None}
    if not running:
        return Part(name="skeletons", status=Status.GOOD, found="no task runs")
    missing = [
        name
        for name, task in running.items()
        if name not in view.skeletons and now_ms - task.submitted_at // US_PER_MS > SKELETON_MS
    ]
    ages_ms = [
        now_ms - view.skeletons[name].window_end_at // US_PER_MS
        for name in running
        if name in view.skeletons
    ]
    if missing:
        return Part(
            name="skeletons",
            status=Status.ODD,
            found=f"none for {some(sorted(missing))}",
            todo="does `skeletonhunter skeleton run` run, and do agents read counters? "
            "Full lists stay meanwhile",
        )
    oldest = f", the oldest of {age(max(ages_ms))} ago" if ages_ms else ": still being inferred"
    return Part(
        name="skeletons",
        status=Status.GOOD,
        found=f"{len(ages_ms)} for {counted(len(running), 'running task')}{oldest}",
    )


def records(view: ClusterView) -> Part:
    """Say what could not be used of the records that were read."""
    lines = [
        f"{number:,} of {topic} {what}"
        for counts, what in ((view.refused, "cannot be used"), (view.dropped, "not kept: too many"))
        for topic, number in sorted(counts.items())
    ]
    if not lines:
        return Part(name="records", status=Status.GOOD, found="all that were read could be used")
    return Part(
        name="records",
        status=Status.ODD,
        found=f"of {counted(view.records.total(), 'record')}: {some(lines)}",
        todo="`skeletonhunter tail TOPIC` shows them with their errors",
    )
