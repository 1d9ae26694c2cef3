"""Pipelines through the stages: which replicas are joined."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, Self

import numpy as np

from schemas.columns.arrays import Floats
from skeleton_job.job import Pair, Rnic, ordered
from skeleton_job.layout.blocks import Blocks, block_iterations
from skeleton_job.rhythm.chains import (
    best_chains,
    likeness_of,
    match_chains,
)
from skeleton_job.rhythm.clusters import Labels
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.series.rates import RateMatrix

# Likely partners per replica if neither traffic nor platform order joins the replicas.
CANDIDATES: Final = 3


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
        self.matrix = matrix
        self.rhythm = rhythm

    @cached_property
    def pieces(self) -> list[tuple[Floats, Floats]]:
        """Tx and rx of each stage, as `block_iterations` returns them."""
        return [
            block_iterations(self.blocks, stage, self.matrix, self.rhythm) for stage in self.stages
        ]

    def reordered(self, order: Sequence[int]) -> Self:
        """Return those of the same stages in another order, without computing any again."""
        out = type(self)([self.stages[c] for c in order], self.blocks, self.matrix, self.rhythm)
        if "pieces" in vars(self):
            out.pieces = [self.pieces[c] for c in order]
        return out


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
