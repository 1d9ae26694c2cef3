"""Job: its traffic skeleton over hosts and rails, how sure it is, and who probes whom."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from ops.view.cluster import ClusterView
from ops.web.pages.page import Document, Page, Params, UnknownItemError, without_none
from ops.web.pages.rows import fault_row
from schemas.records import PingTarget, Skeleton, SkeletonMember, Task, TaskEndpoint
from schemas.units import US_PER_MS

NS_PER_MS: Final = 1_000_000
# More hosts than anybody looks over one by one; the rest is counted, and found by `host`.
MAX_HOSTS: Final = 256
# Targets of the endpoint that is looked at.
MAX_TARGETS: Final = 500
DEGREES: Final = ("dp", "pp", "tp", "ep", "cp")


def document(view: ClusterView, params: Params, now_ms: int) -> Document:
    """Return one job.

    Parameters
    ----------
    params
        `task`: its id; without it the running one that was submitted last. `host`: a part of the
        names of the hosts to show. `endpoint`: whose probes to list.

    Raises
    ------
    UnknownItemError
        If there is no such task.
    """
    task = chosen_task(view, params)
    skeleton = view.skeletons.get(task.task_id)
    hosts = _hosts(view, task, skeleton)
    wanted = hosts_with(task, params)
    faults = [h for h in view.faults.open() if task.task_id in h.last.tasks]
    return {
        "tasks": {one.task_id: one.ended_at is None for one in _latest_first(view)},
        "task": without_none(
            {
                "id": task.task_id,
                "cluster": task.cluster,
                "submitted_ms": task.submitted_at // US_PER_MS,
                "ended_ms": None if task.ended_at is None else task.ended_at // US_PER_MS,
                "endpoints": len(task.endpoints),
                "hosts": len(hosts),
                "registered": sum(e.endpoint_id in view.endpoints for e in task.endpoints),
            }
        ),
        "skeleton": _skeleton(skeleton, now_ms),
        "grid": {host: hosts[host] for host in wanted[:MAX_HOSTS]},
        "hosts_left": max(0, len(wanted) - MAX_HOSTS),
        "rails": sorted({e.rail for e in task.endpoints}),
        "probing": _probing(view, task),
        "targets": _targets(view, task, params.get("endpoint")),
        "faults": {h.last.fault_id: fault_row(view, h, now_ms) for h in faults[:MAX_HOSTS]},
    }


def _latest_first(view: ClusterView) -> list[Task]:
    return sorted(view.tasks.values(), key=lambda one: (-one.submitted_at, one.task_id))


def hosts_with(task: Task, params: Params) -> list[str]:
    """Return the hosts of a job whose names hold what `host` says, by name."""
    part = params.get("host", "").lower()
    return sorted(host for host in {e.host_id for e in task.endpoints} if part in host.lower())


def chosen_task(view: ClusterView, params: Params) -> Task:
    """Return the task that `task` names; without it the running one that was submitted last.

    Raises
    ------
    UnknownItemError
        If there is no such task.
    """
    tasks = _latest_first(view)
    wanted = params.get("task")
    if wanted is None:
        running = [one for one in tasks if one.ended_at is None]
        found = next(iter((*running, *tasks)), None)
    else:
        found = next((one for one in tasks if one.task_id == wanted), None)
    if found is None:
        what = "no task is known" if wanted is None else f"no task {wanted!r} is known"
        raise UnknownItemError(
            what, "jobs are told by `skeletonhunter task submit FILE`; `task list` lists them"
        )
    return found


def _skeleton(skeleton: Skeleton | None, now_ms: int) -> Document:
    if skeleton is None:
        return {"known": False}
    degrees = {name: value for name in DEGREES if (value := getattr(skeleton, name)) is not None}
    end_ms = skeleton.window_end_at // US_PER_MS
    return without_none(
        {
            "known": True,
            "version": skeleton.version,
            "confidence": round(skeleton.confidence, 3),
            "reason": skeleton.reason,
            "period_ms": (
                None if skeleton.period_ns is None else round(skeleton.period_ns / NS_PER_MS, 1)
            ),
            "degrees": degrees,
            "pairs": len(skeleton.pairs),
            "window_start_ms": skeleton.window_start_at // US_PER_MS,
            "window_end_ms": end_ms,
            # In minutes: finer changes with each second, and says nothing.
            "age_min": max(0, now_ms - end_ms) // 60_000,
        }
    )


def _hosts(view: ClusterView, task: Task, skeleton: Skeleton | None) -> dict[str, Document]:
    """Return for each host its endpoints by rail, with their places in the skeleton."""
    members: dict[str, SkeletonMember] = {}
    partners: Counter[str] = Counter()
    if skeleton is not None:
        members = {one.endpoint_id: one for one in skeleton.members}
        partners.update(name for pair in skeleton.pairs for name in (pair.a, pair.b))
    ill = _ill(view, task)
    hosts: defaultdict[str, Document] = defaultdict(dict)
    for one in task.endpoints:
        member = members.get(one.endpoint_id)
        hosts[one.host_id][str(one.rail)] = without_none(
            {
                "endpoint": one.endpoint_id,
                "stage": None if member is None else member.stage,
                "group": None if member is None else member.group,
                "partners": partners.get(one.endpoint_id),
                "registered": one.endpoint_id in view.endpoints,
                "fault": ill.get(one.endpoint_id),
            }
        )
    return dict(hosts)


def _ill(view: ClusterView, task: Task) -> dict[str, str]:
    """Return the open fault that names an endpoint, what holds it, or its agent."""
    blamed = {h.last.component_id: h.last.fault_id for h in view.faults.open()}
    found: dict[str, str] = {}
    for one in task.endpoints if blamed else ():
        for name in (*_holders(view, one), one.agent_id):
            if name in blamed:
                found[one.endpoint_id] = blamed[name]
    return found


def _holders(view: ClusterView, one: TaskEndpoint) -> Iterable[str]:
    """Yield an endpoint, its container and host, and what the topology says holds it."""
    yield from (one.endpoint_id, one.container_id, one.host_id)
    component = view.topology.get(one.endpoint_id)
    for _ in range(8):
        if component is None or component.parent is None:
            return
        yield component.parent
        component = view.topology.get(component.parent)


def _own(view: ClusterView, task: Task) -> Iterable[PingTarget]:
    for agent in dict.fromkeys(e.agent_id for e in task.endpoints):
        pinglist = view.pinglists.get(agent)
        if pinglist is not None:
            yield from (one for one in pinglist.targets if one.task_id == task.task_id)


def _probing(view: ClusterView, task: Task) -> Document:
    """Return how many pairs are probed, and why."""
    origins = Counter(one.origin.value.lower() for one in _own(view, task))
    phases = Counter(
        pinglist.phase.value.lower()
        for agent in dict.fromkeys(e.agent_id for e in task.endpoints)
        if (pinglist := view.pinglists.get(agent)) is not None
    )
    return {"pairs": origins.total(), "origins": dict(origins), "phases": dict(phases)}


def _targets(view: ClusterView, task: Task, endpoint: str | None) -> Document:
    """Return whom an endpoint probes, and who probes it."""
    if endpoint is None:
        return {}
    found: dict[str, Any] = {}
    for one in _own(view, task):
        if endpoint in (one.src, one.dst):
            found[f"{one.src} → {one.dst}"] = {
                "origin": one.origin.value.lower(),
                "flows": one.flows,
                "out": one.src == endpoint,
            }
    return {name: found[name] for name in sorted(found)[:MAX_TARGETS]}


JOB: Final = Page(name="job", document=document)
