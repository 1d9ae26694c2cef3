"""Blocks of a host that one ring goes through: together they stand for one place in a layout.

With several replicas of a stage in a host, a ring enters the host at one block and leaves it at
another. Such blocks look as different as stages do: one receives, another sends. But what they
send and receive adds up to a collective's traffic, which goes both ways at a time; that of
stages does not.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from skeleton_job.arrays import Bools, Floats
from skeleton_job.blocks import Blocks, one_way
from skeleton_job.clusters import divisors

Labels = NDArray[np.int64]

# Blocks of which at least this share of the traffic goes one way at a time are ends of something:
# on generated jobs of whole rings it is below 0.2, of rings through hosts above 0.5.
MIN_ONE_WAY: Final = 0.3
# Together they go both ways if that share falls below this part of it.
BALANCED: Final = 0.5


def find_cells(blocks: Blocks) -> Labels:
    """Return the cell of each block, (n_blocks,); cells are numbered in the platform's order.

    Each block is a cell, unless the hosts hold several replicas and the blocks are ends of what
    goes through them. Then the blocks of a host at every k-th place are one, with the greatest
    k at which the traffic is balanced: stages may stand in turn inside a host.
    """
    n = blocks.known.size
    alone = np.arange(n, dtype=np.int64)
    inside = n // (int(blocks.hosts.max(initial=0)) + 1)
    if not blocks.replicas or inside == 1:
        return alone
    ends = one_way(blocks, alone)
    if ends < MIN_ONE_WAY:
        return alone
    for steps in divisors(inside)[-2::-1]:
        cells: Labels = blocks.hosts * steps + alone % inside % steps
        if one_way(blocks, cells, _whole(blocks, cells)) <= BALANCED * ends:
            return cells
    return alone


def of_cells(blocks: Blocks, cells: Labels) -> tuple[Floats, Bools]:
    """Return each cell's mean iteration, tx and rx side by side, and whether it is known.

    Profiles (n_cells, 2 * points) in the unit of the blocks', known (n_cells,): a cell of which
    a block is missing would look like one end of a ring.
    """
    profiles = np.hstack([blocks.tx, blocks.rx])
    whole = _whole(blocks, cells)
    count = np.bincount(cells[whole], minlength=int(cells.max()) + 1)
    total = np.zeros((count.size, profiles.shape[1]))
    np.add.at(total, cells[whole], profiles[whole])
    return total / np.maximum(count, 1)[:, None], count > 0


def _whole(blocks: Blocks, cells: Labels) -> Bools:
    """Return which blocks are of cells that are known as a whole, (n_blocks,)."""
    out: Bools = ~np.isin(cells, cells[~blocks.known])
    return out
