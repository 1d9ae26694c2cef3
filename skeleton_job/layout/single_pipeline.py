"""Whether the bytes of blocks are those of a single pipeline.

Its first and last stage have a neighbour on one side only, and an embedding each. So they move less
than the stages between them, or more, and both the same amount: bytes per iteration have two
levels, and exactly two blocks are at that of the ends. Where nothing else is sent, the ends move
half of what the others do. Where they share the embedding, they sum its gradient while all others
are silent; with replicas, all would sum gradients. And where libraries hand data over inside a host
first, some blocks pass activations on and others gradients: each sends to one other, along paths.
"""

from typing import Final

import numpy as np
from scipy.spatial.distance import cdist

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.clusters import Labels

# Levels are apart if the gap between them is so many times the next largest one, and at least this
# share of the most bytes.
MIN_RATIO: Final = 10.0
MIN_GAP: Final = 0.01
# The first and the last stage.
ENDS: Final = 2
# With fewer blocks the two could be one replica of three that is a leaf of a tree.
MIN_BLOCKS: Final = 7
# Blocks move the same bytes if they differ by less than this share.
SAME_BYTES: Final = 0.03
# Sums of the ends: both reach this share of the higher rate, at one time, and then the others send
# and receive less than the second share; these never exceed the third. In a tree of three replicas
# the leaves have half the rate of the root; in two stages of two, each sums at a time of its own.
BOTH_ENDS: Final = 0.85
SILENT: Final = 0.15
NO_SUM: Final = 0.45
# Beside the sum the two differ by this share of the lesser one's energy: of the ends one sends what
# the other receives, and replicas of one stage, the only one that sums much, do the same.
ENDS_DIFFER: Final = 0.5
# What a block sends differs from what another receives by this share of its energy at most, and two
# blocks by the second share at least: of 240 foreign jobs with replicas and seven blocks or more
# those with such senders have blocks that differ by 0.02 or less.
SENT: Final = 0.006
UNLIKE: Final = 0.05
# No pipeline has more stages, two of a host included.
MAX_BLOCKS: Final = 256


def upper_level(profiles: Floats, known: Bools) -> Bools | None:
    """Return which blocks are at the upper of two levels of bytes; None without two clear levels.

    Parameters
    ----------
    profiles : (n_blocks, 2 * points) mean iteration, tx and rx
    known : (n_blocks,) bool

    Returns
    -------
    (n_blocks,) bool, or None
    """
    n = known.size
    if n <= ENDS or not known.all():
        return None
    moved = moved_bytes(profiles)
    order = np.argsort(moved, kind="stable")
    gaps = np.diff(moved[order])
    widest = int(np.argmax(gaps))
    next_widest = float(np.delete(gaps, widest).max())
    if gaps[widest] < max(MIN_RATIO * next_widest, MIN_GAP * float(moved.max())):
        return None
    upper = np.zeros(n, dtype=np.bool_)
    upper[order[widest + 1 :]] = True
    return upper


def moved_bytes(profiles: Floats) -> Floats:
    """Return the bytes per second of each block, the lesser of both ways: storage adds to one."""
    tx, rx = _ways(profiles)
    out: Floats = np.minimum(tx.mean(axis=1), rx.mean(axis=1))
    return out


def _ways(profiles: Floats) -> tuple[Floats, Floats]:
    """Return tx and rx of profiles, (n_blocks, points) each."""
    points = profiles.shape[1] // 2
    return profiles[:, :points], profiles[:, points:]


def half_at_ends(profiles: Floats, known: Bools) -> bool:
    """Return whether two blocks move half the bytes of each of the others, so nothing is summed.

    Gradient sums add to all blocks, so that the ends of a pipeline with replicas move more than
    half.

    Parameters
    ----------
    profiles : (n_blocks, 2 * points) mean iteration, tx and rx
    known : (n_blocks,) bool
    """
    if known.size <= ENDS + 1 or not known.all():
        return False
    moved = np.sort(moved_bytes(profiles))
    ends, between = 2 * moved[:ENDS], moved[ENDS:]
    usual = float(np.median(between))
    both = np.concatenate([ends, between])
    return bool(np.all(np.abs(both - usual) <= SAME_BYTES * usual))


def ends_sum_alone(profiles: Floats, known: Bools) -> bool:
    """Return whether two blocks sum a gradient together, and no other block ever does.

    Parameters
    ----------
    profiles : (n_blocks, 2 * points) mean iteration, tx and rx
    known : (n_blocks,) bool
    """
    if known.size <= ENDS + 1 or not known.all():
        return False
    tx, rx = _ways(profiles)
    both = np.minimum(tx, rx)
    order = np.argsort(-both.max(axis=1), kind="stable")
    ends = both[order[:ENDS]]
    others = np.maximum(tx, rx)[order[ENDS:]]
    together = ends.min(axis=0)
    top, at = float(ends.max()), int(np.argmax(together))
    alone = bool(
        together[at] >= BOTH_ENDS * top
        and others[:, at].max() < SILENT * top
        and others.max() < NO_SUM * top
    )
    beside = profiles[order[:ENDS]][:, np.tile(together < SILENT * top, 2)]
    apart = float(((beside[0] - beside[1]) ** 2).sum())
    return alone and apart > ENDS_DIFFER * float((beside**2).sum(axis=1).min())


def send_to_one_each(profiles: Floats, known: Bools, hosts: Labels) -> bool:
    """Return whether one other block receives what a block sends, along paths, and none are alike.

    In two stages with replicas of unequal clocks each block sends to one other, too, but gets its
    answer from it.

    Parameters
    ----------
    profiles : (n_blocks, 2 * points) mean iteration, tx and rx
    known : (n_blocks,) bool
    hosts : (n_blocks,) index of each block's host, on which none of those is that it sends to
    """
    n = known.size
    if not MIN_BLOCKS <= n <= MAX_BLOCKS or not known.all():
        return False
    tx, rx = _ways(profiles)
    sent = (tx**2).sum(axis=1)
    apart = np.where(hosts[:, None] == hosts, np.inf, cdist(tx, rx, "sqeuclidean"))
    left = np.minimum(apart.min(axis=1), sent)
    if left.sum() > SENT * sent.sum():
        return False
    # Who sends next to nothing is the end of a path.
    sends = sent > SENT * sent.max()
    to = np.where(sends, apart.argmin(axis=1), np.arange(n))
    if np.unique(to[sends]).size < np.count_nonzero(sends):
        return False
    end = np.arange(n)
    for _ in range(n):
        end = to[end]
    size = (profiles**2).sum(axis=1)
    other = cdist(profiles, profiles, "sqeuclidean")
    other /= np.maximum(np.minimum(size[:, None], size), 1e-300)
    alike = float(other[np.triu_indices(n, 1)].min()) < UNLIKE
    return not sends[end].any() and not alike


def one_pipeline(upper: Bools) -> bool:
    """Return whether two levels of bytes are those of a single pipeline: two ends, many between.

    With replicas, trees of gradient sums make levels as well, so these say nothing.

    Examples
    --------
    >>> one_pipeline(np.array([False, *[True] * 6, False]))
    True
    >>> one_pipeline(np.array([True, False] * 4))
    False
    """
    n, above = upper.size, int(upper.sum())
    return min(above, n - above) == ENDS and n >= MIN_BLOCKS
