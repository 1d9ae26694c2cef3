"""What is true of a job, from the transfers that were simulated."""

from dataclasses import dataclass, field

import numpy as np

from arena.sealed_jobs.fleet import Layout
from arena.sealed_jobs.traffic import Traffic, bytes_each_way

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTruth:
    """A job's degrees, stages, replicas and pairs; see the package for exact definitions.

    Attributes
    ----------
    dp, pp, tp, ep, cp
        Degrees, 1 where an axis is not used. dp · pp · tp · cp is the number of GPUs.
    stages
        Endpoints by pipeline stage, the first stage first.
    replicas
        Endpoints by replica.
    pairs
        Unordered pairs, sorted, that exchange bytes over the network in each training iteration.
    kinds
        Pair → what it carries: `dp`, `pp`, `ep`, `cp`.
    groups
        Kind → sets of endpoints in which any member's place is arbitrary: gradient groups, expert
        groups, context groups.
    rnics
        All endpoints of the job.
    iteration_s
        Median duration of an iteration.
    stage_shift_s
        Time by which a stage's backward follows the next stage's: what shows the order of stages;
        0 without pipeline.
    dp_seen
        Number of replicas that any counter could tell apart.
    unobservable
        What no counter shows: `dp`, `pp`, `ep`, `cp`, `order`, `direction`, `dp_pairs`.
    """

    task_id: str
    dp: int
    pp: int
    tp: int
    ep: int
    cp: int
    stages: tuple[frozenset[str], ...]
    replicas: tuple[frozenset[str], ...]
    pairs: frozenset[Pair]
    kinds: dict[Pair, frozenset[str]]
    groups: dict[str, tuple[frozenset[str], ...]] = field(default_factory=dict)
    rnics: frozenset[str] = frozenset()
    iteration_s: float = 0.0
    stage_shift_s: float = 0.0
    dp_seen: int = 1
    unobservable: frozenset[str] = frozenset()


def job_truth(
    task_id: str,
    layout: Layout,
    traffic: Traffic,
    *,
    iteration_s: float,
    stage_shift_s: float = 0.0,
    clock_error_s: float = 0.0,
    told_apart: bool = False,
    mirrored: bool = False,
    through_switch: bool = False,
) -> JobTruth:
    """Return the truth about a job with the given transfers.

    Parameters
    ----------
    stage_shift_s
        Time by which a stage's backward follows the next stage's.
    clock_error_s
        How far the readers' clocks and the updates of counters are apart.
    told_apart
        Whether replicas in lockstep move different bytes.
    mirrored
        Whether the pipeline looks the same from both ends.
    through_switch
        Whether gradients are summed in switches, so that no pair of RNICs exchanges them.
    """
    names, degrees = layout.fleet.names, layout.degrees
    kinds: dict[Pair, frozenset[str]] = {}
    for (one, other), of_pair in traffic.kinds.items():
        low, high = sorted((names[one], names[other]))
        kinds[low, high] = frozenset(of_pair)
    kinds = dict(sorted(kinds.items()))
    seen = _replicas_seen(layout, told_apart=told_apart)
    unobservable = set()
    if seen != degrees.dp:
        unobservable.add("dp")
    if degrees.ep > 1 and not any("ep" in k for k in kinds.values()):
        unobservable.add("ep")
    if degrees.cp > 1 and not any("cp" in k for k in kinds.values()):
        unobservable.add("cp")
    moved = sum(bytes_each_way(traffic, len(layout.fleet)))
    active = {names[rnic] for rnic in np.flatnonzero(moved).tolist()}
    if not all(stage & active for stage in layout.stages()):
        unobservable.add("pp")
    if not all(replica & active for replica in layout.replicas()):
        unobservable.add("dp")
    if degrees.pp > 2 and stage_shift_s < clock_error_s:
        unobservable.add("order")
    if mirrored:
        unobservable.add("direction")
    if through_switch and degrees.dp > 1:
        unobservable.add("dp_pairs")
    return JobTruth(
        task_id=task_id,
        dp=degrees.dp,
        pp=degrees.pp,
        tp=degrees.tp,
        ep=degrees.ep,
        cp=degrees.cp,
        stages=layout.stages(),
        replicas=layout.replicas(),
        pairs=frozenset(kinds),
        kinds=kinds,
        groups=_groups(layout, mirrored=mirrored),
        rnics=frozenset(names[rnic] for rnic in layout.rnics),
        iteration_s=iteration_s,
        stage_shift_s=stage_shift_s,
        dp_seen=seen,
        unobservable=frozenset(unobservable),
    )


def _replicas_seen(layout: Layout, *, told_apart: bool) -> int:
    """Count replicas; those that share hosts and move the same bytes in lockstep count as one.

    Replicas of a pipeline keep a rhythm of their own, unless expert groups hold them in lockstep.
    """
    degrees = layout.degrees
    if told_apart:
        return degrees.dp
    seen = set()
    for replica in range(degrees.dp):
        hosts = frozenset(layout.host[layout.grid[:, replica].reshape(-1)].tolist())
        seen.add((hosts, replica // degrees.ep if degrees.pp > 1 else 0))
    return len(seen)


def _groups(layout: Layout, *, mirrored: bool) -> dict[str, tuple[frozenset[str], ...]]:
    """Return the sets of endpoints that collectives of each kind join."""
    degrees, names = layout.degrees, layout.fleet.names

    def named(ranks: list[int]) -> frozenset[str]:
        return frozenset(names[int(layout.rnic[rank])] for rank in ranks)

    groups: dict[str, list[frozenset[str]]] = {"dp": [], "ep": [], "cp": []}
    for stage in range(degrees.pp):
        sums = [named(g.tolist()) for g in layout.gradient_groups(stage)]
        if mirrored:
            mirror = layout.gradient_groups(degrees.pp - 1 - stage)
            sums = [one | named(g.tolist()) for one, g in zip(sums, mirror, strict=True)]
        groups["dp"] += sums
        if degrees.ep > 1:
            groups["ep"] += [named(g.tolist()) for g in layout.expert_groups(stage)]
        if degrees.cp > 1:
            for replica in range(degrees.dp):
                groups["cp"] += [named(g.tolist()) for g in layout.context_groups(stage, replica)]
    return {
        kind: tuple(g for g in dict.fromkeys(sets) if len(g) > 1) for kind, sets in groups.items()
    }
