"""Pairs to probe beside those of a layout that is not sure: a covering design, not a mesh.

Two kinds of guesses say who else may exchange data: blocks whose own delays agree
(`skeleton_job.layout.partners`), whatever the layout, and blocks at distances along the platform's
order at which another layout would put neighbours (`skeleton_job.layout.distances`). They are
taken in turns, the likeliest first, as many as three times the pairs that the job needs have room
for. They cross rails only if the layout does: collectives of rail-optimised fabrics do not.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, pairwise, zip_longest
from typing import Final

import numpy as np

from skeleton_job.job import Pair, Rnic, ordered
from skeleton_job.layout.blocks import Blocks, Labels, block_iterations
from skeleton_job.layout.distances import DEFAULT_MAX_PEERS, covering_distances
from skeleton_job.layout.pairs import group_pairs
from skeleton_job.layout.partners import rank_partners
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.series.rates import RateMatrix

# All pairs of an unsure job, as a multiple of what its layout needs.
MAX_LENGTH: Final = 3.0
# Likely partners of each block, and the most blocks for which they are sought: their correlations
# take memory and time by the square.
PARTNERS: Final = 4
MAX_RANKED: Final = 1024


def hedges(pairs: Set[Pair], needed: int, guesses: Iterable[Set[Pair]]) -> frozenset[Pair]:
    """Return the guessed pairs for which there is room.

    Parameters
    ----------
    pairs : of the layout, which stay
    needed : how many pairs the layout needs, see `needed_pairs`
    guesses : parcels of pairs, the likeliest first; one that does not fit is left out
    """
    added: set[Pair] = set()
    for guess in guesses:
        more = guess - pairs - added
        if len(pairs) + len(added) + len(more) <= MAX_LENGTH * needed:
            added |= more
    return frozenset(added)


def needed_pairs(
    groups: Iterable[Sequence[Rnic]], chains: Iterable[Sequence[Rnic]], silent: Set[Rnic]
) -> int:
    """Return how many pairs a layout needs: rings of its replica groups, and its pipelines.

    Neighbours in one host need none.

    Parameters
    ----------
    groups : RNICs that sum gradients
    chains : RNICs from stage to stage
    silent : RNICs that are not seen to take part, and so need none
    """
    heard = ([r for r in group if r not in silent] for group in groups)
    needed = set[Pair]().union(*(group_pairs(group, (1,)) for group in heard))
    joints = (pair for path in chains for pair in pairwise(path))
    needed |= {
        ordered(a.endpoint_id, b.endpoint_id)
        for a, b in joints
        if a.host != b.host and not {a, b} & silent
    }
    return len(needed)


def silent_rnics(blocks: Blocks) -> set[Rnic]:
    """Return the RNICs of blocks that are not seen to take part."""
    return {r for b in np.flatnonzero(~blocks.known).tolist() for r in blocks.members[b]}


def guesses(
    pairs: Set[Pair], blocks: Blocks, matrix: RateMatrix, rhythm: Rhythm
) -> Iterator[set[Pair]]:
    """Return parcels of pairs that may exchange data, by delays and by index in turns.

    Parameters
    ----------
    pairs : of the layout
    """
    rails = {r.endpoint_id: r.rail for block in blocks.members for r in block}
    across = any(rails[a] != rails[b] for a, b in pairs)
    n = len(blocks.members)
    every = np.arange(n)
    by_delay: list[set[Pair]] = []
    if n <= MAX_RANKED:
        tx, rx = block_iterations(blocks, every, matrix, rhythm)
        tx[~blocks.known] = np.nan
        for partner in rank_partners(tx, rx, blocks.hosts, PARTNERS).T:
            there = partner >= 0
            by_delay.append(_pairs(blocks, every[there], partner[there], across=across))
    by_index = [
        _pairs(blocks, every, np.roll(every, -distance), across=across)
        for distance in covering_distances(n, DEFAULT_MAX_PEERS)
    ]
    return chain.from_iterable(zip_longest(by_delay, by_index, fillvalue=set[Pair]()))


def _pairs(blocks: Blocks, some: Labels, others: Labels, *, across: bool) -> set[Pair]:
    """Return the pairs of RNICs at the same place of two blocks that are seen to take part."""
    heard = blocks.known[some] & blocks.known[others]
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for one, other in zip(some[heard].tolist(), others[heard].tolist(), strict=True)
        for a, b in zip(blocks.members[one], blocks.members[other], strict=True)
        if a.host != b.host and (across or a.rail == b.rail)
    }
