"""Agents: who probes, with which version, clock and drops; who is silent."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from localizer.facts.coverage import Coverage
from ops.view.agents import AgentView
from ops.view.cluster import ClusterView
from ops.view.coverage import coverage
from ops.view.health import Status, clock_off_ms
from ops.view.texts import age
from ops.web.pages.page import Document, Page, Params, without_none
from schemas.enums import AgentState
from schemas.records import Endpoint
from schemas.units import MS_NS

# What a person looks through; the rest is counted, and found by `find`.
MAX_ROWS: Final = 500


def document(view: ClusterView, params: Params, now_ms: int) -> Document:
    """Return the agents, those with something wrong first, and sums by cluster.

    Parameters
    ----------
    params
        `find`: a part of an agent's, host's or task's name. `cluster`: only that cluster.
        `wrong`: 1: only agents with something wrong.
    """
    probed: dict[str, Coverage] = {}
    tasks: dict[str, set[str]] = {}
    for task, by_agent in coverage(view).items():
        for name, one in by_agent.items():
            sums = probed.setdefault(name, Coverage())
            sums.expected += one.expected
            sums.seen += one.seen
            tasks.setdefault(name, set()).add(task)
    silent = {e.agent_id: e for e in view.endpoints.values() if e.agent_id not in view.agents}
    rows = [_never_heard(one, sorted(tasks.get(name, ()))) for name, one in silent.items()]
    for name, agent in view.agents.items():
        row = _row(view, agent, now_ms)
        whole = probed.get(name)
        if whole is not None:
            row |= {"probed": round(whole.seen), "expected": whole.expected}
        rows.append({**row, "tasks": sorted(tasks.get(name, ()))})
    find = params.get("find", "").lower()
    wanted = [
        row
        for row in rows
        if (not find or find in f"{row['id']} {row['host']} {' '.join(row['tasks'])}".lower())
        and params.get("cluster", row["cluster"]) == row["cluster"]
        and not (params.get("wrong") and row["status"] == Status.GOOD)
    ]
    wanted.sort(key=lambda row: (_ORDER[row["status"]], row["id"]))
    return {
        "clusters": _sums(rows),
        "total": len(rows),
        "found": len(wanted),
        "rows": {row["id"]: row for row in wanted[:MAX_ROWS]},
    }


_ORDER: Final = {Status.BAD: 0, Status.ODD: 1, Status.UNKNOWN: 2, Status.GOOD: 3}


def _never_heard(endpoint: Endpoint, tasks: list[str]) -> Document:
    return {
        "id": endpoint.agent_id, "host": endpoint.host_id, "cluster": endpoint.cluster,
        "tasks": tasks, "status": Status.BAD, "why": "registered, but no heartbeat is known",
    }  # fmt: skip


def _row(view: ClusterView, agent: AgentView, now_ms: int) -> Document:
    record = agent.beat.record
    name = record.agent_id
    status, why = _judged(view, agent, now_ms)
    wanted = view.pinglists.get(name)
    return without_none(
        {
            "id": name,
            "host": record.host_id,
            "cluster": record.cluster,
            "status": status,
            "why": why,
            "state": record.state.value,
            "probing": record.probing.value,
            "version": record.producer_version,
            "clock_ms": _ms(record.clock_offset_ns),
            "clock_error_ms": _ms(record.clock_error_ns),
            "clock_reason": record.clock_offset_reason,
            "prober_delay_ms": _ms(record.host_delay_ns),
            "dropped": record.rounds_dropped,
            "dropped_lately": agent.lately("rounds_dropped"),
            "late": agent.lately("replies_late"),
            "foreign": agent.lately("replies_foreign") + agent.lately("packets_malformed"),
            "list_version": record.pinglist_version,
            "list_wanted": None if wanted is None else wanted.version,
        }
    )


def _ms(ns: int | None) -> float | None:
    # In steps of 10 µs: finer changes with each heartbeat, and says nothing.
    return None if ns is None else round(ns / MS_NS, 2)


def _judged(view: ClusterView, agent: AgentView, now_ms: int) -> tuple[Status, str]:
    """Return how an agent does, and why: the first thing that is wrong."""
    record = agent.beat.record
    if record.state is AgentState.LEAVING:
        return Status.UNKNOWN, "has left"
    return next(_wrong(view, agent, now_ms), (Status.GOOD, record.probing_reason or ""))


def _wrong(view: ClusterView, agent: AgentView, now_ms: int) -> Iterator[tuple[Status, str]]:
    record = agent.beat.record
    silent_ms = agent.silent_ms(now_ms)
    if silent_ms is not None:
        yield Status.BAD, f"silent for {age(silent_ms)}"
    if agent.twin(now_ms):
        yield Status.BAD, "two processes send under this id"
    if record.displaced_by is not None:
        yield Status.BAD, "displaced by another process of this id"
    if record.state is AgentState.DEGRADED:
        yield Status.ODD, f"degraded: {record.state_reason or 'no reason given'}"
    if (off_ms := clock_off_ms(view, record.agent_id)) is not None:
        way = "ahead of" if off_ms > 0 else "behind"
        yield Status.ODD, f"its clock is {abs(off_ms) / 1_000:.1f} s {way} the broker's"
    if agent.lately("rounds_dropped"):
        yield Status.ODD, "drops results: it cannot reach the broker, or not fast enough"
    if record.list_refusal is not None:
        yield Status.ODD, f"refuses its ping list: {record.list_refusal}"


def _sums(rows: list[Document]) -> Document:
    """Return sums by cluster: agents by status, versions, 5-tuples."""
    found: Document = {}
    for cluster in sorted({row["cluster"] for row in rows}):
        own = [row for row in rows if row["cluster"] == cluster]
        found[cluster] = {
            "agents": len(own),
            "status": dict(Counter(str(row["status"]) for row in own)),
            "versions": dict(Counter(row.get("version") or "unknown" for row in own)),
            "probed": sum(row.get("probed", 0) for row in own),
            "expected": sum(row.get("expected", 0) for row in own),
            "dropped_lately": sum(row.get("dropped_lately", 0) for row in own),
        }
    return found


AGENTS: Final = Page(name="agents", document=document)
