"""Which RNICs take part in a job's traffic, and the blocks and cells they form.

A block is the RNICs of one host that look alike (one tensor-parallel group). With several replicas
of a stage in a host, a ring enters the host at one block and leaves it at another. Such blocks look
as different as stages do, since one receives and another sends. But together they carry a
collective's traffic, which goes both ways at a time; that of stages does not. Blocks that belong
together in this way form a cell, which has one place in the layout.
"""

from dataclasses import dataclass
from itertools import chain, compress
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats
from skeleton_job.job import Job, Rnic
from skeleton_job.rhythm.clusters import Labels, block_width, divisors
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.rhythm.lockstep import host_width
from skeleton_job.rhythm.profiles import Profiles, iterations_of
from skeleton_job.rhythm.shares import share_width
from skeleton_job.series.rates import RateMatrix

# Below this correlation of odd and even iterations an RNIC takes no part.
MIN_REPEATABILITY: Final = 0.3
# Above this it certainly does; RNICs in between are doubtful.
SURE_REPEATABILITY: Final = 0.6
# The first and last stages carry half the pipeline's bytes; a tenth of a busy RNIC's is too little.
MIN_PART: Final = 0.1
# Accuracy of hosts' clocks and of the delay of reads; a smaller shift means nothing.
CLOCK_TOLERANCE_NS: Final = 10_000_000
AMPLITUDE_FLOOR: Final = 0.03


@dataclass(frozen=True, slots=True)
class Part:
    """The RNICs that take part, as a table of hosts and rails.

    Attributes
    ----------
    hosts : hosts that take part or of which nothing is known, in the platform's order
    table : RNICs of each host, by rail, equally many for each host; a host with fewer RNICs than
        the others has some of them at several places, see `_seats`
    rows : (n_hosts, n_rails) int64, row in the rate matrix
    known : (n_hosts, n_rails) bool, whether the counters show that it takes part
    places : (n_hosts, n_rails) number of places of that RNIC
    idle : endpoint ids whose counters show that they take no part
    doubtful : share of the busy RNICs of which it is unclear whether they take part
    """

    hosts: tuple[str, ...]
    table: tuple[tuple[Rnic, ...], ...]
    rows: Labels
    known: Bools
    places: Labels
    idle: tuple[str, ...]
    doubtful: float

    @property
    def comparable(self) -> Bools:
        """Which places have a known RNIC of their own, so that it can be told from others."""
        out: Bools = self.known & (self.places == 1)
        return out

    @property
    def unheard(self) -> frozenset[str]:
        """Endpoint ids that are not seen to take part."""
        flat = chain.from_iterable(self.table)
        return frozenset(r.endpoint_id for r in compress(flat, (~self.known).ravel().tolist()))


def find_part(job: Job, matrix: RateMatrix, profiles: Profiles) -> Part:
    """Return which RNICs take part.

    A host takes part if half of its RNICs with usable counters do; its other RNICs then hold
    places, too (one may be down). Rails that are idle on most of these hosts are left out.
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
    kept = {h: [r for r in by_host[h] if r.rail not in unused] for h in hosts}
    rails = sorted({r.rail for rnics in kept.values() for r in rnics})
    hosts = [h for h in hosts if kept[h]]
    table = tuple(_seats(kept[h], rails) for h in hosts)
    rows = np.array([[row_of[r.endpoint_id] for r in rnics] for rnics in table], dtype=np.int64)
    carries = usable & (size >= MIN_PART * busy)
    doubtful = carries & (alike < SURE_REPEATABILITY)
    return Part(
        hosts=tuple(hosts),
        table=table,
        rows=rows,
        known=active[rows] if rows.size else np.zeros(rows.shape, dtype=np.bool_),
        places=np.array([[rnics.count(r) for r in rnics] for rnics in table], dtype=np.int64),
        idle=tuple(idle),
        doubtful=float(doubtful.sum()) / max(1, int(carries.sum())),
    )


def _seats(rnics: list[Rnic], rails: list[int]) -> tuple[Rnic, ...]:
    """Return which RNIC of a host serves each rail's GPU.

    Where hosts have different numbers of RNICs, GPUs share them: neighbours if their number divides
    that of the rails, otherwise a GPU without an RNIC of its own uses the nearest.
    """
    if len(rails) % len(rnics) == 0:
        each = len(rails) // len(rnics)
        return tuple(rnic for rnic in rnics for _ in range(each))
    return tuple(min(rnics, key=lambda r: (abs(r.rail - rail), r.rail)) for rail in rails)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of RNICs that look alike.

    Attributes
    ----------
    members : the RNICs of each block, by rail
    halves : each (n_blocks, 2 * points), tx and rx of odd and of even iterations
    tx, rx : (n_blocks, points), mean iteration of each block's RNICs, bytes per second
    known : (n_blocks,) bool
    hosts : (n_blocks,) index of the host
    rows : (n_blocks, width) rows in the rate matrix
    seen : (n_blocks, width) bool, whether the counters show that an RNIC takes part
    places : (n_blocks, width) number of places of an RNIC, among which its bytes are divided
    replicas : whether blocks of one host may be replicas of each other
    unlike : whether blocks of one host move different numbers of bytes all the time
    width_margin : how clearly RNICs of a host look alike or not in the mean iteration, above 1
    width_certainty : how surely they move the same bytes at the same time or not, 0.5 to 1
    floor : norm of a meaningless difference between features
    """

    members: tuple[tuple[Rnic, ...], ...]
    halves: tuple[Floats, Floats]
    tx: Floats
    rx: Floats
    known: Bools
    hosts: Labels
    rows: Labels
    seen: Bools
    places: Labels
    width: int
    replicas: bool
    unlike: bool
    width_margin: float
    width_certainty: float
    floor: float


def make_blocks(part: Part, matrix: RateMatrix, profiles: Profiles, rhythm: Rhythm) -> Blocks:
    """Return the blocks of the RNICs that take part."""
    n_hosts, n_rails = part.rows.shape
    cube = profiles.both[part.rows]
    narrow = host_width(matrix, part.rows, part.comparable, period_bins=rhythm.period_bins)
    # Sample by sample the host is not one group: its blocks may be replicas as well as stages.
    replicas = narrow.width < n_rails
    width, margin = narrow.width, np.inf
    if not replicas:
        # RNICs that each work alone have no neighbour to be compared with: the mean tells them.
        width, margin = block_width(cube, part.comparable, _rail_noise(profiles, part))
    shares = share_width(matrix, part.rows, part.comparable)
    if shares < width == n_rails:
        width, replicas = shares, True
    rows = part.rows.reshape(-1, width)
    seen = part.known.reshape(-1, width)
    places = part.places.reshape(-1, width)
    weight = seen / np.maximum(seen.sum(axis=1, keepdims=True), 1) / places
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
        places=places,
        width=width,
        replicas=replicas,
        unlike=shares <= width < n_rails,
        width_margin=margin,
        width_certainty=narrow.certainty,
        floor=float(np.hypot(shift, AMPLITUDE_FLOOR * norm)),
    )


def _rail_noise(profiles: Profiles, part: Part) -> float:
    """Return the norm of one RNIC's own error: what the RNICs of its host do not share.

    Jitter of the iterations moves all RNICs of a host together and is no noise between them. So the
    difference of odd and even iterations counts only as far as it departs from the host's mean.
    """
    half = ((profiles.odd - profiles.even) / 2)[part.rows[part.comparable.all(axis=1)]]
    if not half.size:
        return 0.0
    n_rails = half.shape[1]
    if n_rails == 1:
        return float(np.sqrt((half**2).sum(axis=2).mean()))
    own = half - half.mean(axis=1, keepdims=True)
    return float(np.sqrt((own**2).sum(axis=2).mean() * n_rails / (n_rails - 1)))


def one_way(blocks: Blocks, places: Labels) -> float:
    """Return the share of the traffic at places that goes one way at a time, 0 to 1.

    A collective sends what it receives; a pipeline does not. Traffic is summed per place, since a
    ring may enter a host at one NIC and leave it at another. The share is cross-validated between
    odd and even iterations, so that noise does not count.

    Parameters
    ----------
    places : (n_blocks,) place of each block
    """
    going, both = _energies(blocks, places, blocks.known)
    return float(np.sqrt(max(going, 0.0) / max(both, 1e-300)))


def _energies(blocks: Blocks, places: Labels, of: Bools) -> tuple[float, float]:
    """Return the energy of what goes one way at a time, and of all traffic, over places.

    Parameters
    ----------
    places : (n_blocks,) place of each block
    of : (n_blocks,) bool, blocks to look at
    """
    points = blocks.tx.shape[1]
    halves = []
    for half in blocks.halves:
        total = np.zeros((int(places.max(initial=0)) + 1, half.shape[1]))
        np.add.at(total, places[of], half[of])
        halves.append(total)
    net = [half[:, :points] - half[:, points:] for half in halves]
    # Loading of data is steady in the mean: remove it.
    net = [n - n.mean(axis=1, keepdims=True) for n in net]
    both = [half[:, :points] + half[:, points:] for half in halves]
    return float((net[0] * net[1]).sum()), float((both[0] * both[1]).sum())


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
    places = blocks.places[chosen][:, :, None]
    shared = bool((places > 1).any())
    out = []
    for rates in (matrix.tx, matrix.rx):
        mine = rates[rows] / places if shared else rates[rows]
        total = (mine if whole else np.where(there, mine, 0.0)).sum(axis=1)
        pieces = iterations_of(total / np.maximum(count, 1), rhythm)
        out.append(np.where(gone, np.nan, pieces) if some else pieces)
    return out[0], out[1]


# From this one-way share on, blocks are ends of a ring through hosts or of a pipeline: on generated
# jobs it is below 0.2 for rings inside blocks, above 0.5 for rings through hosts.
MIN_ONE_WAY: Final = 0.3
# An end of a ring sends more in all than it receives, or less, by this share; stages do not, since
# a pipeline returns as many bytes as it brings.
MIN_UNEQUAL: Final = 0.1
# Blocks together are balanced if the amplitude of what goes one way falls to this part of what it
# is for each alone: a quarter of the energy may be a pipeline's, to which both ends of a ring add.
BALANCED: Final = 0.5


def find_cells(blocks: Blocks) -> Labels:
    """Return the cell of each block, (n_blocks,), numbered in the platform's order.

    Each block is a cell, unless the hosts hold several replicas and the blocks are ends of rings.
    Then the blocks of a host at every k-th place form a cell, with the greatest k at which the
    traffic is balanced: stages may alternate inside a host.
    """
    n = blocks.known.size
    alone = np.arange(n, dtype=np.int64)
    inside = n // (int(blocks.hosts.max(initial=0)) + 1)
    if inside == 1:
        return alone
    ends = one_way(blocks, alone)
    if ends < MIN_ONE_WAY and unequal(blocks, alone) < MIN_UNEQUAL:
        return alone
    for steps in divisors(inside)[-2::-1]:
        cells: Labels = blocks.hosts * steps + alone % inside % steps
        whole = _whole(blocks, cells)
        apart, together = (_energies(blocks, at, whole)[0] for at in (alone, cells))
        if together <= BALANCED**2 * apart:
            return cells
    return alone


# A ring turns all the time if its usual one-way traffic is this part of the most; a gradient sum
# lasts a small part of an iteration.
LASTING: Final = 0.2
# Share of the hosts through which it must turn the same way.
SAME_WAY: Final = 0.9


def lasting_rings(blocks: Blocks, cells: Labels) -> bool:
    """Return whether rings turn through the hosts all the time, as those of context groups do.

    The same block of each host then receives more than it sends, and another one the opposite, in
    most of the iteration. A ring of gradients does so in a burst only, and popular experts in some
    hosts only. A fully sharded model gathers its parameters all the time, too, but then each RNIC
    is a rank; context groups split what tensor groups in a host share.
    """
    size = cells.size // (int(cells.max()) + 1)
    if size == 1 or blocks.width == 1:
        return False
    net = np.where(blocks.known[:, None], blocks.tx - blocks.rx, 0.0)
    lasting = np.abs(net).sum(axis=0)
    members = np.argsort(cells, kind="stable").reshape(-1, size)
    known = blocks.known[members].all(axis=1)
    if not known.any() or float(np.median(lasting)) < LASTING * float(lasting.max()):
        return False
    surplus = net.mean(axis=1)[members[known]]
    way = np.sign(surplus[:, -1] - surplus[:, 0])
    opposite = surplus[:, -1] * surplus[:, 0] < 0
    return bool(np.abs((way * opposite).mean()) >= SAME_WAY)


def unequal(blocks: Blocks, places: Labels) -> float:
    """Return by what share of their traffic places send more in all than they receive, or less.

    Parameters
    ----------
    places : (n_blocks,) place of each block
    """
    tx, rx = (
        np.bincount(places[blocks.known], rates[blocks.known].mean(axis=1))
        for rates in (blocks.tx, blocks.rx)
    )
    return float(np.linalg.norm(tx - rx) / max(float(np.linalg.norm(tx + rx)), 1e-300))


def of_cells(blocks: Blocks, cells: Labels) -> tuple[Floats, Bools, tuple[Floats, Floats]]:
    """Return each cell's mean iteration, whether it is known, and its odd and even iterations.

    Returns
    -------
    profiles : (n_cells, 2 * points), tx and rx side by side, in the unit of the blocks
    known : (n_cells,) bool; a cell with an unknown block would look like one end of a ring
    halves : as the profiles, of every other iteration
    """
    whole = _whole(blocks, cells)
    count = np.bincount(cells[whole], minlength=int(cells.max()) + 1)

    def mean(rates: Floats) -> Floats:
        total = np.zeros((count.size, rates.shape[1]))
        np.add.at(total, cells[whole], rates[whole])
        out: Floats = total / np.maximum(count, 1)[:, None]
        return out

    odd, even = (mean(half) for half in blocks.halves)
    return mean(np.hstack([blocks.tx, blocks.rx])), count > 0, (odd, even)


def _whole(blocks: Blocks, cells: Labels) -> Bools:
    """Return which blocks belong to cells without an unknown block, (n_blocks,)."""
    out: Bools = ~np.isin(cells, cells[~blocks.known])
    return out
