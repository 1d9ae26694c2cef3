"""Separates the jobs behind a set of RNICs, without knowing any job.

All RNICs of a job share its iterations with every delay and pause. In the spectrum over the whole
window this is the fine structure of each line: X(f) = H(f) J(f), where J is the job's and the
RNIC's own part H changes slowly with frequency. So inside narrow bands the spectra of two RNICs of
one job are equal up to a factor, whatever their phases. Those of two jobs are not, even if their
periods agree to some per cent: their phases drift apart.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from schemas.columns.arrays import Bools, Floats
from skeleton_job.job import Job, Rnic
from skeleton_job.rhythm.clusters import Labels
from skeleton_job.series.rates import RateMatrix

# Frequencies per band: over a band, the longest delay inside an iteration must turn the phase
# little.
BAND: Final = 6
# Frequencies below this line are drift, not iterations.
FIRST_LINE: Final = 4
MAX_BANDS: Final = 64
# RNICs less coherent than this belong to different jobs.
MIN_COHERENCE: Final = 0.62
# 1 Mbit/s each way: a port with less traffic takes no part in a job.
BUSY_BYTES_PER_S: Final = 250_000.0
# With more RNICs than this, some represent their host.
MAX_SERIES: Final = 640


def coherence(rates: Floats) -> Floats:
    """Return the coherence of each two series, (n, n), 0 to 1.

    Parameters
    ----------
    rates : (n, n_bins)
    """
    n, bins = rates.shape
    taper = np.sin(np.pi * (np.arange(bins) + 0.5) / bins)
    centred = (rates - rates.mean(axis=1, keepdims=True)) * taper
    spectrum = np.fft.rfft(centred, axis=1)[:, FIRST_LINE:]
    count = spectrum.shape[1] // BAND
    if not count:
        return np.eye(n)
    bands = spectrum[:, : count * BAND].reshape(n, count, BAND)
    power = (np.abs(bands) ** 2).sum(axis=2)
    share = power / np.maximum(power.sum(axis=1, keepdims=True), 1e-300)
    # The bands with the most power, on average over the series.
    chosen = np.argsort(-share.mean(axis=0), kind="stable")[:MAX_BANDS]
    total, weight = np.zeros((n, n)), np.zeros((n, n))
    for band in np.sort(chosen):
        rows = bands[:, band] / np.sqrt(np.maximum(power[:, band], 1e-300))[:, None]
        # Higher lines are weaker, but show phase drift better.
        both = share[:, band] ** 0.25
        common = both[:, None] * both[None]
        total += common * np.abs(rows @ rows.conj().T)
        weight += common
    out: Floats = total / np.maximum(weight, 1e-300)
    return out


def filled_rates(matrix: RateMatrix, rows: Labels) -> Floats:
    """Return tx + rx of RNICs, missing bins replaced by the mean, (n, n_bins)."""
    both = matrix.tx[rows] + matrix.rx[rows]
    there = ~matrix.missing[rows]
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    mean = np.where(there, both, 0.0).sum(axis=1, keepdims=True) / count
    return np.where(there, both, mean)


def coherent_labels(similar: Floats) -> Labels:
    """Return a label for each series; coherent series share a label.

    Parameters
    ----------
    similar : (n, n) as `coherence` returns it
    """
    n = similar.shape[0]
    if n == 1:
        return np.zeros(1, dtype=np.int64)
    apart = np.clip(1.0 - (similar + similar.T) / 2, 0.0, 1.0)
    np.fill_diagonal(apart, 0.0)
    tree = linkage(squareform(apart, checks=False), "average")
    labels: Labels = fcluster(tree, 1.0 - MIN_COHERENCE, "distance").astype(np.int64) - 1
    return labels


def split(job: Job, matrix: RateMatrix) -> list[Job]:
    """Return the jobs that the RNICs of a job seem to belong to, each on two hosts or more.

    The largest comes first and keeps the name; the others get numbers. If nothing is periodic, or
    all are coherent, the job itself is returned. RNICs with hardly any traffic stay only if there
    is one job.

    Parameters
    ----------
    job : RNICs of unknown membership
    matrix : with a row for each
    """
    row_of = {endpoint: row for row, endpoint in enumerate(matrix.endpoints)}
    rows = np.array([row_of[r.endpoint_id] for r in job.ordered], dtype=np.int64)
    busy = matrix.usable[rows] & (matrix.level[rows] >= BUSY_BYTES_PER_S)
    if int(busy.sum()) < 2:
        return [job]
    labels = _labels(job, matrix, rows, busy)
    members: dict[int, list[Rnic]] = {}
    for rnic, label in zip(job.ordered, labels, strict=True):
        if label >= 0:
            members.setdefault(int(label), []).append(rnic)
    found = [m for m in members.values() if len({r.host for r in m}) > 1]
    if len(found) < 2:
        return [job]
    found.sort(key=len, reverse=True)
    per_host: dict[str, int] = {}
    for rnic in job.rnics:
        per_host[rnic.host] = per_host.get(rnic.host, 0) + 1
    gpus = None if job.gpus is None else job.gpus // len(job.hosts)
    return [
        replace(
            job,
            task_id=job.task_id if number == 0 else f"{job.task_id}.{number}",
            rnics=tuple(rnics),
            gpus=None if gpus is None else round(sum(gpus / per_host[r.host] for r in rnics)),
        )
        for number, rnics in enumerate(found)
    ]


def _labels(job: Job, matrix: RateMatrix, rows: Labels, busy: Bools) -> Labels:
    """Return a label for each RNIC, in the job's order; -1 for those without traffic."""
    names = {host: i for i, host in enumerate(job.hosts)}
    hosts = np.array([names[r.host] for r in job.ordered], dtype=np.int64)
    at = np.flatnonzero(busy)
    if at.size > MAX_SERIES:
        first = np.flatnonzero(np.diff(hosts[at], prepend=-1))
        size = np.diff(np.append(first, at.size))
        chosen = np.unique(np.concatenate([at[first], at[first + size // 2]]))
    else:
        chosen = at
    series = filled_rates(matrix, rows[chosen])
    found = coherent_labels(coherence(series))
    if int(found.max()) + 1 > max(2, np.unique(hosts[chosen]).size // 2):
        # Too noisy one by one: compare the hosts' sums.
        places, inside = np.unique(hosts[chosen], return_inverse=True)
        total = np.zeros((places.size, series.shape[1]))
        np.add.at(total, inside, series)
        found = coherent_labels(coherence(total))[inside]
    labels = np.full(rows.size, -1, dtype=np.int64)
    for i in at:
        # An RNIC that was not compared gets the label of the nearest one of its host.
        mine = np.flatnonzero(hosts[chosen] == hosts[i])
        labels[i] = found[mine[int(np.argmin(np.abs(chosen[mine] - i)))]]
    return _whole_hosts(labels, hosts)


def _whole_hosts(labels: Labels, hosts: Labels) -> Labels:
    """Return labels in which no RNIC stands alone: one on a single host gets its host's label."""
    out = labels.copy()
    for label in np.unique(labels[labels >= 0]):
        places = np.unique(hosts[labels == label])
        if places.size == 1:
            others = labels[(hosts == places[0]) & (labels >= 0) & (labels != label)]
            if others.size:
                out[labels == label] = int(np.bincount(others).argmax())
    return out
