"""Scores on the captures of `arena.sealed_jobs`, whose author has not read the inference.

The figures are those of `arena.skeletons.scoring`, as far as counters can decide them: a degree
that no counter shows counts as right if it is the one that they show, and so do the stages of a
pipeline that looks the same from both ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from arena.sealed_jobs.draw import FAMILIES, SealedCapture, draw
from arena.sealed_jobs.truth import JobTruth, Pair
from arena.skeletons.scoring import JobScore, assign_tasks, coverage, list_of
from arena.workload.truth import PairOf, Place, ordered
from skeleton_job.offline.meta import parse_meta
from skeleton_job.offline.table import infer_table

# Nobody has looked at a capture of these seeds. Once one was looked at, the next ones count: those
# from 1,000 to 1,019 were on 2026-11-25, to 1,029 on 2026-11-26, and to 1,079 on 2026-11-28.
FIRST_SEED: Final = 1_080
LONG_LIST: Final = 10.0
# Captures of seeds below 1,000 are for developing.
DEV_SEED: Final = 100
MAX_DEV_SEEDS: Final = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedScore:
    """The scores of a capture's jobs."""

    name: str
    family: str
    jobs: tuple[JobScore, ...]


def measure(seed: int, family: str) -> SealedScore:
    """Draw a capture, infer its skeletons and score them."""
    capture = draw(seed, family)
    document = infer_table(capture.table, parse_meta(capture.meta))
    return SealedScore(name=capture.name, family=family, jobs=tuple(score(document, capture)))


def measure_dev(seeds: int, *, first: int = DEV_SEED) -> list[list[JobScore]]:
    """Return the scores of the jobs of each capture for developing, of so many seeds.

    Parameters
    ----------
    first : the first seed

    Raises
    ------
    ValueError
        If there are not so many.
    """
    end = DEV_SEED + MAX_DEV_SEEDS
    if not DEV_SEED <= first <= first + seeds <= end:
        raise ValueError(f"sealed seeds {first} to {first + seeds - 1}: {DEV_SEED} to {end - 1}")
    chosen = range(first, first + seeds)
    return [list(measure(seed, family).jobs) for seed in chosen for family in FAMILIES]


def draws(runs: int) -> list[tuple[int, str]]:
    """Return the seed and family of so many captures, the families in turns."""
    rounds, rest = divmod(runs, len(FAMILIES))
    turns = [len(FAMILIES)] * rounds + [rest]
    return [
        (FIRST_SEED + number, family)
        for number, count in enumerate(turns)
        for family in FAMILIES[:count]
    ]


def score(document: Mapping[str, Any], capture: SealedCapture) -> list[JobScore]:
    """Return the scores of all jobs that exchange bytes over the network."""
    listed = list_of(document)
    rnics = [frozenset(map(_place, job.rnics)) for job in capture.jobs]
    task_of, _ = assign_tasks(document, rnics)
    return [
        _score_job(task_of.get(number), listed, job, rnics[number])
        for number, job in enumerate(capture.jobs)
        if job.pairs
    ]


def brier(scores: Sequence[SealedScore]) -> tuple[float, float]:
    """Return the Brier score of the confidence, and that of always saying the mean.

    Right is what has the right data- and pipeline-parallel degrees (Brier 1950).
    """
    jobs = [job for one in scores for job in one.jobs]
    right = np.array([job.figures["dp+pp"] for job in jobs])
    said = np.array([job.confidence for job in jobs])
    return float(((said - right) ** 2).mean()), float(((right.mean() - right) ** 2).mean())


def _score_job(
    task: Mapping[str, Any] | None,
    listed: frozenset[PairOf],
    job: JobTruth,
    rnics: frozenset[Place],
) -> JobScore:
    pairs = {_pair(pair): kinds for pair, kinds in job.kinds.items()}
    groups = {
        # A pipeline's true peers are those with which an endpoint exchanges bytes.
        "pp": [],
        **{kind: [frozenset(map(_place, g)) for g in sets] for kind, sets in job.groups.items()},
    }
    covered = coverage(listed, pairs, groups)
    mine = [pair for pair in listed if pair[0] in rnics or pair[1] in rnics]
    figures = {
        "coverage": sum(covered.values()) / len(covered),
        "length": len(mine) / len(pairs),
        "dp": float(task is not None and task["dp"] in {job.dp, job.dp_seen}),
        "pp": float(task is not None and task["pp"] == job.pp),
    }
    figures["dp+pp"] = figures["dp"] * figures["pp"]
    if job.pp > 1:
        found = [] if task is None else [frozenset(map(tuple, s)) for s in task["stages"]]
        true = [frozenset(map(_place, stage)) for stage in job.stages]
        either = "direction" in job.unobservable and found == true[::-1]
        figures["order"] = float(found == true or either)
    if task is None:
        return JobScore(figures, 0.0)
    return JobScore(figures, float(task["confidence"]), task.get("signs", {}))


def _place(name: str) -> Place:
    host, _, rail = name.rpartition("/r")
    return host, int(rail)


def _pair(pair: Pair) -> PairOf:
    return ordered(_place(pair[0]), _place(pair[1]))
