"""Checks of the agents."""

from typing import Final

from ops.doctor.snapshot import Check, Snapshot, Status
from ops.view.agents import silent_after_ms
from ops.view.health import CLOCK_MS
from ops.view.texts import MS_PER_S, age, counted, some
from schemas.enums import AgentState, ProbingState
from schemas.records import Heartbeat
from schemas.units import MS_NS, US_PER_MS

CLOCK_FAIL_MS: Final = 5_000
# Why an agent probes nothing that is no fault by itself: it may be in no job.
IDLE: Final = (ProbingState.NO_LIST, ProbingState.EMPTY_LIST)


def silent_agents(s: Snapshot) -> Check:
    """Check that every agent that should be alive has sent a heartbeat lately."""
    expected = {e.agent_id for e in s.endpoints.values()} | {
        a for a, h in s.heartbeats.items() if h.state is not AgentState.LEAVING
    }
    silent = {}
    for agent in expected:
        beat = s.heartbeats.get(agent)
        if beat is None:
            silent[agent] = "no heartbeat"
            continue
        age_ms = s.now_ms - beat.sent_at // US_PER_MS
        if age_ms > silent_after_ms(beat) and agent not in s.live:
            silent[agent] = f"{age(age_ms)} ago"
    if silent:
        return Check(
            name="agents alive",
            status=Status.FAIL,
            found=f"silent: {some(f'{a} ({why})' for a, why in sorted(silent.items()))}",
            todo="look at these hosts and their agents' logs; restart the agents",
        )
    if not expected:
        return Check(
            name="agents alive",
            status=Status.WARN,
            found="no agent has ever registered",
            todo="start agents: `skeletonhunter agent --config …`",
        )
    return Check(
        name="agents alive",
        status=Status.OK,
        found=f"{counted(len(expected), 'agent')} with fresh heartbeats",
    )


def degraded_agents(s: Snapshot) -> Check:
    """Check that no agent says that it cannot do its work."""
    lines = [
        f"{a} ({h.state_reason or 'no reason given'})"
        for a, h in sorted(s.heartbeats.items())
        if h.state is AgentState.DEGRADED
    ]
    if lines:
        return Check(
            name="agents well",
            status=Status.WARN,
            found=f"degraded: {some(lines)}",
            todo="the reason says what is missing; see the agents' logs",
        )
    return Check(name="agents well", status=Status.OK, found="none degraded")


def twins(s: Snapshot) -> Check:
    """Check that no two agents use one id."""
    double = [a for a, b in s.live.items() if len(b.incarnations) > 1]
    if double:
        return Check(
            name="agent ids",
            status=Status.FAIL,
            found=f"more than one process sends as {some(sorted(double))}",
            todo="give each agent its own id (or look again: it may just have restarted)",
        )
    return Check(name="agent ids", status=Status.OK, found="each used by one process")


def clocks(s: Snapshot) -> Check:
    """Check that heartbeats arrive when they say that they were sent."""
    off = {a: b.delay_ms for a, b in s.live.items() if abs(b.delay_ms) > CLOCK_MS}
    if off:
        worst = max(map(abs, off.values()))
        lines = (
            f"{agent} {abs(ms) / MS_PER_S:.1f} s {'behind' if ms > 0 else 'ahead'}"
            for agent, ms in sorted(off.items(), key=lambda item: -abs(item[1]))
        )
        return Check(
            name="clocks",
            status=Status.FAIL if worst > CLOCK_FAIL_MS else Status.WARN,
            found=f"against this machine's: {some(lines)}",
            todo="synchronize the clocks (PTP or NTP); the worker drops results it takes for late",
        )
    if not s.live:
        return Check(
            name="clocks",
            status=Status.WARN if s.heartbeats or s.endpoints else Status.OK,
            found=f"no heartbeat came in {s.listened_ms / MS_PER_S:.0f} s: cannot tell",
            todo="see the agents" if s.heartbeats or s.endpoints else "",
        )
    worst = max(abs(b.delay_ms) for b in s.live.values())
    return Check(
        name="clocks",
        status=Status.OK,
        found=f"{counted(len(s.live), 'agent')} within {worst} ms of this machine",
    )


def clock_offsets(s: Snapshot) -> Check:
    """Check that the agents' clocks agree with the broker's, as they have measured it."""
    offsets = {
        agent: beat.clock_offset_ns / MS_NS
        for agent, beat in s.heartbeats.items()
        if beat.clock_offset_ns is not None
    }
    unknown = len(s.heartbeats) - len(offsets)
    rest = f"; {counted(unknown, 'agent')} could not tell" if unknown else ""
    worst = max(map(abs, offsets.values()), default=0.0)
    if worst > CLOCK_MS:
        lines = (
            f"{agent} {abs(ms) / MS_PER_S:.1f} s {'ahead' if ms > 0 else 'behind'}"
            for agent, ms in sorted(offsets.items(), key=lambda item: -abs(item[1]))
            if abs(ms) > CLOCK_MS
        )
        return Check(
            name="clock offsets",
            status=Status.FAIL if worst > CLOCK_FAIL_MS else Status.WARN,
            found=f"against the broker's: {some(lines)}{rest}",
            todo="synchronize the clocks (PTP or NTP); if all agents are off alike, the broker's",
        )
    return Check(
        name="clock offsets",
        status=Status.OK,
        found=f"{counted(len(offsets), 'agent')} within {worst:.0f} ms of the broker{rest}",
    )


def probing(s: Snapshot) -> Check:
    """Check that no agent has stopped to probe unnoticed."""
    lines = [
        f"{agent} ({_why_not(beat)})"
        for agent, beat in sorted(s.heartbeats.items())
        if beat.probing is ProbingState.DISPLACED or beat.list_refusal is not None
    ]
    idle = [a for a, b in s.heartbeats.items() if b.probing in IDLE]
    active = sum(beat.flows_active or 0 for beat in s.heartbeats.values())
    if lines:
        return Check(
            name="probing",
            status=Status.FAIL,
            found=f"displaced, or refusing a ping list: {some(lines)}",
            todo="give each agent its own id; see who writes endpoint.v1 and pinglist.v1",
        )
    more = f"; without targets: {some(sorted(idle))}" if idle else ""
    return Check(
        name="probing", status=Status.OK, found=f"{counted(active, '5-tuple')} probed{more}"
    )


def _why_not(beat: Heartbeat) -> str:
    if beat.probing is ProbingState.DISPLACED:
        return beat.probing_reason or "displaced"
    return f"list refused: {beat.list_refusal}"


def drops(s: Snapshot) -> Check:
    """Check that no agent has dropped rounds, or met records that it could not read."""
    lines = []
    for agent, beat in sorted(s.heartbeats.items()):
        if beat.rounds_dropped:
            lines.append(f"{agent} dropped {counted(beat.rounds_dropped, 'round')}")
        if beat.records_undecodable:
            lines.append(f"{agent} could not decode {counted(beat.records_undecodable, 'record')}")
    if lines:
        return Check(
            name="drops",
            status=Status.WARN,
            found=f"since they started: {some(lines)}",
            todo="dropped: the broker was away or too slow; undecodable: see the .dlq topics",
        )
    return Check(name="drops", status=Status.OK, found="nothing dropped")
