"""Random captures by seed; `dev` for developing, `test` for measuring.

A seed stands for one capture, whatever the suite. Seeds of the test suite are never
looked at while developing. Captures of `small` are of jobs as small as those of the labs, which
the others lack: the confidence is fitted to them, too.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from arena.workload.capture import CaptureSpec
from arena.workload.spec import SPREAD_TICK, Dirt, JobSpec

FIRST_SEED: Final = {"dev": 0, "small": 10_000, "test": 1_000_000}
MAX_SEEDS: Final = {"dev": 1000, "small": 1000, "test": 1_000_000}
FAMILIES: Final = (
    "dense", "dense", "dense", "narrow", "experts", "context", "sharded", "few-nics",
    "rails", "several", "shared", "idle",
)  # fmt: skip
HOSTS: Final = (4, 4, 8, 8, 8, 16, 16, 32)
SMALL_HOSTS: Final = (2, 3, 4, 4, 4, 6, 6, 8)


@dataclass(frozen=True)
class Case:
    """One capture of a suite.

    `axes`: by which the table splits the scores.
    """

    name: str
    seed: int
    spec: CaptureSpec
    axes: dict[str, str]


def cases(suite: str, count: int, *, skip: int = 0) -> list[Case]:
    """Return the first captures of a suite, or those after some that are skipped.

    Raises
    ------
    ValueError
        If there is no such suite, or it has not so many.
    """
    if suite not in FIRST_SEED:
        raise ValueError(f"suite={suite!r}: one of {', '.join(FIRST_SEED)}")
    if not 1 <= count <= MAX_SEEDS[suite] - skip:
        raise ValueError(f"seeds={count}: 1 to {MAX_SEEDS[suite] - skip}")
    return [case(FIRST_SEED[suite] + skip + i) for i in range(count)]


def case(seed: int) -> Case:
    """Return the capture of a seed."""
    rng = np.random.default_rng([seed, 7])

    def one(*options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    small = 0 <= seed - FIRST_SEED["small"] < MAX_SEEDS["small"]
    family = "small" if small else FAMILIES[seed % len(FAMILIES)]
    hz = 10.0 if small else one(10.0, 10.0, 10.0, 1.0)
    dirt, dirt_name = _dirt(one)
    if small:
        # A running job's first window is half a minute long.
        seconds = one(30.0, 60.0, 120.0, 300.0)
    else:
        seconds = one(120.0, 200.0, 300.0) if hz > 1 else 300.0
    jobs, options = _jobs(family, rng, one, hz)
    spec = CaptureSpec(
        jobs=tuple(jobs),
        idle_hosts=one(0, 0, 2) if jobs else 6,
        seconds=seconds,
        hz=hz,
        dirt=dirt,
        index=one("true", "true", "none", "lies"),
        seed=seed,
        **options,
    )
    schedules = {j.schedule if j.pp > 1 else "no pipeline" for j in jobs}
    gpus = sum(j.gpus for j in jobs)
    return Case(
        name=f"{family}-{seed}",
        seed=seed,
        spec=spec,
        axes={
            "family": family,
            "schedule": schedules.pop() if len(schedules) == 1 else "mixed",
            "size": "none" if not gpus else "to 64" if gpus <= 64 else "to 256",
            "rate": f"{hz:g} Hz {'same' if dirt.tick != SPREAD_TICK else 'spread'}",
            "dirt": dirt_name,
            "index": spec.index,
        },
    )


def _dirt(one: Any) -> tuple[Dirt, str]:
    name = one("clean", "clean", "dirty", "stale", "spread")
    base = Dirt(clock_s=one(0.002, 0.01, 0.03), noise=one(0.002, 0.01, 0.03))
    if name == "dirty":
        return replace(base, lost=one(0.01, 0.05), hole_s=one(0.0, 15.0), resets=1,
                       bits=one(34, 64), noise=one(0.01, 0.1)), name  # fmt: skip
    if name == "stale":
        return replace(base, stale=one(0.1, 0.33)), name
    if name == "spread":
        return replace(base, tick=SPREAD_TICK), name
    return base, name


def _jobs(
    family: str, rng: np.random.Generator, one: Any, hz: float
) -> tuple[list[JobSpec], dict[str, Any]]:
    if family == "idle":
        return [], {"tasks_known": False}
    if family == "small":
        return [_small_job(one)], {"tasks_known": True}
    if family not in {"several", "shared"}:
        known = one(True, True, True, False)
        return [_job(family, "job0", one, hz)], {"tasks_known": known}
    if family == "shared":
        # Half of each host's NICs for either job.
        made = [
            replace(_job("dense", f"job{i}", one, hz, hosts=8), tp=4, gpus_per_host=4,
                    nics_per_host=4)
            for i in range(2)
        ]  # fmt: skip
        return made, {"share_hosts": True, "tasks_known": one(True, False)}
    period = float(one(3.0, 6.0, 10.0) if hz > 1 else one(10.0, 16.0))
    several = []
    for i in range(one(2, 3, 4)):
        kind = one("dense", "dense", "narrow", "experts", "sharded")
        made_one = _job(kind, f"job{i}", one, hz, hosts=one(4, 8, 8))
        # Jobs of one kind of model: periods alike to some per cent, or quite different.
        factor = one(1.0, 1.01, 1.0, 0.97, 0.6, 1.7)
        several.append(
            replace(made_one, period_s=period * factor, begins_s=float(rng.uniform(0, 20)))
        )
    return several, {"tasks_known": one(False, False, True)}


def _job(family: str, name: str, one: Any, hz: float, hosts: int | None = None) -> JobSpec:
    n = hosts or one(*HOSTS)
    pp = one(1, 2, 4) if n < 16 else one(1, 2, 4, 8)
    schedule = one("1f1b", "1f1b", "interleaved", "zero-bubble")
    common: dict[str, Any] = {
        "name": name,
        "schedule": schedule,
        "microbatches": one(8, 16, 32) if pp > 1 else one(4, 8, 16),
        "order": one("tp-cp-dp-pp", "tp-cp-dp-pp", "tp-cp-pp-dp"),
        "collective": one("ring", "ring", "ring", "tree", "double-tree"),
        "sharding": one("none", "none", "zero1"),
        "pxn": one(True, True, False),
        "period_s": one(2.0, 4.0, 8.0, 15.0) if hz > 1 else one(8.0, 15.0, 20.0),
        "jitter": one(0.01, 0.03, 0.06),
        "wander": one(0.002, 0.01, 0.03),
        "straggler": one(0.0, 0.0, 0.1),
        "overlap": one(0.0, 0.0, 0.8),
        "checkpoint_every": one(0, 0, 13),
        "evaluation_every": one(0, 0, 0, 11),
        "storage_bytes_per_s": one(0.0, 5e6, 3e7),
        "pipeline_bytes": one(20_000_000, 60_000_000, 150_000_000),
        "gradient_bytes": one(700_000_000, 2_000_000_000, 6_000_000_000),
        "shuffled_ring": one(False, False, False, True),
    }
    if family == "experts":
        pp = min(pp, n // 4)
        dp = n // pp
        own = {"dp": dp, "ep": one(*[e for e in (2, 4, 8) if e <= dp])}
    elif family == "context":
        pp = min(pp, n // 4)
        cp = one(2, 2, 4)
        own = {"dp": n // pp // cp, "cp": cp}
    elif family == "narrow":
        tp = one(4, 4, 2)
        own = {"dp": n * 8 // tp // pp, "tp": tp}
    elif family == "sharded":
        pp, tp = 1, one(8, 8, 1)
        own = {"dp": n * 8 // tp, "tp": tp, "sharding": "fsdp"}
    elif family == "rails":
        # Pipelines and gradient sums that change rails: narrow groups, no PXN.
        pp = max(2, pp)
        own = {"dp": 2 * n // pp, "tp": 4, "pxn": False}
    else:
        own = {"dp": n // pp, "nics_per_host": 4 if family == "few-nics" else 8}
    return JobSpec(**{**common, **own, "pp": pp})


def _small_job(one: Any) -> JobSpec:
    """Return a job on 2 to 8 hosts, each a tensor group of 2 to 8 RNICs.

    It has any number of stages that divides the hosts.
    """
    n, nics = one(*SMALL_HOSTS), one(2, 4, 4, 8)
    pp = one(*(p for p in range(1, n + 1) if n % p == 0))
    schedule = one("1f1b", "1f1b", "interleaved", "zero-bubble")
    return JobSpec(
        name="job0",
        dp=n // pp,
        pp=pp,
        tp=nics,
        gpus_per_host=nics,
        nics_per_host=nics,
        schedule=schedule,
        microbatches=pp * one(1, 2, 4) if pp > 1 else one(2, 4, 8),
        order=one("tp-cp-dp-pp", "tp-cp-pp-dp"),
        collective=one("ring", "ring", "tree"),
        sharding=one("none", "none", "zero1"),
        pxn=one(True, False),
        period_s=one(1.0, 2.0, 2.0, 4.0),
        jitter=one(0.0, 0.01, 0.03, 0.06),
        wander=one(0.0, 0.002, 0.01),
        pipeline_bytes=one(20_000_000, 60_000_000, 150_000_000),
        gradient_bytes=one(700_000_000, 2_000_000_000, 6_000_000_000),
    )
