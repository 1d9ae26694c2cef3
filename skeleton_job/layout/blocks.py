"""Which RNICs take part in a job's traffic, and the blocks that carry its positions.

Blocks of a host that one ring goes through: together they stand for one place in a layout.

With several replicas of a stage in a host, a ring enters the host at one block and leaves it at
another. Such blocks look as different as stages do: one receives, another sends. But what they
send and receive adds up to a collective's traffic, which goes both ways at a time; that of
stages does not.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats
from skeleton_job.job import Job, Rnic
from skeleton_job.rhythm.clusters import block_width, divisors
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.rhythm.lockstep import host_width
from skeleton_job.rhythm.profiles import Profiles, iterations_of
from skeleton_job.series.rates import RateMatrix

Labels = NDArray[np.int64]

# An RNIC whose odd and even iterations correlate less than this has no part in them.
MIN_REPEATABILITY: Final = 0.3
# … and above this it surely has; the share of RNICs between is a doubt.
SURE_REPEATABILITY: Final = 0.6
# End stages carry half the pipeline's bytes; a tenth of a busy RNIC's is no part.
MIN_PART: Final = 0.1
# Hosts' clocks, and the reads after a tick, are alike to this; a shift below it means nothing.
CLOCK_TOLERANCE_NS: Final = 10_000_000
AMPLITUDE_FLOOR: Final = 0.03


class InconsistentError(ValueError):
    """The job's traffic has no shape that a skeleton could have."""


@dataclass(frozen=True, slots=True)
class Part:
    """The RNICs that take part, as a table of hosts and rails.

    Attributes
    ----------
    hosts : hosts that take part or of which nothing is known, in the platform's order
    table : RNICs of each host, by rail; each host has as many
    rows : (n_hosts, n_rails) row in the rate matrix
    known : (n_hosts, n_rails) whether the counters show its part
    idle : endpoint ids whose counters show that they take no part
    doubtful : share of the RNICs with traffic of which it is not sure whether they take part
    """

    hosts: tuple[str, ...]
    table: tuple[tuple[Rnic, ...], ...]
    rows: Labels
    known: Bools
    idle: tuple[str, ...]
    doubtful: float


def find_part(job: Job, matrix: RateMatrix, profiles: Profiles) -> Part:
    """Return who takes part.

    A host does if half of its RNICs that can be seen do; its other RNICs then
    hold their places too (one may be down). Rails that are idle on most of these
    hosts are left out.

    Raises
    ------
    InconsistentError
        If hosts that take part have different rails.
    """
    size = np.linalg.norm(profiles.both, axis=1)
    alike = profiles.repeatability()
    usable = matrix.usable
    beats = usable & (alike >= MIN_REPEATABILITY)
    busy = np.quantile(size[beats], 0.9) if beats.any() else np.inf
    active = beats & (size >= MIN_PART * busy)
    row_of = {endpoint: row for row, endpoint in enumerate(matrix.endpoints)}
    by_host: dict[str, list[Rnic]] = {host: [] for host in job.hosts}
    for rnic in job.ordered:
        by_host[rnic.host].append(rnic)
    hosts, idle = [], []
    for host, rnics in by_host.items():
        rows = np.array([row_of[r.endpoint_id] for r in rnics])
        seen = int(usable[rows].sum())
        if seen and 2 * int(active[rows].sum()) < seen:
            idle += [r.endpoint_id for r in rnics]
        else:
            hosts.append(host)
    share: dict[int, list[float]] = {}
    for host in hosts:
        for rnic in by_host[host]:
            row = row_of[rnic.endpoint_id]
            if usable[row]:
                share.setdefault(rnic.rail, []).append(float(active[row]))
    unused = {rail for rail, seen_on in share.items() if 2 * sum(seen_on) < len(seen_on)}
    idle += [r.endpoint_id for h in hosts for r in by_host[h] if r.rail in unused]
    table = tuple(tuple(r for r in by_host[h] if r.rail not in unused) for h in hosts)
    if len({tuple(sorted(r.rail for r in rnics)) for rnics in table}) > 1:
        raise InconsistentError("hosts of the job have RNICs on different rails")
    rows = np.array([[row_of[r.endpoint_id] for r in rnics] for rnics in table], dtype=np.int64)
    carries = usable & (size >= MIN_PART * busy)
    doubtful = carries & (alike < SURE_REPEATABILITY)
    return Part(
        hosts=tuple(hosts),
        table=table,
        rows=rows,
        known=active[rows] if rows.size else np.zeros(rows.shape, dtype=np.bool_),
        idle=tuple(idle),
        doubtful=float(doubtful.sum()) / max(1, int(carries.sum())),
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of RNICs that look alike.

    Attributes
    ----------
    members : the RNICs of each block, by rail
    halves : each (n_blocks, 2 * points), tx and rx of odd and of even iterations
    tx, rx : (n_blocks, points), mean iteration of each block's RNICs
    known : (n_blocks,)
    hosts : (n_blocks,) index of the host
    rows : (n_blocks, width) rows in the rate matrix
    seen : (n_blocks, width) whether the counters show an RNIC's part
    replicas : whether blocks of one host may be replicas of each other
    width_margin : how clearly the width was chosen, above 1
    floor : norm of a difference between features that means nothing
    """

    members: tuple[tuple[Rnic, ...], ...]
    halves: tuple[Floats, Floats]
    tx: Floats
    rx: Floats
    known: Bools
    hosts: Labels
    rows: Labels
    seen: Bools
    width: int
    replicas: bool
    width_margin: float
    floor: float


def make_blocks(part: Part, matrix: RateMatrix, profiles: Profiles, rhythm: Rhythm) -> Blocks:
    """Return the blocks of the RNICs that take part."""
    n_hosts, n_rails = part.rows.shape
    cube = profiles.both[part.rows]
    width, margin = block_width(cube, part.known, _rail_noise(profiles, part))
    narrow = host_width(matrix, part.rows, part.known) if n_rails > 2 else n_rails
    # Sample by sample a host is not of one group: its blocks may be replicas as well as stages.
    replicas = narrow < n_rails
    width = min(width, narrow)
    rows = part.rows.reshape(-1, width)
    seen = part.known.reshape(-1, width)
    weight = seen / np.maximum(seen.sum(axis=1, keepdims=True), 1)
    mean = np.einsum("bw,bwf->bf", weight, profiles.both[rows])
    known: Bools = np.any(seen, axis=1)
    points = mean.shape[1] // 2
    norm = float(np.linalg.norm(mean[known], axis=1).mean())
    point_ns = rhythm.period_bins * matrix.bin_ns / points
    slope = np.hstack(
        [np.gradient(mean[:, :points], axis=1), np.gradient(mean[:, points:], axis=1)]
    )
    shift = float(np.linalg.norm(slope[known], axis=1).mean()) * CLOCK_TOLERANCE_NS / point_ns
    flat = [rnic for rnics in part.table for rnic in rnics]
    return Blocks(
        members=tuple(tuple(flat[i : i + width]) for i in range(0, len(flat), width)),
        halves=(
            np.einsum("bw,bwf->bf", weight, profiles.odd[rows]),
            np.einsum("bw,bwf->bf", weight, profiles.even[rows]),
        ),
        tx=mean[:, :points],
        rx=mean[:, points:],
        known=known,
        hosts=np.repeat(np.arange(n_hosts), n_rails // width),
        rows=rows,
        seen=seen,
        width=width,
        replicas=replicas,
        width_margin=margin,
        floor=float(np.hypot(shift, AMPLITUDE_FLOOR * norm)),
    )


def _rail_noise(profiles: Profiles, part: Part) -> float:
    """Return the norm of one RNIC's own error: what its host's RNICs do not share.

    Jitter of the iterations moves all RNICs of a host together and is no noise
    between them; so the difference of odd and even iterations counts only as far
    as it departs from the host's mean.
    """
    half = ((profiles.odd - profiles.even) / 2)[part.rows[part.known.all(axis=1)]]
    if not half.size:
        return 0.0
    n_rails = half.shape[1]
    if n_rails == 1:
        return float(np.sqrt((half**2).sum(axis=2).mean()))
    own = half - half.mean(axis=1, keepdims=True)
    return float(np.sqrt((own**2).sum(axis=2).mean() * n_rails / (n_rails - 1)))


def one_way(blocks: Blocks, places: Labels, chosen: Bools | None = None) -> float:
    """Return which share of the traffic at places goes one way at a time, 0..1.

    A collective sends what it receives; a pipeline does not. Summed over a place: over a host, a
    ring may enter it at another NIC than it leaves. Cross-validated between odd and even
    iterations, so that noise does not count.

    Parameters
    ----------
    places : (n_blocks,) where each block stands
    chosen : (n_blocks,) blocks that are looked at; None: all that are known
    """
    of = blocks.known if chosen is None else chosen & blocks.known
    points = blocks.tx.shape[1]
    halves = []
    for half in blocks.halves:
        total = np.zeros((int(places.max(initial=0)) + 1, half.shape[1]))
        np.add.at(total, places[of], half[of])
        halves.append(total)
    net = [half[:, :points] - half[:, points:] for half in halves]
    # Loading of data comes at any time: steady in the mean.
    net = [n - n.mean(axis=1, keepdims=True) for n in net]
    both = [half[:, :points] + half[:, points:] for half in halves]
    going = float((net[0] * net[1]).sum())
    return float(np.sqrt(max(going, 0.0) / max(float((both[0] * both[1]).sum()), 1e-300)))


def block_iterations(
    blocks: Blocks, chosen: Labels, matrix: RateMatrix, rhythm: Rhythm
) -> tuple[Floats, Floats]:
    """Return tx and rx of every iteration of the chosen blocks, NaN where samples are missing.

    Each (n_chosen, n_iterations, points), the mean over a block's RNICs.
    """
    rows = blocks.rows[chosen]
    there = ~matrix.missing[rows] & blocks.seen[chosen][:, :, None]
    count = there.sum(axis=1)
    some = bool((count == 0).any())
    gone = iterations_of((count == 0).astype(np.float64), rhythm) > 1e-9 if some else False
    whole = there.all()
    out = []
    for rates in (matrix.tx, matrix.rx):
        total = (rates[rows] if whole else np.where(there, rates[rows], 0.0)).sum(axis=1)
        pieces = iterations_of(total / np.maximum(count, 1), rhythm)
        out.append(np.where(gone, np.nan, pieces) if some else pieces)
    return out[0], out[1]


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
