"""A pipeline without gradients over the network, of which each host holds two stages.

Stages of one host exchange nothing over the network. So the first stage and the last one are
silent: the first half of one host's RNICs, and the second half of another's. Every other half has
one neighbour, and what it sends is what that one receives, sample by sample: the neighbours show
themselves, in their direction, whether or not iterations are seen. Several replicas in these hosts
sum their gradients inside them.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats
from skeleton_job.job import Job, Rnic
from skeleton_job.rhythm.clusters import Labels
from skeleton_job.rhythm.lockstep import host_width
from skeleton_job.series.rates import RateMatrix

# A silent RNIC moves less than this share of a busy one's bytes, the lesser of both ways; of a half
# that is silent fewer than half of the RNICs may move more one way, from or to storage.
SILENT: Final = 0.1
# Halves that are neighbours correlate by 0.95 and more unless clocks are wrong by a good part of a
# burst. Others of the same pipeline do by up to 0.95 if delays between stages are short, so the
# best partner is taken; halves of no common pipeline do not correlate.
MIN_LIKENESS: Final = 0.5


@dataclass(frozen=True, slots=True)
class SilentEnds:
    """Stages of a pipeline, two a host.

    Attributes
    ----------
    stages : the RNICs of each stage, the first stage first
    width : RNICs of one tensor-parallel group; the replicas of a stage follow each other
    certainty : how clearly they move together
    likeness : least correlation of two neighbours
    """

    stages: tuple[tuple[Rnic, ...], ...]
    width: int
    certainty: float
    likeness: float


def find_silent_ends(job: Job, matrix: RateMatrix, period_bins: float | None) -> SilentEnds | None:
    """Return the stages of a pipeline whose first and last are silent; None: it is no such one.

    Parameters
    ----------
    matrix : rates of the job's RNICs, in any order
    period_bins : length of an iteration, if it is known
    """
    of_host: dict[str, list[Rnic]] = {host: [] for host in job.hosts}
    for rnic in job.ordered:
        of_host[rnic.host].append(rnic)
    size = len(of_host[job.hosts[0]])
    if len(of_host) < 2 or size % 2 or any(len(r) != size for r in of_host.values()):
        return None
    row_of = {endpoint: row for row, endpoint in enumerate(matrix.endpoints)}
    rows = np.array([[row_of[r.endpoint_id] for r in rnics] for rnics in of_host.values()])
    rows = rows.reshape(len(of_host), 2, size // 2)
    ends = _ends(matrix, rows)
    if ends is None:
        return None
    likeness = _likeness(matrix, rows)
    path = [ends[0]]
    between = [h for h in range(len(rows)) if h not in ends]
    while between:
        path.append(between.pop(int(np.argmax(likeness[path[-1], between]))))
    path.append(ends[1])
    least = float(min(likeness[path[:-1], path[1:]]))
    if least < MIN_LIKENESS:
        return None
    halves = rows[path].reshape(2 * len(path), -1)
    width = host_width(
        matrix,
        halves[1:-1],
        matrix.usable[halves[1:-1]],
        period_bins=0.0 if period_bins is None else period_bins,
    )
    hosts = list(of_host.values())
    stages = (half for h in path for half in (hosts[h][: size // 2], hosts[h][size // 2 :]))
    return SilentEnds(tuple(map(tuple, stages)), width.width, width.certainty, least)


def _ends(matrix: RateMatrix, rows: Labels) -> tuple[int, int] | None:
    """Return the hosts whose first and whose last half is silent; None unless all others are busy.

    Parameters
    ----------
    rows : (n_hosts, 2, n) rows of the matrix
    """
    sent, got = (_mean(matrix, rates)[rows] for rates in (matrix.tx, matrix.rx))
    lesser, total = np.minimum(sent, got), sent + got
    least, least_total = (SILENT * float(np.quantile(x, 0.9)) for x in (lesser, total))
    usable = matrix.usable[rows]
    busy: Bools = (lesser >= least) | ~usable
    quiet = ((total < least_total) & usable).mean(axis=2) > 0.5
    silent = quiet & (~busy | ~usable).all(axis=2)
    first, last = silent[:, 0], silent[:, 1]
    if int(first.sum()) != 1 or int(last.sum()) != 1 or np.any(first & last):
        return None
    if not busy[~silent].all():
        return None
    return int(np.argmax(first)), int(np.argmax(last))


def _mean(matrix: RateMatrix, rates: Floats) -> Floats:
    """Return the mean rate of each endpoint, (n_endpoints,); 0 without a sample."""
    there = (~matrix.missing).sum(axis=1)
    out: Floats = rates.sum(axis=1) / np.maximum(there, 1)
    return out


def _likeness(matrix: RateMatrix, rows: Labels) -> Floats:
    """Return how the last half of each host and the first half of another correlate.

    What one sends with what the other receives, mean over both ways.

    Parameters
    ----------
    rows : (n_hosts, 2, n) rows of the matrix

    Returns
    -------
    (n_hosts, n_hosts) correlation, -1 to 1; first the host that is earlier in the pipeline
    """
    there: Bools = np.all(~matrix.missing[rows], axis=(0, 1, 2))
    if not there.any():
        there[:] = True
    units = []
    for rates in (matrix.tx, matrix.rx):
        total = rates[rows][..., there].sum(axis=2)
        total = total - total.mean(axis=2, keepdims=True)
        units.append(total / np.maximum(np.linalg.norm(total, axis=2, keepdims=True), 1e-300))
    sent, got = units
    out: Floats = (sent[:, 1] @ got[:, 0].T + got[:, 1] @ sent[:, 0].T) / 2
    return out
