"""Named sets of scenarios. Seeds of `test` are drawn from a range that development never sees.

smoke     each kind of fault once on a small cluster: minutes, for `make test`
dev       random shapes, faults, pairs of faults, confounders; while developing
test      the same distribution, other seeds; run to report, never to tune
healthy-month
          nothing but confounders: those of a month, pressed into quarters of an hour
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from arena.faults.confounders import CONFOUNDERS
from arena.faults.kinds import KINDS
from arena.scenarios.scenario import Scenario, ScenarioEvent
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape

# Windows of health before a fault: the detectors' look-back begins to fill.
CALM_S: Final = 150
FIRST_SEED: Final = {"smoke": 0, "dev": 1_000, "test": 10_000_000, "healthy-month": 20_000_000}
# Runs of a suite when nobody says otherwise.
DEFAULT_SEEDS: Final = {"smoke": 1, "dev": 4, "test": 4, "healthy-month": 8}
HEALTHY_S: Final = 900
# Share of the fabrics whose replies take the way of the probe back.
SYMMETRIC: Final = 0.6
# No network fault at all: its verdict is of the host layer, and confounders make it too.
NO_FAULT: Final = frozenset({"host_down"})


def scenarios(
    suite: str, seeds: int | None = None, first_seed: int | None = None
) -> Iterator[Scenario]:
    """Yield a suite's scenarios.

    Parameters
    ----------
    seeds
        How often each is drawn anew; None: the suite's default.
    first_seed
        Where the seeds begin; None: where the suite's do.

    Raises
    ------
    KeyError
        If there is no such suite.
    """
    count = DEFAULT_SEEDS[suite] if seeds is None else seeds
    begin = FIRST_SEED[suite] if first_seed is None else first_seed
    for seed in range(begin, begin + count):
        if suite == "healthy-month":
            yield healthy(seed)
            continue
        for number, kind in enumerate(KINDS):
            yield single(suite, kind, seed * 1_000 + number)
        if suite != "smoke":
            for number in range(len(KINDS) // 2):
                yield double(suite, seed * 1_000 + 500 + number)


def single(suite: str, kind: str, seed: int) -> Scenario:
    """Return a scenario with one fault of a kind and, of every second, a confounder."""
    rng = np.random.default_rng([seed, 2])
    fabric, jobs = _cluster(rng, small=suite == "smoke")
    begin = CALM_S + int(rng.integers(0, 30))
    end = begin + int(KINDS[kind].least_s + rng.integers(20, 60))
    return Scenario(
        name=f"{suite}-{kind}-{seed}", seed=seed, seconds=end + 60, fabric=fabric, jobs=jobs,
        targets=int(rng.choice([2, 4, 4, 6])), flows=int(rng.choice([2, 2, 4])),
        symmetric=suite == "smoke" or bool(rng.random() < SYMMETRIC),
        faults=(ScenarioEvent(kind=kind, begin_s=begin, end_s=end),),
        confounders=_confounders(rng, end + 60) if suite != "smoke" and seed % 2 else (),
    )  # fmt: skip


def double(suite: str, seed: int) -> Scenario:
    """Return a scenario with two faults, together or one soon after the other."""
    rng = np.random.default_rng([seed, 3])
    fabric, jobs = _cluster(rng, small=False)
    kinds = [str(k) for k in rng.choice([k for k in KINDS if k not in NO_FAULT], 2, replace=False)]
    begins = [CALM_S + int(rng.integers(0, 30)), CALM_S + int(rng.integers(0, 60))]
    length = max(KINDS[k].least_s for k in kinds) + int(rng.integers(20, 60))
    return Scenario(
        name=f"{suite}-two-{kinds[0]}-{kinds[1]}-{seed}", seed=seed,
        seconds=int(max(begins) + length + 60), fabric=fabric, jobs=jobs,
        targets=4, flows=int(rng.choice([2, 4])), symmetric=bool(rng.random() < SYMMETRIC),
        faults=tuple(
            ScenarioEvent(kind=k, begin_s=b, end_s=b + length)
            for k, b in zip(kinds, begins, strict=True)
        ),
    )  # fmt: skip


def healthy(seed: int) -> Scenario:
    """Return a quarter of an hour without a fault and with four of each confounder."""
    rng = np.random.default_rng([seed, 4])
    fabric, jobs = _cluster(rng, small=False)
    return Scenario(
        name=f"healthy-{seed}", seed=seed, seconds=HEALTHY_S, fabric=fabric, jobs=jobs,
        confounders=tuple(
            c for _ in range(4) for c in _confounders(rng, HEALTHY_S, every=True)
        ),
    )  # fmt: skip


def _cluster(rng: np.random.Generator, *, small: bool) -> tuple[FabricShape, tuple[JobPlan, ...]]:
    hosts = int(rng.choice([8, 12] if small else [12, 16, 24, 32]))
    rails = int(rng.choice([4] if small else [4, 8, 8]))
    fabric = FabricShape(
        hosts=hosts, rails=rails, segment_hosts=int(rng.choice([2, 4])),
        spines=int(rng.choice([2, 4])), tiers=int(rng.choice([2, 2, 3])),
        tors=1 if small else int(rng.choice([1, 1, 2])),
        pod_segments=2, plane_cores=2,
    )  # fmt: skip
    if small or rng.random() < 0.5:
        return fabric, (JobPlan(task_id="job-a", first_host=0, hosts=hosts),)
    half = hosts // 2
    return fabric, (
        JobPlan(task_id="job-a", first_host=0, hosts=half, askew_s=float(rng.uniform(0, 30))),
        JobPlan(task_id="job-b", first_host=half, hosts=hosts - half, begin_s=10.0),
    )


def _confounders(
    rng: np.random.Generator, seconds: int, *, every: bool = False
) -> tuple[ScenarioEvent, ...]:
    kinds = list(CONFOUNDERS) if every else [str(rng.choice(list(CONFOUNDERS)))]
    found = []
    for kind in kinds:
        begin = float(rng.uniform(40, seconds - 60))
        found.append(
            ScenarioEvent(kind=kind, begin_s=begin, end_s=begin + float(rng.uniform(10, 50)))
        )
    return tuple(found)
