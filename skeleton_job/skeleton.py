"""From the byte rates of a job's RNICs to its traffic skeleton."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.records import Skeleton, SkeletonMember, SkeletonPair
from skeleton_job.blocks import (
    Blocks,
    InconsistentError,
    block_iterations,
    find_part,
    make_blocks,
    one_way_share,
)
from skeleton_job.chains import match_chains
from skeleton_job.clusters import Classes, best_classes
from skeleton_job.confidence import parts_of
from skeleton_job.job import Job, Rnic
from skeleton_job.pairs import MESH_SIZE, Pair, chain_pairs, group_pairs
from skeleton_job.series import RateMatrix
from skeleton_job.spectrum import (
    MIN_ITERATIONS,
    MIN_PERIOD_BINS,
    Rhythm,
    find_period,
    find_rhythm,
    fold,
    job_sum,
)
from skeleton_job.stages import StageOrder, order_stages

Labels = NDArray[np.int64]

# 1 Mbit/s: a port that carries only housekeeping.
IDLE_BYTES_PER_S: Final = 125_000.0
# Iterations take seconds: in less than this, missing repetition says nothing.
MIN_FLAT_NS: Final = 20 * 10**9
# An inference of at least this confidence replaces the basic list unless configured otherwise.
DEFAULT_MIN_CONFIDENCE: Final = 0.7

IDLE: Final = "idle: the RNICs carry no traffic to speak of"
FLAT: Final = "flat: traffic without a burst that repeats"
TOO_SHORT: Final = f"too short: the window holds fewer than {MIN_ITERATIONS} whole iterations"
UNSEEN: Final = "no counters: fewer than half of the RNICs have usable ones"
ONE_HOST: Final = "one host: nothing crosses the network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What the counters of a job say.

    Attributes
    ----------
    confidence : 0..1, see `skeleton_job.confidence`
    reason : why it is low, or what no counter shows; None: nothing to say
    groups : RNICs at one position, in the platform's order; stage after stage
    directed : whether the first group is known to be of the first stage
    width : RNICs of one tensor-parallel group; so many groups make a stage
    chains : RNICs from stage to stage
    pairs : who exchanges data, over the network
    idle : RNICs seen to take no part
    """

    confidence: float
    reason: str | None
    period_ns: int | None = None
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    groups: tuple[tuple[Rnic, ...], ...] = ()
    directed: bool = False
    width: int = 1
    chains: tuple[tuple[Rnic, ...], ...] = ()
    pairs: frozenset[Pair] = frozenset()
    idle: tuple[str, ...] = ()

    def stages(self) -> list[list[Rnic]]:
        """Return the RNICs of each stage, in pipeline order."""
        return [
            [rnic for group in self.groups[i : i + self.width] for rnic in group]
            for i in range(0, len(self.groups), self.width)
        ]


def infer(job: Job, matrix: RateMatrix) -> Inference:
    """Return the skeleton of a job.

    Parameters
    ----------
    job : the RNICs, in any order
    matrix : their rates; a row for each RNIC, in any order

    Raises
    ------
    ValueError
        If the matrix lacks a row of the job.
    """
    lacking = {r.endpoint_id for r in job.rnics} - set(matrix.endpoints)
    if lacking:
        raise ValueError(f"no row for {sorted(lacking)[0]!r} and {len(lacking) - 1} others")
    refusal = _refusal(job, matrix)
    if refusal is not None:
        return Inference(confidence=0.0, reason=refusal)
    total = job_sum(matrix, matrix.usable)
    rhythm = find_rhythm(total)
    if rhythm is None:
        short = matrix.n_bins * matrix.bin_ns < MIN_FLAT_NS or find_period(total) is not None
        return Inference(confidence=0.0, reason=TOO_SHORT if short else FLAT)
    try:
        return _placed(job, matrix, rhythm)
    except InconsistentError as error:
        return Inference(
            confidence=0.0,
            reason=f"inconsistent: {error}",
            period_ns=round(rhythm.period_bins * matrix.bin_ns),
        )


def _refusal(job: Job, matrix: RateMatrix) -> str | None:
    """Return why the counters cannot say anything, None if they may."""
    if len(job.hosts) < 2:
        return ONE_HOST
    if matrix.n_bins < MIN_PERIOD_BINS * MIN_ITERATIONS:
        return TOO_SHORT
    if 2 * int(matrix.usable.sum()) < len(job.rnics):
        return UNSEEN
    # The mean over RNICs, both directions: one busy port in a hundred is traffic enough.
    busy = float(job_sum(matrix, matrix.usable).mean()) * len(job.rnics)
    if busy < 2 * IDLE_BYTES_PER_S * max(2, len(job.rnics) // 100):
        return IDLE
    return None


def _placed(job: Job, matrix: RateMatrix, rhythm: Rhythm) -> Inference:
    profiles = fold(matrix, rhythm)
    part = find_part(job, matrix, profiles)
    if len(part.hosts) < 2 or not part.known.any():
        return Inference(confidence=0.0, reason=FLAT, idle=part.idle)
    blocks = make_blocks(part, matrix, profiles, rhythm)
    try:
        classes = best_classes(
            blocks.features, blocks.halves, blocks.known, blocks.hosts, blocks.floor
        )
    except ValueError as error:
        raise InconsistentError(str(error)) from error
    order = _order(blocks, classes)
    stages = [np.flatnonzero(classes.labels == c) for c in order.order]
    # Blocks without counters hold a place only if just one is left for them.
    placed = len(np.unique(classes.labels[~blocks.known])) <= 1
    if not placed:
        stages = [stage[blocks.known[stage]] for stage in stages]
    chains, chains_seen = _chains(stages, blocks, matrix, rhythm) if placed else ((), False)
    groups = tuple(
        tuple(blocks.members[b][k] for b in stage) for stage in stages for k in range(blocks.width)
    )
    parts = parts_of(
        rhythm,
        blocks.width_margin,
        classes,
        order,
        seen_share=float(part.known.mean()),
        doubtful=part.doubtful,
        one_way=one_way_share(blocks),
        placed=placed,
    )
    weakest = min(parts, key=lambda p: p.value)
    replicas = classes.labels.size // classes.count
    notes = [weakest.weakness] if weakest.value < DEFAULT_MIN_CONFIDENCE else []
    notes += _limits(replicas, classes.count, order, chains_seen=chains_seen)
    gpus = None if job.gpus is None else job.gpus * len(part.hosts) // len(job.hosts)
    return Inference(
        confidence=round(weakest.value, 3),
        reason="; ".join(notes) or None,
        period_ns=round(rhythm.period_bins * matrix.bin_ns),
        dp=replicas,
        pp=classes.count,
        tp=_tensor_degree(gpus, replicas * classes.count, blocks.width),
        groups=groups,
        directed=order.directed,
        width=blocks.width,
        chains=chains,
        pairs=frozenset(chain_pairs(chains).union(*(group_pairs(g) for g in groups))),
        idle=part.idle,
    )


def _order(blocks: Blocks, classes: Classes) -> StageOrder:
    """Return the order of the classes; without a direction, the platform's first block leads."""
    of_class = [(classes.labels == c) & blocks.known for c in range(classes.count)]
    order = order_stages(
        np.array([blocks.tx[chosen].mean(axis=0) for chosen in of_class]),
        np.array([blocks.rx[chosen].mean(axis=0) for chosen in of_class]),
        replicas=classes.labels.size // classes.count,
    )
    first, last = (int(np.argmax(of_class[c])) for c in (order.order[0], order.order[-1]))
    if order.directed or first <= last:
        return order
    return StageOrder(order.order[::-1], order.trust, directed=False)


def _chains(
    stages: list[Labels], blocks: Blocks, matrix: RateMatrix, rhythm: Rhythm
) -> tuple[tuple[tuple[Rnic, ...], ...], bool]:
    """Return the pipelines through the stages, and whether the traffic shows them all."""
    if len(stages) < 2:
        return (), True
    # Position in its stage, by the platform's order, of each chain's last block.
    at = np.arange(stages[0].size)
    paths = [[int(b)] for b in stages[0]]
    seen_all = True
    for here, there in pairwise(stages):
        partner, seen = match_chains(
            *block_iterations(blocks, here, matrix, rhythm),
            *block_iterations(blocks, there, matrix, rhythm),
        )
        seen_all = seen_all and seen
        at = partner[at]
        for path, position in zip(paths, at, strict=True):
            path.append(int(there[position]))
    return tuple(
        tuple(blocks.members[b][k] for b in path) for path in paths for k in range(blocks.width)
    ), seen_all


def _limits(replicas: int, stages: int, order: StageOrder, *, chains_seen: bool) -> list[str]:
    """Return what no counter shows, for the reader of the skeleton."""
    notes = []
    if replicas > MESH_SIZE:
        notes.append(
            "ring order inside a gradient group leaves no trace: peers at distances 1, 2 and 4 "
            "in the platform's order"
        )
    if stages > 1 and not chains_seen:
        notes.append("which replicas are joined is taken from the platform's order")
    if stages > 1 and not order.directed:
        notes.append("the direction of the pipeline is not known")
    return notes


def _tensor_degree(gpus: int | None, positions: int, width: int) -> int:
    """Return GPUs per position; without their number each RNIC counts for one."""
    if gpus is None or gpus % positions:
        return width
    return gpus // positions


def to_record(
    inference: Inference,
    job: Job,
    *,
    cluster: str,
    version: int,
    window_ns: tuple[int, int],
    min_confidence: float = DEFAULT_MIN_CONFIDENCE,
    producer_version: str | None = None,
) -> Skeleton:
    """Return the skeleton.v1 record.

    Below `min_confidence` it says only why: no reader shall take a guess for a
    skeleton. Otherwise every RNIC of the job is a member, with group null if it is seen to take no
    part; one of which nothing is known is left out, and keeps its basic list.
    """
    if inference.confidence < min_confidence:
        inference = Inference(
            confidence=inference.confidence,
            reason=inference.reason or "the parts of the inference do not agree",
            period_ns=inference.period_ns,
        )
    members: dict[str, SkeletonMember] = {}
    for index, group in enumerate(inference.groups):
        stage = index // inference.width if inference.directed else None
        for rnic in group:
            members[rnic.endpoint_id] = SkeletonMember(
                endpoint_id=rnic.endpoint_id, group=index, stage=stage
            )
    for endpoint_id in inference.idle:
        members[endpoint_id] = SkeletonMember(endpoint_id=endpoint_id)
    return Skeleton(
        cluster=cluster,
        task_id=job.task_id,
        version=version,
        window_start_at=window_ns[0] // 1000,
        window_end_at=window_ns[1] // 1000,
        confidence=inference.confidence,
        reason=inference.reason,
        period_ns=inference.period_ns,
        dp=inference.dp,
        pp=inference.pp,
        tp=inference.tp,
        producer_version=producer_version,
        members=tuple(members[r.endpoint_id] for r in job.ordered if r.endpoint_id in members),
        pairs=tuple(SkeletonPair(a=a, b=b) for a, b in sorted(inference.pairs)),
    )
