"""Which replicas of neighbouring pipeline stages are joined.

What joins blocks of different stages, and blocks of one stage: pipelines and inner groups.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from schemas.columns.arrays import Floats
from skeleton_job.job import Pair, Rnic, ordered
from skeleton_job.layout.blocks import Blocks, block_iterations
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.rhythm.lockstep import find_lockstep
from skeleton_job.series.rates import RateMatrix

# Chains count as seen when they correlate so much more than the other pairs do.
MIN_CHAIN_GAIN: Final = 0.15
# To overrule the platform's order takes more: smeared samples correlate by chance.
OVERRULE_GAIN: Final = 0.55
# The platform's order is believed when it explains nearly as much as the best match.
INDEX_TRUSTED: Final = 0.8
MIN_CHAIN_ITERATIONS: Final = 4
# Of fewer blocks a common effect of clocks is not told from what each has of its own.
MIN_FOR_CLOCKS: Final = 6


def match_chains(
    tx_a: Floats, rx_a: Floats, tx_b: Floats, rx_b: Floats
) -> tuple[NDArray[np.int64], bool]:
    """Return which replica of stage b each replica of stage a is joined to.

    Replicas do the same work, but each has its own small delays, and these
    travel along its own chain only. What is left of each iteration after the
    mean over replicas and the mean over iterations are taken away is compared
    between sender and receiver. Where this does not speak clearly, the
    platform's order of the hosts decides.

    Parameters
    ----------
    tx_a, rx_a, tx_b, rx_b : (n_replicas, n_iterations, points)
        In the platform's order; NaN where samples are missing.

    Returns
    -------
    partner : (n_replicas,) int64
    seen : whether the traffic says so
    """
    n = tx_a.shape[0]
    by_index = np.arange(n, dtype=np.int64)
    if n == 1:
        return by_index, True
    likeness = likeness_of(tx_a, rx_a, tx_b, rx_b)
    rows, columns = linear_sum_assignment(-likeness)
    top = float(likeness[rows, columns].mean())
    rest = (float(likeness.sum()) - top * n) / (n * (n - 1))
    index_gain = float(np.trace(likeness)) / n - rest
    if top - rest < MIN_CHAIN_GAIN:
        return by_index, False
    if index_gain >= INDEX_TRUSTED * (top - rest):
        return by_index, True
    # All chains must speak: a best match that is weak for some is chance.
    clear = likeness[rows, columns] - rest >= OVERRULE_GAIN
    if not clear.all():
        return by_index, False
    partner = np.empty(n, dtype=np.int64)
    partner[rows] = columns
    return partner, True


def likeness_of(tx_a: Floats, rx_a: Floats, tx_b: Floats, rx_b: Floats) -> Floats:
    """Return how alike the own delays of replicas of two stages are, (n, n); see `match_chains`."""
    both = _correlation(_own(tx_a), _own(rx_b)) + _correlation(_own(rx_a), _own(tx_b))
    out: Floats = both / 2
    return out


def best_chains(likeness: Floats) -> NDArray[np.int64]:
    """Return the partner of each replica that makes all together most alike."""
    rows, columns = linear_sum_assignment(-likeness)
    partner = np.empty(rows.size, dtype=np.int64)
    partner[rows] = columns
    return partner


def _own(pieces: Floats) -> Floats:
    """Return what is one replica's own: no mean over replicas, no mean over iterations.

    Iterations that miss samples of any replica are left out.
    """
    whole = ~np.isnan(pieces).any(axis=(0, 2))
    if int(whole.sum()) < MIN_CHAIN_ITERATIONS:
        return np.zeros((pieces.shape[0], 1))
    own = own_delays(pieces[:, whole])
    kept = np.zeros_like(pieces)
    kept[:, whole] = own
    flat: Floats = kept.reshape(pieces.shape[0], -1)
    return flat


def own_delays(pieces: Floats) -> Floats:
    """Return what is one block's own in each iteration.

    No mean over blocks, no mean over iterations, and not what a clock's offset makes of the
    delays that all share: a shift of the common course.

    Parameters
    ----------
    pieces : (n_blocks, n_iterations, points), none missing
    """
    common = pieces.mean(axis=0)
    own = pieces - common
    flat = np.hstack([common, np.roll(common[:, :1], -1, axis=0)])
    before = np.hstack([np.roll(common[:, -1:], 1, axis=0), common])
    steps = np.stack([(flat[:, 1:] - common).ravel(), (common - before[:, :-1]).ravel()])
    square = steps @ steps.T
    if len(own) >= MIN_FOR_CLOCKS and np.linalg.matrix_rank(square) == 2:
        factors = np.linalg.solve(square, steps @ own.reshape(len(own), -1).T)
        shift = factors.sum(axis=0) - factors.sum(axis=0).mean()
        # What a shift does between the points is not known, but the same for all blocks.
        flat_own = own.reshape(len(own), -1)
        effect = shift @ flat_own / max(float(shift @ shift), 1e-300)
        own = (flat_own - shift[:, None] * effect).reshape(own.shape)
    out: Floats = own - own.mean(axis=1, keepdims=True)
    return out


def _correlation(a: Floats, b: Floats) -> Floats:
    """Return the correlation of each row of a with each row of b, 0 for a flat row."""
    if a.shape[1] != b.shape[1]:
        return np.zeros((a.shape[0], b.shape[0]))
    scale = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)[None]
    product = a @ b.T
    out: Floats = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
    return out


Labels = NDArray[np.int64]

# Where neither traffic nor index joins replicas, each gets so many likely partners.
CANDIDATES: Final = 3
# Larger expert groups are paired along a ring of so many.
MAX_ALL: Final = 16


@dataclass(frozen=True, slots=True)
class Joints:
    """Pipelines through the stages.

    Attributes
    ----------
    chains : RNICs from stage to stage
    seen : whether the traffic shows them all
    maybe : pairs of neighbouring stages that are likely beside the chains, where these are
        not seen, or are other than the platform's order says
    """

    chains: tuple[tuple[Rnic, ...], ...] = ()
    seen: bool = True
    maybe: frozenset[Pair] = frozenset()


class Course:
    """Every iteration of the blocks of each stage, cut out when somebody looks at it.

    Parameters
    ----------
    stages : blocks of each stage, in the platform's order
    """

    def __init__(
        self, stages: list[Labels], blocks: Blocks, matrix: RateMatrix, rhythm: Rhythm
    ) -> None:
        self.stages = stages
        self.blocks = blocks
        self._matrix = matrix
        self._rhythm = rhythm

    @cached_property
    def pieces(self) -> list[tuple[Floats, Floats]]:
        """Tx and rx of each stage, as `block_iterations` returns them."""
        return [
            block_iterations(self.blocks, stage, self._matrix, self._rhythm)
            for stage in self.stages
        ]


def find_joints(course: Course, *, by_index: bool) -> Joints:
    """Return which replicas of neighbouring stages are joined.

    Parameters
    ----------
    by_index : whether the platform's order is believed where the traffic is silent
    """
    stages, blocks = course.stages, course.blocks
    if len(stages) < 2:
        return Joints()
    # Position in its stage, by the platform's order, of each chain's last block.
    at = np.arange(stages[0].size)
    paths = [[int(b)] for b in stages[0]]
    seen_all = True
    maybe: set[Pair] = set()
    for (here, mine), (there, theirs) in pairwise(zip(stages, course.pieces, strict=True)):
        partner, seen = match_chains(*mine, *theirs)
        if not seen and not by_index:
            likeness = likeness_of(*mine, *theirs)
            partner = best_chains(likeness)
            for a, row in enumerate(likeness):
                maybe |= _pairs(blocks, here[a], there[np.argsort(-row)[:CANDIDATES]])
            for b, column in enumerate(likeness.T):
                maybe |= _pairs(blocks, there[b], here[np.argsort(-column)[:CANDIDATES]])
        if seen and by_index:
            # Where traffic overrules the platform it is wrong now and then (of two replicas,
            # once in ten windows of the lab): both answers are probed.
            for k in np.flatnonzero(partner != np.arange(partner.size)).tolist():
                maybe |= _pairs(blocks, here[k], there[k : k + 1])
        seen_all = seen_all and seen
        at = partner[at]
        for path, position in zip(paths, at, strict=True):
            path.append(int(there[position]))
    chains = tuple(
        tuple(blocks.members[b][k] for b in path) for path in paths for k in range(blocks.width)
    )
    return Joints(chains, seen_all, frozenset(maybe))


def _pairs(blocks: Blocks, block: int, others: Labels) -> set[Pair]:
    """Return the pairs of a block's RNICs with those at the same place of others."""
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for other in others
        for a, b in zip(blocks.members[block], blocks.members[other], strict=True)
        if a.host != b.host
    }


@dataclass(frozen=True, slots=True)
class Inner:
    """Groups inside the stages: `kind` "ep", "cp" or None; blocks of each group."""

    kind: str | None
    size: int
    groups: tuple[tuple[int, ...], ...]


def find_inner(course: Course) -> Inner:
    """Return expert or context groups, if all stages show groups of one size.

    Blocks side by side in a host share its clock, so that nothing is told from them.
    """
    none = Inner(None, 1, ())
    stages, blocks = course.stages, course.blocks
    if any(np.unique(blocks.hosts[s]).size < s.size for s in stages):
        return none
    found = [find_lockstep(tx, rx) for tx, rx in course.pieces]
    sizes = {f.size for f in found}
    if len(sizes) > 1 or sizes == {1}:
        return none
    groups = tuple(
        tuple(int(b) for b in stage[f.groups == g])
        for stage, f in zip(stages, found, strict=True)
        for g in dict.fromkeys(f.groups.tolist())
    )
    uneven = 2 * sum(f.uneven for f in found) > len(found)
    return Inner("ep" if uneven else "cp", sizes.pop(), groups)


def positions(stages: list[Labels], groups: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    """Return the blocks at one place of their context group, stage after stage."""
    at = {block: place for group in groups for place, block in enumerate(group)}
    size = len(groups[0])
    return [[int(b) for b in stage if at[int(b)] == c] for stage in stages for c in range(size)]


def inner_distances(inner: Inner) -> tuple[int, ...]:
    """Return whom to pair along a group: all experts with each other, contexts along the ring."""
    return tuple(range(1, min(inner.size, MAX_ALL) // 2 + 1)) if inner.kind == "ep" else (1,)
