"""Pairs to probe beside those of a layout: a covering design, not a mesh.

A layout may have wrong degrees or a wrong order of stages, and then lacks peers; one that looks
sure is wrong now and then, too, and gets fewer guesses. Two kinds of guesses say who else may
exchange data: blocks whose own delays agree (`skeleton_job.layout.partners`), whatever the layout,
and blocks at distances along the platform's order at which another layout would put neighbours
(`skeleton_job.layout.distances`). They are taken in turns, the likeliest first, as many as a
multiple of the pairs that the job needs has room for. Collectives of rail-optimised fabrics do not
cross rails, so unless the layout does, guesses do only where next to nothing is known, and last.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import pairwise, zip_longest
from typing import Final

import numpy as np

from skeleton_job.job import Pair, Rnic, ordered
from skeleton_job.layout.blocks import Blocks, block_iterations
from skeleton_job.layout.distances import DEFAULT_MAX_PEERS, covering_distances
from skeleton_job.layout.pairs import group_pairs
from skeleton_job.layout.partners import rank_partners
from skeleton_job.rhythm.clusters import Labels
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.series.rates import RateMatrix

# All pairs of an unsure job, as a multiple of what its layout needs: a wrong layout may need half
# of what the true one does, and then as many again are spare. The usual list, of sure and unsure
# jobs together, stays below three times the truth.
MAX_LENGTH: Final = 5.5
# The same of a sure job.
SURE_LENGTH: Final = 2.0
# Likely partners of each block, and the most blocks for which they are sought: their correlations
# take memory and time by the square.
PARTNERS: Final = 4
MAX_RANKED: Final = 1024


def hedges(pairs: Set[Pair], room: float, guesses: Iterable[Set[Pair]]) -> frozenset[Pair]:
    """Return the guessed pairs for which there is room.

    Parameters
    ----------
    pairs : of the layout, which stay
    room : for so many pairs in all
    guesses : parcels of pairs, the likeliest first; one that does not fit is left out
    """
    added: set[Pair] = set()
    for guess in guesses:
        if len(pairs) + len(added) >= room:
            # Further guesses take a while to find.
            break
        more = guess - pairs - added
        if len(pairs) + len(added) + len(more) <= room:
            added |= more
    return frozenset(added)


def needed_pairs(
    groups: Sequence[Sequence[Rnic]], chains: Iterable[Sequence[Rnic]], silent: Set[Rnic]
) -> int:
    """Return how many pairs a layout needs: rings of its replica groups, and its pipelines.

    Neighbours in one host need none. Half as many as RNICs take part are needed in any case, one
    for every two: a layout that needs hardly any is often wrong.

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
    return max(len(needed), sum(r not in silent for group in groups for r in group) // 2)


def silent_rnics(blocks: Blocks) -> set[Rnic]:
    """Return the RNICs of blocks that are not seen to take part."""
    return {r for b in np.flatnonzero(~blocks.known).tolist() for r in blocks.members[b]}


def guesses(
    pairs: Set[Pair],
    chains: Iterable[Sequence[Rnic]],
    blocks: Blocks,
    matrix: RateMatrix,
    rhythm: Rhythm,
    *,
    crossing: bool,
) -> Iterator[set[Pair]]:
    """Yield parcels of pairs that may exchange data, by delays and by index in turns.

    Parameters
    ----------
    pairs : of the layout
    chains : RNICs from stage to stage
    crossing : whether pairs across rails come last if the layout has none
    """
    yield rail_twins(chains, [r for b in np.flatnonzero(blocks.known) for r in blocks.members[b]])
    rails = {r.endpoint_id: r.rail for block in blocks.members for r in block}
    across = any(rails[a] != rails[b] for a, b in pairs)
    n = len(blocks.members)
    by_delay: Labels = np.empty((0, n), dtype=np.int64)
    if n <= MAX_RANKED:
        tx, rx = block_iterations(blocks, np.arange(n), matrix, rhythm)
        tx[~blocks.known] = np.nan
        by_delay = rank_partners(tx, rx, blocks.hosts, PARTNERS).T
    distances = covering_distances(n, DEFAULT_MAX_PEERS)
    by_index = [np.roll(np.arange(n), -distance) for distance in distances]
    partners = [p for turn in zip_longest(by_delay, by_index) for p in turn if p is not None]
    for cross in (across,) if across or not crossing else (False, True):
        yield from (_pairs(blocks, partner, across=cross) for partner in partners)


def rail_twins(chains: Iterable[Sequence[Rnic]], heard: Iterable[Rnic]) -> set[Pair]:
    """Return, for neighbours in a pipeline on different rails, the pairs on the rail of either.

    Libraries may hand data over inside a host first and send it on the receiver's rail.

    Parameters
    ----------
    heard : RNICs that are seen to take part
    """
    at = {(r.host, r.rail): r for r in heard}
    twins = set[Pair]()
    for one, other in (pair for path in chains for pair in pairwise(path)):
        if one.host == other.host or one.rail == other.rail:
            continue
        for near, far in ((one, other), (other, one)):
            twin = at.get((far.host, near.rail))
            if twin is not None and (near.host, near.rail) in at:
                twins.add(ordered(near.endpoint_id, twin.endpoint_id))
    return twins


def _pairs(blocks: Blocks, partner: Labels, *, across: bool) -> set[Pair]:
    """Return the pairs of RNICs at the same place of blocks and their partners, if both take part.

    Parameters
    ----------
    partner : (n_blocks,) -1 where there is none
    """
    heard = blocks.known & (partner >= 0)
    heard[heard] &= blocks.known[partner[heard]]
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for one, other in zip(np.flatnonzero(heard).tolist(), partner[heard].tolist(), strict=True)
        for a, b in zip(blocks.members[one], blocks.members[other], strict=True)
        if a.host != b.host and (across or a.rail == b.rail)
    }
