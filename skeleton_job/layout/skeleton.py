"""From the byte rates of a job's RNICs to its traffic skeleton.

`infer` runs all steps: iterations, profiles, blocks, layout, order of stages, pipelines, inner
groups, confidence. The goal is that of SkeletonHunter's ping-list phase 3 (SIGCOMM 2025).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np

from skeleton_job.job import Job, Pair, Rnic, ordered
from skeleton_job.layout.balance import hosts_are_balanced
from skeleton_job.layout.blocks import (
    Blocks,
    find_cells,
    find_part,
    lasting_rings,
    make_blocks,
    of_cells,
    one_way,
)
from skeleton_job.layout.confidence import calibrated, parts_of, signs_of
from skeleton_job.layout.description import Evidence
from skeleton_job.layout.hedges import (
    MAX_LENGTH,
    SURE_LENGTH,
    guesses,
    hedges,
    needed_pairs,
    silent_rnics,
)
from skeleton_job.layout.inner import NONE, find_inner, inner_distances, positions
from skeleton_job.layout.layouts import Choice, choose
from skeleton_job.layout.pairs import MESH_SIZE, RING_DISTANCES, chain_pairs, group_pairs
from skeleton_job.layout.pipelines import Joints, StageIterations, find_joints
from skeleton_job.layout.silent_ends import SilentEnds, find_silent_ends
from skeleton_job.layout.stages import DISPUTED, PAIR, StageOrder, by_chains, order_stages
from skeleton_job.rhythm.chains import chain_gains
from skeleton_job.rhythm.iterations import (
    MIN_ITERATIONS,
    MIN_PERIOD_BINS,
    Rhythm,
    channels,
    find_rhythm,
    job_sum,
    repeats,
)
from skeleton_job.rhythm.limits import find_hidden_rhythm
from skeleton_job.rhythm.profiles import fold
from skeleton_job.series.rates import RateMatrix

# 1 Mbit/s: a port with less carries only housekeeping.
IDLE_BYTES_PER_S: Final = 125_000.0
# Iterations take seconds: a shorter window without repetition says nothing.
MIN_FLAT_NS: Final = 20 * 10**9
# Confidence from which an inference replaces the basic list by default.
DEFAULT_MIN_CONFIDENCE: Final = 0.5

# Confidence from which few guesses are listed, if joints and order are seen: most such layouts are
# right, and most wrong ones have the true peers still.
SURE: Final = 0.85

# Largest offset between hosts' clocks: tens of milliseconds.
MAX_CLOCK_NS: Final = 60_000_000

# Trust from which an order seen in the traffic overrules the platform's.
SURE_ORDER: Final = 0.9
# How often the platform's order is right if the classes repeat along it.
INDEX_ALONE: Final = 0.9
# Two classes of this few cells repeat along any order as often as not.
FEW_BLOCKS: Final = 4

# Confidence in a pipeline whose silent ends show: a third end, a neighbour that receives what
# nobody sends, or an RNIC out of order would have refuted it.
ENDS_SHOWN: Final = 0.95

# Confidence in one stage whose hosts are seen to send what they receive, though no iteration is:
# replicas inside a host, and context groups, do not show.
BALANCE_SHOWN: Final = 0.75

IDLE: Final = "idle: the RNICs carry no traffic to speak of"
FLAT: Final = "flat: traffic without a burst that repeats"
TOO_SHORT: Final = f"too short: the window holds fewer than {MIN_ITERATIONS} whole iterations"
UNSEEN: Final = "no counters: fewer than half of the RNICs have usable ones"
OFTEN_WRONG: Final = "inferences that show the same signs are wrong as often as right"
ONE_HOST: Final = "one host: nothing crosses the network"


class InconsistentError(ValueError):
    """The job's traffic has no shape that a skeleton could have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What the counters of a job say.

    Attributes
    ----------
    confidence : 0 to 1, see `skeleton_job.layout.confidence`
    reason : why it is low, or what counters cannot show; None: nothing to add
    period_ns : iteration period
    dp, pp, tp : degrees of data, pipeline and tensor parallelism
    ep, cp : ranks of an expert group, of a context group; 1: none seen
    groups : RNICs at one position (replica groups), in the platform's order, stage after stage
    directed : whether the first group is known to belong to the first stage
    width : RNICs of one tensor-parallel group; width * cp groups make a stage
    chains : RNICs from stage to stage
    ep_groups : RNICs that exchange tokens
    pairs : RNICs that exchange data over the network
    hedges : RNICs that may, if the layout is another one; few if it is sure
    idle : endpoint ids seen to take no part
    unheard : endpoint ids that are not seen to take part
    signs : input of the confidence, see `skeleton_job.layout.confidence.signs_of`
    begin_ns : begin of the counters that it rests on; None: that of the window
    """

    confidence: float
    reason: str | None
    period_ns: int | None = None
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int = 1
    cp: int = 1
    groups: tuple[tuple[Rnic, ...], ...] = ()
    directed: bool = False
    width: int = 1
    chains: tuple[tuple[Rnic, ...], ...] = ()
    ep_groups: tuple[tuple[Rnic, ...], ...] = ()
    pairs: frozenset[Pair] = frozenset()
    hedges: frozenset[Pair] = frozenset()
    idle: tuple[str, ...] = ()
    unheard: frozenset[str] = frozenset()
    signs: Mapping[str, float] = field(default_factory=dict)
    begin_ns: int | None = None

    def stages(self) -> list[list[Rnic]]:
        """Return the RNICs of each stage, in pipeline order."""
        return [
            [rnic for group in self.groups[i : i + self.width * self.cp] for rnic in group]
            for i in range(0, len(self.groups), self.width * self.cp)
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
    rows = np.flatnonzero(matrix.usable)
    total = channels(matrix, rows)
    rhythm = find_rhythm(total) or find_hidden_rhythm(matrix, rows)
    ends = find_silent_ends(job, matrix, None if rhythm is None else rhythm.period_bins)
    if ends is not None:
        period_ns = None if rhythm is None else round(rhythm.period_bins * matrix.bin_ns)
        return _of_silent_ends(job, ends, period_ns)
    if rhythm is None:
        repeated = repeats(total)
        if repeated and _alike(job) and hosts_are_balanced(job, matrix):
            return _of_one_stage(job)
        short = repeated or matrix.n_bins * matrix.bin_ns < MIN_FLAT_NS
        return Inference(confidence=0.0, reason=TOO_SHORT if short else FLAT)
    try:
        return _placed(job, matrix, rhythm)
    except InconsistentError as error:
        return Inference(
            confidence=0.0,
            reason=f"inconsistent: {error}",
            period_ns=round(rhythm.period_bins * matrix.bin_ns),
        )


def _alike(job: Job) -> bool:
    """Return whether all hosts have RNICs on the same rails."""
    rails: dict[str, list[int]] = {}
    for rnic in job.ordered:
        rails.setdefault(rnic.host, []).append(rnic.rail)
    return len({*map(tuple, rails.values())}) == 1


def _of_one_stage(job: Job) -> Inference:
    """Return the skeleton of hosts that are replicas of each other: a gradient group on each rail.

    Of the replicas inside a host nothing is known.
    """
    groups: dict[int, list[Rnic]] = {}
    for rnic in job.ordered:
        groups.setdefault(rnic.rail, []).append(rnic)
    return Inference(
        confidence=BALANCE_SHOWN,
        reason=None,
        dp=len(job.hosts),
        pp=1,
        tp=_tensor_degree(job.gpus, len(job.hosts), len(groups)),
        groups=tuple(map(tuple, groups.values())),
        directed=True,
        width=len(groups),
        pairs=frozenset().union(*map(group_pairs, groups.values())),
    )


def _of_silent_ends(job: Job, ends: SilentEnds, period_ns: int | None) -> Inference:
    """Return the skeleton of a pipeline whose first and last stage are silent."""
    replicas = len(ends.stages[0]) // ends.width
    chains = tuple(zip(*ends.stages, strict=True))
    return Inference(
        confidence=round(min(ENDS_SHOWN, ends.certainty), 3),
        reason=None,
        period_ns=period_ns,
        dp=replicas,
        pp=len(ends.stages),
        tp=_tensor_degree(job.gpus, replicas * len(ends.stages), ends.width),
        groups=tuple(stage[k :: ends.width] for stage in ends.stages for k in range(ends.width)),
        directed=True,
        width=ends.width,
        chains=chains,
        pairs=frozenset().union(
            *(chain_pairs([joint]) for chain in chains for joint in pairwise(chain[1:-1]))
        ),
        # Ends that share an embedding sum its gradient, which hardly shows.
        hedges=frozenset(
            ordered(chain[0].endpoint_id, chain[-1].endpoint_id)
            for chain in chains
            if chain[0].host != chain[-1].host
        ),
        unheard=frozenset(r.endpoint_id for k in (0, -1) for r in ends.stages[k]),
    )


def _refusal(job: Job, matrix: RateMatrix) -> str | None:
    """Return why the counters cannot say anything, None if they may."""
    if len(job.hosts) < 2:
        return ONE_HOST
    if matrix.n_bins < MIN_PERIOD_BINS * MIN_ITERATIONS:
        return TOO_SHORT
    if 2 * int(matrix.usable.sum()) < len(job.rnics):
        return UNSEEN
    # The mean over RNICs, both directions: one busy port in a hundred is enough traffic.
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
    flow = one_way(blocks, blocks.hosts)
    cells = find_cells(blocks)
    profiles_of, known, halves = of_cells(blocks, cells)
    evidence = Evidence(
        profiles=profiles_of,
        known=known,
        hosts=blocks.hosts[np.unique(cells, return_index=True)[1]],
        # Replicas may share a host: no rule keeps them apart.
        replicas=blocks.replicas or known.size < cells.size,
        halves=halves,
        floor=blocks.floor,
        one_way=flow,
        max_shift=MAX_CLOCK_NS / matrix.bin_ns * blocks.tx.shape[1] / rhythm.period_bins,
    )
    try:
        cell_choice = choose(evidence)
    except ValueError as error:
        raise InconsistentError(str(error)) from error
    choice = replace(cell_choice, labels=cell_choice.labels[cells])
    classes = [np.flatnonzero(choice.labels == c) for c in range(choice.count)]
    by_class = StageIterations(classes, blocks, matrix, rhythm)
    order = _order(blocks, choice, by_class, places=known.size)
    stages = [classes[c] for c in order.order]
    # Blocks without counters get a place only if a single one is left for them.
    placed = len(np.unique(choice.labels[~blocks.known])) <= 1
    if not placed:
        stages = [stage[blocks.known[stage]] for stage in stages]
    by_index = _follows_index(blocks, choice)
    stage_iterations = by_class.reordered(order.order)
    joints = find_joints(stage_iterations, by_index=by_index) if placed else Joints(seen=False)
    rings = lasting_rings(blocks, cells)
    inner = find_inner(stage_iterations, rings=rings) if placed else NONE
    sums = _rails(stages, blocks)
    cp = inner.size if inner.kind == "cp" else 1
    inside = _rails(inner.groups, blocks)
    # Without support for the platform's order, only neighbours along it are paired.
    distances = RING_DISTANCES if by_index else (1,)
    parts = parts_of(
        rhythm,
        blocks.width_margin,
        blocks.width_certainty,
        choice,
        seen_share=float(part.known.mean()),
        doubtful=part.doubtful,
        one_way=flow,
        placed=placed,
    )
    weakest = min(parts, key=lambda p: p.value)
    signs = signs_of(cell_choice, order, inner, evidence, blocks)
    usual = calibrated(signs)
    confidence = min(weakest.value, usual)
    replicas = choice.labels.size // choice.count // cp
    notes = []
    if confidence < DEFAULT_MIN_CONFIDENCE:
        notes.append(weakest.weakness if weakest.value <= usual else OFTEN_WRONG)
    notes += _limits(replicas, choice.count, order, chains_seen=joints.seen)
    pairs = joints.likely.union(
        chain_pairs(joints.chains),
        *(group_pairs(g, distances) for g in sums),
        *(group_pairs(g, inner_distances(inner)) for g in inside),
    )
    needed = needed_pairs(sums, joints.chains, silent_rnics(blocks))
    sure = confidence >= SURE and joints.seen and order.trust >= SURE_ORDER
    unknown = confidence < DEFAULT_MIN_CONFIDENCE
    others = guesses(pairs, joints.chains, blocks, matrix, rhythm, crossing=unknown)
    gpus = None if job.gpus is None else job.gpus * len(part.hosts) // len(job.hosts)
    return Inference(
        confidence=round(confidence, 3),
        reason="; ".join(notes) or None,
        period_ns=round(rhythm.period_bins * matrix.bin_ns),
        dp=replicas,
        pp=choice.count,
        tp=_tensor_degree(gpus, replicas * choice.count * cp, blocks.width),
        ep=inner.size if inner.kind == "ep" else 1,
        cp=cp,
        groups=_rails(positions(stages, inner.groups), blocks) if cp > 1 else sums,
        directed=order.directed,
        width=blocks.width,
        chains=joints.chains,
        ep_groups=inside if inner.kind == "ep" else (),
        pairs=pairs,
        hedges=hedges(pairs, (SURE_LENGTH if sure else MAX_LENGTH) * needed, others),
        idle=part.idle,
        unheard=part.unheard,
        signs=signs,
    )


def _order(blocks: Blocks, choice: Choice, by_class: StageIterations, *, places: int) -> StageOrder:
    """Return the order of the classes.

    Classes that repeat along the platform's order are the stages in that order, as frameworks
    number ranks. With few blocks, which may repeat by chance, or two stages, the traffic may
    reverse it. Where cues dispute the order, chains of replicas decide between them. Without a
    known direction, the platform's first block is in the first stage.

    Parameters
    ----------
    by_class : the iterations of each class
    places : number of distinct cells
    """
    of_class = [(choice.labels == c) & blocks.known for c in range(choice.count)]
    tx, rx = (
        np.array([rates[chosen].mean(axis=0) for chosen in of_class])
        for rates in (blocks.tx, blocks.rx)
    )
    replicas = choice.labels.size // choice.count
    order = order_stages(tx, rx, replicas=replicas)
    along = tuple(range(choice.count))
    if choice.regular is not None and not _follows_index(blocks, choice):
        if order.trust < SURE_ORDER:
            order = replace(order, order=along, trust=DISPUTED, directed=True)
    elif choice.regular is not None and choice.count > 1:
        agree = order.order == along and order.directed and order.trust >= SURE_ORDER
        # Few blocks repeat by chance; of two stages the traffic shows the first.
        doubted = places <= FEW_BLOCKS or (choice.count == PAIR and order.trust > INDEX_ALONE)
        if not doubted or order.order not in (along, along[::-1]) or not order.directed:
            trust = order.trust if agree else INDEX_ALONE
            return StageOrder(along, trust, directed=True)
    if order.trust <= DISPUTED and order.cues and replicas > 1 and choice.count > PAIR:
        order = by_chains(order, chain_gains(by_class.pieces), tx, rx)
    first, last = (int(np.argmax(of_class[c])) for c in (order.order[0], order.order[-1]))
    if order.directed or first <= last:
        return order
    return replace(order, order=order.order[::-1])


def _follows_index(blocks: Blocks, choice: Choice) -> bool:
    """Return whether the classes repeat along the platform's order by more than chance.

    If each host is a class of its own, any order of the hosts is regular.
    """
    if choice.regular is None:
        return False
    hosts = [np.unique(blocks.hosts[choice.labels == c]).size for c in range(choice.count)]
    return min(hosts) > 1


def _rails(parts: Iterable[Iterable[int]], blocks: Blocks) -> tuple[tuple[Rnic, ...], ...]:
    """Return the RNICs at one place of each part's blocks, part after part."""
    return tuple(
        tuple(blocks.members[b][k] for b in part) for part in parts for k in range(blocks.width)
    )


def _limits(replicas: int, stages: int, order: StageOrder, *, chains_seen: bool) -> list[str]:
    """Return what counters cannot show, for the reader of the skeleton."""
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
    """Return GPUs per position; if their number is unknown, the RNICs per position."""
    if gpus is None or gpus % positions:
        return width
    return gpus // positions
