"""Checks of the data flow: rounds, decisions, verdicts, ping lists, skeletons."""

from typing import Final

from localizer.facts.coverage import COVERED_SHARE, coverage_by_task, total
from ops.doctor.snapshot import Check, Snapshot, Status
from ops.view.texts import MS_PER_S, age, counted, some
from schemas.units import US_PER_MS

# Progress moves in steps of 250 ms, rounds come once a second.
BEHIND_WARN_MS: Final = 5_000
BEHIND_FAIL_MS: Final = 30_000
PROGRESS_PER_S: Final = 4
# Agents with active targets send a round a second.
ROUNDS_FAIL_MS: Final = 15_000
# A leader says so each second; another one takes over within ten.
LEADER_GONE_MS: Final = 15_000
# Containers of one task start up to ten minutes apart (SkeletonHunter, SIGCOMM 2025).
START_UP_MS: Final = 600_000
# The published inference looks at 15 to 25 minutes of counters.
SKELETON_WARN_MS: Final = 1_800_000


def rounds(s: Snapshot) -> Check:
    """Check that agents that have targets send rounds."""
    probing = sum(h.targets_active > 0 for a, h in s.heartbeats.items() if a in s.live)
    newest = max(s.rounds_ms.values(), default=None)
    if probing and (newest is None or s.now_ms - newest > ROUNDS_FAIL_MS):
        last = "none ever came" if newest is None else f"last {age(s.now_ms - newest)} ago"
        return Check(
            name="rounds",
            status=Status.FAIL,
            found=f"{counted(probing, 'agent')} with active targets, but no rounds: {last}",
            todo="see the agents' logs: they reach the broker for heartbeats only",
        )
    if newest is None:
        return Check(name="rounds", status=Status.OK, found="none yet, and nobody has targets")
    return Check(name="rounds", status=Status.OK, found=f"newest {age(s.now_ms - newest)} old")


def worker(s: Snapshot) -> Check:
    """Check that every partition of rounds has been decided up to its last round."""
    behind: dict[int, int | None] = {}
    for p, last_ms in s.rounds_ms.items():
        if s.worker_lag.get(p) == 0:
            behind[p] = 0  # refused records are done with, too, and move no time
        else:
            behind[p] = last_ms - s.progress_ms[p] if p in s.progress_ms else None
    lag = sum(n for n in s.worker_lag.values() if n is not None)
    tail = f"; {counted(lag, 'round')} not committed"
    never = [str(p) for p, ms in behind.items() if ms is None]
    worst = max((ms for ms in behind.values() if ms is not None), default=0)
    if never or worst > BEHIND_WARN_MS:
        parts = [f"partition {', '.join(never)} never decided"] if never else []
        if worst > BEHIND_WARN_MS:
            parts.append(f"up to {age(worst)} behind the rounds")
        bad = never or worst > BEHIND_FAIL_MS
        return Check(
            name="worker",
            status=Status.FAIL if bad else Status.WARN,
            found=f"{'; '.join(parts)}{tail}",
            todo="start a worker (`skeletonhunter worker`), or one more; see its log",
        )
    if not behind:
        return Check(name="worker", status=Status.OK, found="no rounds to work on")
    return Check(
        name="worker",
        status=Status.OK,
        found=f"{counted(len(behind), 'partition')} decided up to the last round{tail}",
    )


def localizer(s: Snapshot) -> Check:
    """Check that the localizer has read the anomalies."""
    if not s.progress_ms:
        return Check(name="localizer", status=Status.OK, found="no anomalies or progress to read")
    known = [n for n in s.localizer_lag.values() if n is not None]
    if not known:
        return Check(
            name="localizer",
            status=Status.FAIL,
            found="has never committed a position",
            todo="start it: `skeletonhunter localizer`; without it there are no verdicts",
        )
    # Most of the topic is PROGRESS: so many records a second and partition.
    seconds = max(known) / PROGRESS_PER_S
    status = (
        Status.OK
        if seconds * MS_PER_S <= BEHIND_WARN_MS
        else Status.WARN
        if seconds * MS_PER_S <= BEHIND_FAIL_MS
        else Status.FAIL
    )
    return Check(
        name="localizer",
        status=status,
        found=f"{counted(sum(known), 'record')} of anomaly.v1 not read",
        todo="" if status is Status.OK else "see its log; restart it: it loses nothing",
    )


def leaders(s: Snapshot) -> Check:
    """Check that each role that ever had a leader has one."""
    gone, lead = [], []
    for role, leader in s.leaders.items():
        if leader is None:
            continue
        ago_ms = s.now_ms - leader.renewed_ms
        if ago_ms > LEADER_GONE_MS:
            gone.append(f"no {role} leads: {leader.name} did until {age(ago_ms)} ago")
        else:
            lead.append(f"{role} {leader.name}")
    if gone:
        return Check(
            name="leaders",
            status=Status.FAIL,
            found="; ".join(gone),
            todo="start it, better two of it: one stands by; see its log",
        )
    return Check(name="leaders", status=Status.OK, found=", ".join(lead) or "nobody has led yet")


def unregistered_targets(s: Snapshot) -> Check:
    """Check that every endpoint on a ping list has registered, or is still starting."""
    waiting: dict[str, set[str]] = {}
    starting = 0
    for pinglist in s.pinglists.values():
        for target in pinglist.targets:
            if target.dst in s.endpoints:
                continue
            task = s.tasks.get(target.task_id)
            if task is not None and task.ended_at is not None:
                continue
            if task is not None and s.now_ms - task.submitted_at // US_PER_MS < START_UP_MS:
                starting += 1
                continue
            waiting.setdefault(target.task_id, set()).add(target.dst)
    if waiting:
        lines = (f"{task}: {some(sorted(ids))}" for task, ids in sorted(waiting.items()))
        return Check(
            name="targets",
            status=Status.WARN,
            found=f"on ping lists, never registered: {some(lines)}",
            todo="their agents do not run, or the task names wrong endpoints (`task list`)",
        )
    note = f"; {counted(starting, 'target')} of young tasks not yet up" if starting else ""
    return Check(name="targets", status=Status.OK, found=f"all registered{note}")


def coverage(s: Snapshot) -> Check:
    """Check that agents probe what is on their ping lists, task by task."""
    live = {
        agent: beat.flows_active
        for agent, beat in s.heartbeats.items()
        if agent in s.live and beat.flows_active is not None
    }
    by_task = coverage_by_task(s.pinglists.values(), live, s.endpoints.__contains__)
    every = total(one for agents in by_task.values() for one in agents.values())
    lines = []
    for task, agents in sorted(by_task.items()):
        whole = total(agents.values())
        if whole.share < COVERED_SHARE:
            low = sorted(a for a, one in agents.items() if one.share < COVERED_SHARE)
            lines.append(f"{task} {whole.share:.0%} ({some(low)})")
    if lines:
        return Check(
            name="coverage",
            status=Status.WARN,
            found=f"too few 5-tuples are probed: {some(lines)}",
            todo="see `probing_reason` in these agents' heartbeats, and their logs",
        )
    return Check(
        name="coverage",
        status=Status.OK,
        found=f"{every.seen:,.0f} of {every.expected:,} 5-tuples on ping lists are probed"
        if every.expected
        else "nothing to probe, or no agent says how much it probes",
    )


def skeletons(s: Snapshot) -> Check:
    """Check that every task that has run for long has a skeleton."""
    running = {t: task for t, task in s.tasks.items() if task.ended_at is None}
    missing, ages_ms = [], []
    for name, task in sorted(running.items()):
        skeleton = s.skeletons.get(name)
        age_ms = s.now_ms - task.submitted_at // US_PER_MS
        if skeleton is not None:
            ages_ms.append(s.now_ms - skeleton.window_end_at // US_PER_MS)
        elif age_ms > SKELETON_WARN_MS:
            missing.append(f"{name} (submitted {age(age_ms)} ago)")
    if missing:
        return Check(
            name="skeletons",
            status=Status.WARN,
            found=f"none for {some(missing)}",
            todo="does `skeleton run` run, and do agents read counters? Full lists stay meanwhile",
        )
    if not running:
        return Check(name="skeletons", status=Status.OK, found="no task runs")
    oldest = f", oldest from {age(max(ages_ms))} ago" if ages_ms else ""
    return Check(
        name="skeletons",
        status=Status.OK,
        found=f"{len(ages_ms)} for {counted(len(running), 'running task')}{oldest}",
    )
