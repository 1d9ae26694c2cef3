"""Pipelines through the stages (which replicas are joined), and EP or CP groups inside stages."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Floats
from skeleton_job.job import Pair, Rnic, ordered
from skeleton_job.layout.blocks import Blocks, block_iterations
from skeleton_job.rhythm.chains import (
    best_chains,
    likeness_of,
    match_chains,
)
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.rhythm.lockstep import find_lockstep
from skeleton_job.rhythm.rings import equal_groups, likeness_of_hosts, ring_size
from skeleton_job.series.rates import RateMatrix

Labels = NDArray[np.int64]

# Likely partners per replica if neither traffic nor platform order joins the replicas.
CANDIDATES: Final = 3
# Larger expert groups are paired along a ring of this size.
MAX_ALL: Final = 16


@dataclass(frozen=True, slots=True)
class Joints:
    """Pipelines through the stages.

    Attributes
    ----------
    chains : RNICs from stage to stage
    seen : whether the traffic shows all of them
    likely : further likely pairs of neighbouring stages, if chains are not seen or contradict the
        platform's order
    """

    chains: tuple[tuple[Rnic, ...], ...] = ()
    seen: bool = True
    likely: frozenset[Pair] = frozenset()


class StageIterations:
    """Every iteration of the blocks of each stage, computed on first use.

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


def find_joints(stage_iterations: StageIterations, *, by_index: bool) -> Joints:
    """Return which replicas of neighbouring stages are joined.

    Parameters
    ----------
    by_index : whether the platform's order decides if the traffic does not
    """
    stages, blocks = stage_iterations.stages, stage_iterations.blocks
    if len(stages) < 2:
        return Joints()
    # Position in its stage, in the platform's order, of each chain's last block.
    at = np.arange(stages[0].size)
    paths = [[int(b)] for b in stages[0]]
    seen_all = True
    likely: set[Pair] = set()
    for (here, mine), (there, theirs) in pairwise(
        zip(stages, stage_iterations.pieces, strict=True)
    ):
        partner, seen = match_chains(*mine, *theirs)
        if not seen and not by_index:
            likeness = likeness_of(*mine, *theirs)
            partner = best_chains(likeness)
            for a, row in enumerate(likeness):
                likely |= _pairs(blocks, here[a], there[np.argsort(-row)[:CANDIDATES]])
            for b, column in enumerate(likeness.T):
                likely |= _pairs(blocks, there[b], here[np.argsort(-column)[:CANDIDATES]])
        if seen and by_index:
            # Traffic that overrules the platform is wrong now and then (with two replicas, in one
            # of ten windows of the lab): both answers are probed.
            for k in np.flatnonzero(partner != np.arange(partner.size)).tolist():
                likely |= _pairs(blocks, here[k], there[k : k + 1])
        seen_all = seen_all and seen
        at = partner[at]
        for path, position in zip(paths, at, strict=True):
            path.append(int(there[position]))
    chains = tuple(
        tuple(blocks.members[b][k] for b in path) for path in paths for k in range(blocks.width)
    )
    return Joints(chains, seen_all, frozenset(likely))


def _pairs(blocks: Blocks, block: int, others: Labels) -> set[Pair]:
    """Return the pairs of a block's RNICs with those at the same place of other blocks."""
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for other in others
        for a, b in zip(blocks.members[block], blocks.members[other], strict=True)
        if a.host != b.host
    }


@dataclass(frozen=True, slots=True)
class Inner:
    """Groups inside the stages.

    Attributes
    ----------
    kind : "ep", "cp" or None
    groups : blocks of each group
    """

    kind: str | None
    size: int
    groups: tuple[tuple[int, ...], ...]


def find_inner(stage_iterations: StageIterations, *, rings: bool) -> Inner:
    """Return expert or context groups, if all stages show groups of one size.

    Blocks of one host share its clock, so they cannot be told apart in this way.

    Parameters
    ----------
    rings : whether rings turn through hosts all the time, see `blocks.lasting_rings`; then a
        group holds all blocks of its hosts
    """
    none = Inner(None, 1, ())
    stages, blocks = stage_iterations.stages, stage_iterations.blocks
    if rings:
        return _ring_groups(stage_iterations)
    if any(np.unique(blocks.hosts[s]).size < s.size for s in stages):
        return none
    found = [find_lockstep(tx, rx) for tx, rx in stage_iterations.pieces]
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


def _ring_groups(stage_iterations: StageIterations) -> Inner:
    """Return the context groups of rings through hosts."""
    none = Inner(None, 1, ())
    stages, blocks = stage_iterations.stages, stage_iterations.blocks
    hosts_of = [np.unique(blocks.hosts[stage], return_inverse=True) for stage in stages]
    sizes = {(hosts.size, stage.size) for (hosts, _), stage in zip(hosts_of, stages, strict=True)}
    if len(sizes) > 1:
        return none
    ((n_hosts, n_blocks),) = sizes
    if n_hosts < 2 or n_blocks % n_hosts:
        return none
    stage_likeness = []
    for stage, (_, of_host), (tx, rx) in zip(
        stages, hosts_of, stage_iterations.pieces, strict=True
    ):
        leaves = blocks.tx[stage].mean(axis=1) > blocks.rx[stage].mean(axis=1)
        flows = np.zeros((n_hosts, tx.shape[1], 2 * tx.shape[2]))
        for way, half in ((leaves, slice(None, tx.shape[2])), (~leaves, slice(tx.shape[2], None))):
            np.add.at(flows[:, :, half], of_host[way], (tx - rx)[way])
        likeness = likeness_of_hosts(flows)
        if likeness is None:
            return none
        stage_likeness.append(likeness)
    size = ring_size(stage_likeness)
    groups = []
    for stage, (_, of_host), likeness in zip(stages, hosts_of, stage_likeness, strict=True):
        ring = equal_groups(likeness, size)[of_host]
        groups += [tuple(stage[ring == g].tolist()) for g in range(n_hosts // size)]
    return Inner("cp", size * n_blocks // n_hosts, tuple(groups))


def positions(stages: list[Labels], groups: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    """Return the blocks at one place of their context groups, stage after stage."""
    at = {block: place for group in groups for place, block in enumerate(group)}
    size = len(groups[0])
    return [[int(b) for b in stage if at[int(b)] == c] for stage in stages for c in range(size)]


def inner_distances(inner: Inner) -> tuple[int, ...]:
    """Return the distances to pair along a group: EP groups are meshed, CP groups form a ring."""
    return tuple(range(1, min(inner.size, MAX_ALL) // 2 + 1)) if inner.kind == "ep" else (1,)
