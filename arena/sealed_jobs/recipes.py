"""Jobs by drawing: hosts with names, seats for ranks, schedules and habits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from arena.sealed_jobs import schedules
from arena.sealed_jobs.collectives import all_to_all, pattern
from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Layout, Seat
from arena.sealed_jobs.pipelined import Habits, PipelinedJob, create_job
from arena.sealed_jobs.runs import Simulated, typical_iteration_s
from arena.sealed_jobs.schedules import Schedule
from arena.sealed_jobs.sharded import ShardedJob, create_sharded_job
from arena.sealed_jobs.workload import Frame, draw_workload

MICROS: Final = (2, 4, 8, 12, 16, 24, 32, 48, 64)
MAX_STEPS: Final = 3000
ITERATION_S: Final = (0.8, 30.0)
# Least duration of an iteration at one tick a second.
SLOW_TICKS_S: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What is common to the jobs of a capture.

    Attributes
    ----------
    seconds
        Least and greatest duration of an iteration.
    """

    hz: float
    link_gbps: float
    seconds: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job with its place in the fleet."""

    task_id: str
    layout: Layout
    job: PipelinedJob | ShardedJob

    @property
    def habits(self) -> Habits:
        """How the job communicates."""
        return self.job.habits if isinstance(self.job, PipelinedJob) else Habits()

    @property
    def stage_shift_s(self) -> float:
        """Time by which a stage's backward follows the next stage's; 0 without pipeline."""
        if not isinstance(self.job, PipelinedJob) or self.layout.degrees.pp == 1:
            return 0.0
        work = self.job.workload
        ratio = work.backward_ratio - self.job.schedule.split
        return float(np.median(work.forward_s)) * ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Hosts and jobs of a capture."""

    fleet: Fleet
    jobs: tuple[PlacedJob, ...]
    pace: Pace


def draw_pace(rng: np.random.Generator, *, slowest_s: float = ITERATION_S[1]) -> Pace:
    """Draw rate of ticks, line rate and the range of an iteration's duration."""
    hz = 1.0 if rng.random() < 0.12 else 10.0
    least_s = ITERATION_S[0] if hz > 1 else SLOW_TICKS_S
    middle_s = float(np.exp(rng.uniform(np.log(least_s * 1.2), np.log(slowest_s * 0.85))))
    return Pace(
        hz=hz,
        link_gbps=float(rng.choice([100.0, 200.0, 200.0, 400.0, 400.0])),
        seconds=(max(least_s, middle_s / 1.25), min(slowest_s, middle_s * 1.25)),
    )


def host_names(rng: np.random.Generator, count: int) -> list[str]:
    """Draw names for hosts, in ascending order of their numbers."""
    numbers = int(rng.integers(1, 900)) + np.cumsum(rng.choice([1, 1, 1, 2, 5], count))
    style = int(rng.integers(5))
    racks = int(rng.integers(1, 60))
    return [
        (
            f"node-{n:04d}",
            f"gpu{n}",
            f"10.{racks}.{n // 250}.{n % 250 + 1}",
            f"rack{racks + n // 8}-u{n % 8}",
            f"{n:05d}",
        )[style]
        for n in numbers.tolist()
    ]


def draw_hosts(
    rng: np.random.Generator, count: int, *, gpus: int = 8, rails: Sequence[int] = tuple(range(8))
) -> list[Host]:
    """Return equal hosts with drawn names."""
    return [Host(name=n, gpus=gpus, rails=tuple(rails)) for n in host_names(rng, count)]


def seats_on(
    rng: np.random.Generator, fleet: Fleet, hosts: Sequence[int], gpus: Sequence[int] | None = None
) -> list[Seat]:
    """Return the seats of hosts in the order of ranks: by name, or in any order."""
    order = list(hosts)
    if rng.random() < 0.35:
        order = [int(host) for host in rng.permutation(order)]
    return [
        Seat(host=host, gpu=gpu)
        for host in order
        for gpu in (range(fleet.hosts[host].gpus) if gpus is None else gpus)
    ]


def pick_degrees(
    rng: np.random.Generator,
    options: Sequence[Degrees],
    *,
    gpus_per_host: int = 8,
    ranks: tuple[int, int] = (16, 256),
) -> Degrees:
    """Pick degrees that fill whole hosts; small jobs are likelier than large ones."""
    fitting = [
        d for d in options if ranks[0] <= d.ranks <= ranks[1] and d.ranks % gpus_per_host == 0
    ]
    weights = np.array([d.ranks**-0.5 for d in fitting])
    return fitting[int(rng.choice(len(fitting), p=weights / weights.sum()))]


def draw_habits(rng: np.random.Generator, degrees: Degrees) -> Habits:
    """Draw how a job communicates and how evenly it computes."""
    sharded_optimizer = bool(rng.random() < 0.45)
    roll = rng.random()
    algorithm = "tree" if roll < 0.2 else "hierarchical" if roll < 0.35 else "ring"
    if roll > 0.97 and not sharded_optimizer and degrees.ep == 1 and degrees.pp > 1:
        algorithm = "switch"
    return Habits(
        algorithm=algorithm,
        gathering="power_steps" if rng.random() < 0.12 else "ring",
        sharded_optimizer=sharded_optimizer,
        overlapped=bool(rng.random() < 0.5),
        buckets=int(rng.integers(1, 6)),
        pxn=bool(rng.random() < 0.4),
        exchange_way=str(rng.choice(["direct", "pxn", "pxn", "rail"])),
        context_way="all_to_all" if rng.random() < 0.2 else "ring",
        hidden=float(rng.uniform(0.0, 0.8)),
        step_noise=float(np.exp(rng.uniform(np.log(0.005), np.log(0.04)))),
        stage_noise=float(rng.uniform(0.0, 0.05)),
        unit_noise=float(rng.uniform(0.002, 0.02)),
        iteration_noise=float(rng.uniform(0.002, 0.02)),
        micro_noise=float(rng.uniform(0.03, 0.2)) if rng.random() < 0.25 else 0.0,
        popularity=float(rng.uniform(0.02, 0.2)),
    )


def draw_schedule(rng: np.random.Generator, name: str, stages: int) -> Schedule:
    """Draw the number of microbatches, and of rounds where a schedule has several.

    Parameters
    ----------
    name
        `1f1b`, `gpipe`, `interleaved`, `zb1`, `zb2`, `zbv`, `dual`.
    """
    rounds = int(rng.choice([2, 2, 3, 4])) if name == "interleaved" else 1
    each = {"interleaved": 2 * rounds, "zbv": 6, "dual": 3, "zb1": 3, "zb2": 3}.get(name, 2)
    fitting = [m for m in MICROS if m >= stages and m * stages * each <= MAX_STEPS]
    micros = int(rng.choice([m for m in fitting if m <= 8 * stages]))
    if name == "gpipe":
        return schedules.all_forward_first(stages, micros)
    if name == "interleaved":
        return schedules.interleaved(stages, max(1, micros // stages) * stages, rounds)
    if name in {"zb1", "zb2"}:
        limit = stages if name == "zb1" else 2 * stages - 1
        return schedules.zero_bubble(stages, micros, limit)
    if name == "zbv":
        return schedules.zero_bubble_v(stages, micros)
    if name == "dual":
        return schedules.dual_pipe(stages, micros + micros % 2)
    return schedules.one_forward_one_backward(stages, micros)


def place_pipelined(
    rng: np.random.Generator,
    *,
    task_id: str,
    fleet: Fleet,
    degrees: Degrees,
    seats: Sequence[Seat],
    schedule: str,
    pace: Pace,
    habits: Habits | None = None,
) -> PlacedJob:
    """Draw what a job with these degrees computes, and place it.

    Raises
    ------
    ValueError
        If a tensor group leaves its host, or an RNIC serves two stages or replicas.
    """
    layout = Layout(fleet, degrees, seats)
    if not layout.fits():
        raise ValueError(f"{degrees} do not fit on these hosts")
    habits = habits or draw_habits(rng, degrees)
    habits = replace(habits, mirrored=schedule == "dual")
    plan = draw_schedule(rng, schedule, degrees.pp)
    steps = [s for s in plan.orders[0] if s.kind == schedules.FORWARD]
    micros = len({(s.chain, s.micro) for s in steps})
    tokens = pattern(
        all_to_all(layout, group, way=habits.exchange_way)
        for group in (layout.expert_groups(0) if degrees.ep > 1 else ())
    )
    frame = Frame(
        degrees=degrees,
        parts=len(plan.chains[0]),
        micros=micros,
        sharing=len(seats) / len(layout.rnics),
        link_gbps=pace.link_gbps,
        seconds=pace.seconds,
        token_peak=tokens.peak,
    )
    job = create_job(rng, layout, plan, draw_workload(rng, frame), habits)
    job = replace(job, workload=job.workload.scaled(_correction(rng, job)))
    return PlacedJob(task_id=task_id, layout=layout, job=job)


def place_sharded(
    rng: np.random.Generator,
    *,
    task_id: str,
    fleet: Fleet,
    degrees: Degrees,
    seats: Sequence[Seat],
    shard_ranks: int,
    pace: Pace,
) -> PlacedJob:
    """Draw a fully sharded job with these degrees, and place it."""
    layout = Layout(fleet, degrees, seats)
    if not layout.fits():
        raise ValueError(f"{degrees} do not fit on these hosts")
    job = create_sharded_job(
        rng,
        layout,
        shard_ranks=shard_ranks,
        seconds=pace.seconds,
        link_gbps=pace.link_gbps,
        gathering="power_steps" if rng.random() < 0.1 else "ring",
    )
    return PlacedJob(task_id=task_id, layout=layout, job=job.scaled(_correction(rng, job)))


def _correction(rng: np.random.Generator, job: Simulated) -> float:
    """Return the factor that brings a job's iterations into the range."""
    took_s = typical_iteration_s(rng, job)
    return float(np.clip(took_s, 1.1 * ITERATION_S[0], 0.9 * ITERATION_S[1])) / took_s
