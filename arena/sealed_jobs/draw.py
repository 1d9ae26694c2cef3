"""Captures by seed and family: a table of counters, what is known besides, and the truth."""

from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import numpy as np
import polars as pl

from arena.sealed_jobs import background
from arena.sealed_jobs.families import BUILDERS
from arena.sealed_jobs.ports import Ports
from arena.sealed_jobs.readers import draw_reader, read_counters
from arena.sealed_jobs.recipes import PlacedJob, World
from arena.sealed_jobs.runs import Run, draw_interruptions, run_job, typical_iteration_s
from arena.sealed_jobs.truth import JobTruth, job_truth

__all__ = ["FAMILIES", "JobTruth", "SealedCapture", "draw"]

FAMILIES: Final = tuple(BUILDERS)
ITERATIONS: Final = (10.0, 35.0)
SECONDS: Final = (60.0, 300.0)
LARGE_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCapture:
    """A capture and the truth about its jobs.

    Attributes
    ----------
    table
        Columns time_ns, host, rail, tx_bytes, rx_bytes.
    meta
        What the platform knows besides, as `skeleton infer --meta` reads it.
    seconds, hz
        Length of the capture and ticks a second.
    """

    name: str
    table: pl.DataFrame
    meta: dict[str, Any]
    jobs: tuple[JobTruth, ...]
    seconds: float
    hz: float
    family: str


def draw(seed: int, family: str) -> SealedCapture:
    """Draw a capture; the same seed and family give the same bytes.

    Raises
    ------
    ValueError
        If there is no such family.
    """
    if family not in BUILDERS:
        raise ValueError(f"no family {family!r}; there are {', '.join(FAMILIES)}")
    root = np.random.SeedSequence([seed, crc32(family.encode())])
    world_rng, run_rng, noise_rng, reader_rng, meta_rng = (
        np.random.default_rng(child) for child in root.spawn(5)
    )
    world = BUILDERS[family](world_rng)
    typical_s = [typical_iteration_s(run_rng, job.job) for job in world.jobs]
    seconds = _length(run_rng, max(typical_s), family)
    runs = [
        run_job(
            run_rng,
            job.job,
            seconds=seconds,
            typical_s=own_s,
            interruptions=draw_interruptions(run_rng, seconds, own_s),
        )
        for job, own_s in zip(world.jobs, typical_s, strict=True)
    ]
    cell_s = 0.01 if world.pace.hz <= 1 or len(world.fleet) > 512 else 0.005
    ports = Ports(len(world.fleet), seconds, cell_s)
    for run in runs:
        ports.add_run(run)
    bytes_per_s = world.pace.link_gbps * 1e9 / 8
    _add_background(noise_rng, ports, world, runs, bytes_per_s)
    reader = draw_reader(reader_rng, world.pace.hz, world.pace.link_gbps)
    table = read_counters(reader_rng, reader, world.fleet, ports, bytes_per_s * 0.97)
    error_s = reader.offset_s + reader.jitter_s + reader.refresh_s / 2
    return SealedCapture(
        name=f"{family}-{seed}",
        table=table,
        meta=_meta(meta_rng, world, reader.bits),
        jobs=tuple(
            job_truth(
                job.task_id,
                job.layout,
                run.training,
                iteration_s=run.iteration_s,
                stage_shift_s=job.stage_shift_s,
                clock_error_s=error_s,
                told_apart=job.layout.degrees.ep > 1 and job.habits.exchange_way != "rail",
                mirrored=job.habits.mirrored,
                through_switch=job.habits.algorithm == "switch",
            )
            for job, run in zip(world.jobs, runs, strict=True)
        ),
        seconds=seconds,
        hz=world.pace.hz,
        family=family,
    )


def _length(rng: np.random.Generator, slowest_s: float, family: str) -> float:
    """Draw how long the capture is: some iterations of the slowest job, within bounds."""
    high = LARGE_SECONDS if family == "large" else SECONDS[1]
    return float(np.round(np.clip(slowest_s * rng.uniform(*ITERATIONS), SECONDS[0], high)))


def _add_background(
    rng: np.random.Generator, ports: Ports, world: World, runs: list[Run], bytes_per_s: float
) -> None:
    """Add what is no part of training."""
    background.add_housekeeping(rng, ports)
    used: set[int] = set()
    for job, run in zip(world.jobs, runs, strict=True):
        rnics = sorted(job.layout.rnics)
        used |= set(rnics)
        one_each = [r for r in rnics if world.fleet.rnic_rail[r] % 8 == 0] or rnics[:1]
        chosen = rnics if rng.random() < 0.5 else one_each
        if rng.random() < 0.4:
            background.add_storage_reads(rng, ports, chosen, bytes_per_s)
        background.add_checkpoints(rng, ports, chosen, run.checkpoints, bytes_per_s)
    idle = [r for r in range(len(world.fleet)) if r not in used]
    background.add_pings(rng, ports, idle)
    idle_hosts = sorted({world.fleet.rnic_host[r] for r in idle})
    if rng.random() < 0.3:
        background.add_tests(rng, ports, world.fleet, idle_hosts, bytes_per_s)


def _meta(rng: np.random.Generator, world: World, bits: int) -> dict[str, Any]:
    """Draw what the platform says: often little, seldom something wrong."""
    meta: dict[str, Any] = {}
    if rng.random() < 0.8:
        meta["link_gbps"] = world.pace.link_gbps
    gpus = {host.gpus for host in world.fleet.hosts}
    seated = all(len(job.layout.rnic) == _gpus(job, world) for job in world.jobs)
    if len(gpus) == 1 and seated and rng.random() < 0.8:
        meta["gpus_per_host"] = gpus.pop()
    if bits < 63:
        meta["counter"] = {"bits": bits}
    if len(world.jobs) == 1 and rng.random() < 0.5:
        order = list(dict.fromkeys(world.jobs[0].layout.host.tolist()))
        if rng.random() < 0.2:
            order = [int(host) for host in rng.permutation(order)]
        meta["pod_index"] = {world.fleet.hosts[h].name: i for i, h in enumerate(order)}
    if rng.random() < (0.6 if len(world.jobs) > 1 else 0.5):
        meta["tasks"] = [_task(job, world) for job in world.jobs]
    return meta


def _gpus(job: PlacedJob, world: World) -> int:
    """Return the number of GPUs of a job's hosts."""
    return sum(world.fleet.hosts[host].gpus for host in set(job.layout.host.tolist()))


def _task(job: PlacedJob, world: World) -> dict[str, Any]:
    """Return a job as the scheduler names it."""
    fleet = world.fleet
    return {
        "task": job.task_id,
        "gpus": len(job.layout.rnic),
        "rnics": [
            [fleet.hosts[fleet.rnic_host[r]].name, fleet.rnic_rail[r]]
            for r in sorted(job.layout.rnics)
        ],
    }
