"""How near an inferred skeleton is to the true one: pure functions of both.

*Pair recall*: the share of the pairs that exchange bytes over the network which the ping list
holds.

*Coverage*: over all (endpoint, kind of parallelism) with traffic, the share for which the list
holds a true peer: another host's endpoint of the same group of that kind. A pipeline group's true
peers are only those with which the endpoint exchanges bytes: neighbours.

*Found* is the figure that the bar is about: pair recall, but coverage for those kinds whose inner
order leaves no trace in counters and cannot be known otherwise: gradient, context and expert
groups where the platform's index is missing or lies, or where the rings take the hosts in an
order of their own. It is the share of all such items, pairs and (endpoint, kind)s.

*Length*: pairs of the list that touch the job, over its true pairs.

A job that the inference does not name has no right degrees and no stages; its pairs still count,
since the list may hold them. Jobs without pairs over the network are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from arena.workload.truth import CaptureTruth, JobTruth, PairOf, Place, ordered

RESAMPLES: Final = 2000
LEVEL: Final = 0.95
DEGREES: Final = ("dp", "pp", "tp", "ep", "cp")
FIGURES: Final = (
    "found", "pairs", "coverage", "length", "dp", "pp", "dp+pp", "order", "tp", "ep", "cp",
)  # fmt: skip


@dataclass(frozen=True)
class JobScore:
    """One job's figures by name, and what the inference said of itself.

    A figure that is not defined (the order of one stage) is absent; `signs` is empty where
    nothing was inferred.
    """

    figures: Mapping[str, float]
    confidence: float
    signs: Mapping[str, float] = field(default_factory=dict)


def list_of(document: Mapping[str, Any]) -> frozenset[PairOf]:
    """Return the pairs of an inferred document."""
    return frozenset(ordered((a, i), (b, j)) for a, i, b, j in document["ping_list"])


def score_capture(
    document: Mapping[str, Any], truth: CaptureTruth, *, index_true: bool
) -> tuple[list[JobScore], int]:
    """Return the scores of a capture's jobs, and how many tasks were claimed of idle RNICs."""
    listed = list_of(document)
    task_of, seats = assign_tasks(document, [frozenset(job.rnics) for job in truth.jobs])
    scores = [
        score_job(task_of.get(i), listed, job, index_true=index_true)
        for i, job in enumerate(truth.jobs)
        if job.pairs
    ]
    return scores, sum(1 for s in seats if s and s <= truth.idle)


def assign_tasks(
    document: Mapping[str, Any], jobs: Sequence[frozenset[Place]]
) -> tuple[dict[int, Mapping[str, Any]], list[frozenset[Place]]]:
    """Return the inferred task of each true job, by the RNICs that they share; all tasks' RNICs."""
    claimed = [t for t in document["tasks"] if t["dp"] is not None]
    seats = [frozenset((h, r) for h, r in t["rnics"]) for t in claimed]
    overlap = np.array([[len(s & j) / max(1, len(s | j)) for s in seats] for j in jobs])
    overlap = overlap.reshape(len(jobs), len(seats))
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    assigned = zip(rows.tolist(), columns.tolist(), strict=True)
    return {r: claimed[c] for r, c in assigned if overlap[r, c] > 0}, seats


def score_job(
    task: Mapping[str, Any] | None,
    listed: frozenset[PairOf],
    job: JobTruth,
    *,
    index_true: bool,
) -> JobScore:
    """Return the figures of one job; `task` None: it was not named."""
    rnics = set(job.rnics)
    mine = [p for p in listed if p[0] in rnics or p[1] in rnics]
    hidden = not index_true or job.spec.shuffled_ring
    covered = coverage(listed, job.pairs, job.groups)
    by_order = {p for p, kinds in job.pairs.items() if not hidden or "pp" in kinds}
    hits = len(by_order & listed)
    items = len(by_order)
    if hidden:
        untraced = [ok for (_, kind), ok in covered.items() if kind != "pp"]
        hits, items = hits + sum(untraced), items + len(untraced)
    figures = {
        "found": hits / items,
        "pairs": len(job.pairs.keys() & listed) / len(job.pairs),
        "coverage": sum(covered.values()) / len(covered),
        "length": len(mine) / len(job.pairs),
    }
    for name in DEGREES:
        figures[name] = float(task is not None and task[name] == getattr(job.spec, name))
    figures["dp+pp"] = figures["dp"] * figures["pp"]
    if job.spec.pp > 1:
        stages = [frozenset(map(tuple, s)) for s in task["stages"]] if task is not None else []
        figures["order"] = float(stages == job.stages)
    confidence = float(task["confidence"]) if task is not None else 0.0
    return JobScore(figures, confidence, {} if task is None else task.get("signs", {}))


def coverage(
    listed: frozenset[PairOf],
    pairs: Mapping[PairOf, frozenset[str]],
    groups_of: Mapping[str, Sequence[frozenset[Place]]],
) -> dict[tuple[Place, str], bool]:
    """Return, for each endpoint and kind with traffic, whether the list holds a true peer."""
    wanted = {(p, kind): False for pair, kinds in pairs.items() for kind in kinds for p in pair}
    member: dict[str, dict[Place, set[int]]] = {}
    for kind, groups in groups_of.items():
        of = member.setdefault(kind, {})
        for number, group in enumerate(groups):
            for place in group:
                of.setdefault(place, set()).add(number)
    for pair in listed:
        a, b = pair
        real = pairs.get(pair, frozenset())
        for kind, of in member.items():
            same = kind in real or (
                kind != "pp" and bool(of.get(a, set()) & of.get(b, set())) and a[0] != b[0]
            )
            if same:
                for p in pair:
                    if (p, kind) in wanted:
                        wanted[p, kind] = True
    return wanted


@dataclass(frozen=True)
class Mean:
    """A mean with its bootstrap interval over captures; all None without values."""

    value: float | None
    low: float | None
    high: float | None
    count: int


def mean(values: Sequence[Sequence[float]], *, seed: int = 0) -> Mean:
    """Return the mean over all jobs; captures, each with its jobs, are drawn again as a whole."""
    full = [list(v) for v in values if v]
    if not full:
        return Mean(None, None, None, 0)
    sums, counts = np.array([sum(v) for v in full]), np.array([len(v) for v in full])
    draws = np.random.default_rng(seed).integers(0, len(full), (RESAMPLES, len(full)))
    means: NDArray[np.float64] = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Mean(float(sums.sum() / counts.sum()), float(low), float(high), int(counts.sum()))
