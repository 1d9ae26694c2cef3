"""Ping lists per agent, from the jobs and their skeletons.

Without a skeleton a job has its basic list. In each rail that is the full mesh of a small job, or
peers at distances that cover the likely layouts of a larger one (`skeleton_job.layout.distances`)
and a rotating sample of the others. Rail-optimised fabrics and their collectives keep traffic
between hosts on one rail, so pairs across rails are left out (SkeletonHunter, SIGCOMM 2025: the
preload phase). A skeleton replaces it by the pairs that exchange data, plus a rotating sample of
other same-rail pairs.

Pure functions of what is known and of event time. What changed and must be published is decided by
`skeleton_job.core`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final
from zlib import crc32

from schemas.enums import PingListPhase, TargetOrigin
from schemas.records import PingTarget, Skeleton, Task
from schemas.units import SECOND_NS
from skeleton_job.job import Job, Pair, Rnic
from skeleton_job.layout.distances import DEFAULT_MAX_PEERS, covering_distances, ring_pairs
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE


def rails_of(job: Job) -> dict[int, tuple[Rnic, ...]]:
    """Return the RNICs of each rail, in the platform's order."""
    rails: dict[int, list[Rnic]] = {}
    for rnic in job.ordered:
        rails.setdefault(rnic.rail, []).append(rnic)
    return {rail: tuple(rnics) for rail, rnics in sorted(rails.items())}


def basic_pairs(job: Job, max_peers: int = DEFAULT_MAX_PEERS) -> set[Pair]:
    """Return the unordered pairs of the basic list.

    Raises
    ------
    ValueError
        If max_peers is below 2.
    """
    pairs: set[Pair] = set()
    for rnics in rails_of(job).values():
        pairs |= ring_pairs(rnics, covering_distances(len(rnics), max_peers))
    return pairs


# Bound of an encoded list. All agents of a cluster read the one topic, and each republished list
# goes to every one of them.
MAX_LIST_BYTES: Final = 64 * 1024
# Frame, ids of cluster and agent (at most 256 characters each), version, time and counts.
HEADER_BYTES: Final = 640
# Which origin is kept if a pair has several, and which targets stay if a list is too long.
RANK: Final = {TargetOrigin.SKELETON: 0, TargetOrigin.BASIC: 1, TargetOrigin.EXPLORE: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfig:
    """How lists are built.

    Attributes
    ----------
    min_confidence : a skeleton below it does not replace the basic list
    flows, basic_flows, explore_flows : 5-tuples for each target of that origin
    explore_peers : number of ring distances sampled at a time, two peers for each
    explore_rotate_ns : event time after which another distance is sampled
    max_basic_peers : peers per endpoint on the basic list
    """

    min_confidence: float = DEFAULT_MIN_CONFIDENCE
    flows: int = 4
    basic_flows: int = 4
    explore_flows: int = 1
    explore_peers: int = 1
    explore_rotate_ns: int = 300 * SECOND_NS
    max_basic_peers: int = DEFAULT_MAX_PEERS


@dataclass(frozen=True, slots=True)
class ListDraft:
    """A list without its version; `dropped` targets did not fit into `MAX_LIST_BYTES`."""

    phase: PingListPhase
    targets: tuple[PingTarget, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class TaskTargets:
    """The targets of one job, by the agent that probes them.

    Attributes
    ----------
    runtime
        Whether they come from a skeleton.
    rotating
        Whether some are a sample that changes with time.
    """

    runtime: bool
    rotating: bool
    targets: Mapping[str, tuple[PingTarget, ...]]


def task_targets(
    task: Task,
    skeleton: Skeleton | None,
    registered: Mapping[str, str],
    *,
    now_ns: int,
    config: ListConfig,
) -> TaskTargets:
    """Return the targets of a job; none for a job that has ended.

    Parameters
    ----------
    skeleton : ignored if it does not fit the job any more
    registered : endpoint id -> responsible agent; for endpoints that have not registered yet, the
        job names the agent
    now_ns : event time, selects the sample of other pairs
    """
    if task.ended_at is not None:
        return TaskTargets(runtime=False, rotating=False, targets={})
    skeleton = usable_skeleton(task, skeleton, config.min_confidence)
    agent_of = {e.endpoint_id: registered.get(e.endpoint_id, e.agent_id) for e in task.endpoints}
    found: dict[str, list[PingTarget]] = {}
    pairs = _pairs(task, skeleton, now_ns, config)
    for pair, origin in pairs.items():
        for src, dst in (pair, pair[::-1]):
            found.setdefault(agent_of[src], []).append(
                PingTarget(
                    src=src,
                    dst=dst,
                    task_id=task.task_id,
                    origin=origin,
                    flows=_flows(origin, config),
                )
            )
    return TaskTargets(
        runtime=skeleton is not None,
        rotating=TargetOrigin.EXPLORE in pairs.values(),
        targets={agent: tuple(targets) for agent, targets in found.items()},
    )


def merge_targets(jobs: Iterable[TaskTargets], agent_id: str) -> ListDraft:
    """Return an agent's list from the targets of its jobs.

    A pair that several jobs contain is probed once, for the best origin.
    """
    mine = [job for job in jobs if job.targets.get(agent_id)]
    phase = PingListPhase.RUNTIME if any(s.runtime for s in mine) else PingListPhase.PRELOAD
    chosen: Sequence[PingTarget]
    if len(mine) == 1:
        # The usual case, and that of the largest lists: within a job no pair is repeated.
        chosen = mine[0].targets[agent_id]
    else:
        best: dict[Pair, PingTarget] = {}
        for target in (t for job in mine for t in job.targets[agent_id]):
            old = best.get((target.src, target.dst))
            if old is None or _rank(target) < _rank(old):
                best[target.src, target.dst] = target
        chosen = list(best.values())
    fitting = _fitting(chosen)
    targets = tuple(sorted(fitting, key=attrgetter("src", "dst")))
    return ListDraft(phase, targets, len(chosen) - len(fitting))


def target_bytes(target: PingTarget) -> int:
    """Return the encoded size of a target, in bytes."""
    ids = text_bytes(target.src) + text_bytes(target.dst) + text_bytes(target.task_id)
    return ids + 1 + _number_bytes(target.flows)


def text_bytes(text: str) -> int:
    """Return the encoded size of a string with its length, in bytes.

    >>> text_bytes("abc")
    4
    """
    size = len(text) if text.isascii() else len(text.encode())
    return _number_bytes(size) + size


def _number_bytes(number: int) -> int:
    """Return the encoded size of a non-negative number: seven bits per byte, one for the sign."""
    return max(1, -(-(number.bit_length() + 1) // 7))


def _fitting(targets: Sequence[PingTarget]) -> Sequence[PingTarget]:
    """Return the targets that stay on a list that is too long.

    The best origins first. Within one origin, each endpoint loses equally many targets. A checksum
    selects them, so that they are stable and no host is left out because of its name.
    """
    room = MAX_LIST_BYTES - HEADER_BYTES
    if sum(map(target_bytes, targets)) <= room:
        return targets
    turns: dict[tuple[int, str], int] = {}
    by_chance = sorted(targets, key=lambda t: (crc32(f"{t.src}|{t.dst}".encode()), t.dst))
    order = []
    for target in by_chance:
        whose = (RANK[target.origin], target.src)
        turns[whose] = turn = turns.get(whose, 0) + 1
        order.append((RANK[target.origin], turn, target.src, target.dst, target))
    kept = []
    for *_, target in sorted(order, key=lambda row: row[:4]):
        room -= target_bytes(target)
        if room < 0:
            break
        kept.append(target)
    return kept


def _rank(target: PingTarget) -> tuple[int, str, str, str]:
    return (RANK[target.origin], target.src, target.dst, target.task_id)


def usable_skeleton(
    task: Task, skeleton: Skeleton | None, min_confidence: float
) -> Skeleton | None:
    """Return the skeleton if it is trusted and fits the job as it is now, else None.

    It does not fit if the job has lost RNICs. RNICs that the job has gained keep the basic list, as
    do those that could not be placed.
    """
    if skeleton is None or skeleton.dp is None or skeleton.confidence < min_confidence:
        return None
    endpoints = {e.endpoint_id for e in task.endpoints}
    named = {m.endpoint_id for m in skeleton.members}
    named |= {end for p in skeleton.pairs for end in (p.a, p.b)}
    return skeleton if named <= endpoints else None


def _pairs(
    task: Task, skeleton: Skeleton | None, now_ns: int, config: ListConfig
) -> dict[Pair, TargetOrigin]:
    job = Job.from_task(task)
    if skeleton is not None:
        # Nobody probes what is known to be idle.
        idle = {m.endpoint_id for m in skeleton.members if m.group is None}
        job = replace(job, rnics=tuple(r for r in job.rnics if r.endpoint_id not in idle))
    known, unknown = set[Pair](), {r.endpoint_id for r in job.rnics}
    if skeleton is not None:
        known = {(p.a, p.b) for p in skeleton.pairs}
        unknown -= {m.endpoint_id for m in skeleton.members}
    basic = basic_pairs(job, _basic_peers(task, config)) if unknown else set[Pair]()
    kept = {pair for pair in basic if not unknown.isdisjoint(pair)}
    explored = _explored(job, known | kept, now_ns, config)
    return (
        dict.fromkeys(explored, TargetOrigin.EXPLORE)
        | dict.fromkeys(kept, TargetOrigin.BASIC)
        | dict.fromkeys(known, TargetOrigin.SKELETON)
    )


def _basic_peers(task: Task, config: ListConfig) -> int:
    """Return the number of peers per endpoint on the basic list, so that all lists fit.

    The same number for all endpoints, so that the list stays symmetric.
    """
    widest = max(Counter(e.agent_id for e in task.endpoints).values(), default=1)
    longest = max((text_bytes(e.endpoint_id) for e in task.endpoints), default=0)
    each = 2 * longest + text_bytes(task.task_id) + 1 + _number_bytes(config.basic_flows)
    fit = (MAX_LIST_BYTES - HEADER_BYTES) // (widest * each)
    return max(2, min(config.max_basic_peers, fit))


def _explored(job: Job, known: set[Pair], now_ns: int, config: ListConfig) -> set[Pair]:
    """Return the same-rail pairs that are sampled now.

    All pairs at one distance around the rail's ring. The distance changes with each turn, so after
    half as many turns as hosts each pair had its turn. A distance at which all pairs are `known` is
    skipped. Jobs and rails start at different distances, which spreads the load.
    """
    pairs: set[Pair] = set()
    if config.explore_peers < 1:
        return pairs
    turn = now_ns // config.explore_rotate_ns
    for rail, rnics in rails_of(job).items():
        distances = len(rnics) // 2
        start = crc32(f"{job.task_id}|{rail}".encode()) + turn * config.explore_peers
        wanted = config.explore_peers
        for step in range(distances):
            ring = ring_pairs(rnics, [(start + step) % distances + 1])
            if not ring <= known:
                pairs |= ring
                wanted -= 1
            if not wanted:
                break
    return pairs


def _flows(origin: TargetOrigin, config: ListConfig) -> int:
    if origin is TargetOrigin.SKELETON:
        return config.flows
    return config.basic_flows if origin is TargetOrigin.BASIC else config.explore_flows
