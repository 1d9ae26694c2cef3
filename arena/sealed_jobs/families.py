"""Families of captures: which hosts, jobs and placements each draws from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Seat
from arena.sealed_jobs.recipes import (
    ITERATION_S,
    SLOW_TICKS_S,
    Pace,
    PlacedJob,
    World,
    draw_hosts,
    draw_pace,
    host_names,
    pick_degrees,
    place_pipelined,
    place_sharded,
    seats_on,
)

DEFAULT: Final = ("tp", "cp", "dp", "pp")
PIPELINE_FIRST: Final = ("tp", "cp", "pp", "dp")
EIGHT: Final = tuple(range(8))
# Tensor degrees by kind of host. An RNIC serves the GPUs of one tensor group.
ODD_TENSORS: Final[Mapping[str, tuple[int, ...]]] = {
    "six": (2, 3, 6),
    "four_of_eight": (2, 4, 8),
    "half_tensor": (2, 4),
    "half_host": (2, 4),
    "mixed": (8,),
    "seven": (8,),
    "crossed": (4, 8),
}


def _options(
    *,
    tp: Sequence[int] = (1,),
    pp: Sequence[int] = (1,),
    dp: Sequence[int] = (1,),
    ep: Sequence[int] = (1,),
    cp: Sequence[int] = (1,),
    nesting: tuple[str, ...] = DEFAULT,
) -> list[Degrees]:
    """Return all combinations of degrees."""
    return [
        Degrees(tp=t, pp=p, dp=d, ep=e, cp=c, nesting=nesting)
        for t, p, d, e, c in product(tp, pp, dp, ep, cp)
        if d % e == 0
    ]


def _whole_hosts(rng: np.random.Generator, degrees: Degrees) -> tuple[Fleet, list[Seat]]:
    """Return hosts with eight GPUs and RNICs each, and a job on all of them."""
    fleet = Fleet(draw_hosts(rng, degrees.ranks // 8))
    return fleet, seats_on(rng, fleet, range(len(fleet.hosts)))


def _one_job(
    rng: np.random.Generator,
    degrees: Degrees,
    schedule: str,
    *,
    fleet: Fleet | None = None,
    seats: Sequence[Seat] | None = None,
    pace: Pace | None = None,
) -> World:
    """Return a world with one pipelined job; on whole hosts unless seats are given."""
    if fleet is None or seats is None:
        fleet, seats = _whole_hosts(rng, degrees)
    pace = pace or draw_pace(rng)
    job = place_pipelined(
        rng,
        task_id="train-0",
        fleet=fleet,
        degrees=degrees,
        seats=seats,
        schedule=schedule,
        pace=pace,
    )
    return World(fleet=fleet, jobs=(job,), pace=pace)


def _plain_schedule(rng: np.random.Generator) -> str:
    return "gpipe" if rng.random() < 0.1 else "1f1b"


def dense(rng: np.random.Generator) -> World:
    """Tensor groups in hosts, replicas, pipelines in 1F1B order."""
    pp = (1,) if rng.random() < 0.12 else (2, 4, 8)
    options = _options(tp=(2, 4, 8, 8), pp=pp, dp=(2, 3, 4, 6, 8, 12, 16, 32))
    return _one_job(rng, pick_degrees(rng, options), _plain_schedule(rng))


def interleaved(rng: np.random.Generator) -> World:
    """Interleaved, zero-bubble and bidirectional schedules."""
    schedule = str(rng.choice(["interleaved", "interleaved", "zb1", "zb2", "zbv", "dual"]))
    options = _options(tp=(4, 8), pp=(2, 4, 8), dp=(1, 2, 3, 4, 8))
    if schedule == "dual":
        options = [d for d in options if d.pp > 2]
    return _one_job(rng, pick_degrees(rng, options), schedule)


def sharded(rng: np.random.Generator) -> World:
    """FSDP and ZeRO-3, sharded over all ranks or within some hosts."""
    tensor = int(rng.choice([1, 1, 1, 2, 8]))
    degrees = pick_degrees(rng, _options(tp=(tensor,), dp=tuple(range(2, 257))))
    degrees = Degrees(tp=tensor, dp=degrees.dp)
    fleet, seats = _whole_hosts(rng, degrees)
    pace = draw_pace(rng)
    hosts = degrees.ranks // 8
    in_host = 8 // tensor
    sizes = [n for n in (1, 2, 4, 8) if hosts % n == 0 and n < hosts and n * in_host > 1]
    shard_ranks = degrees.dp
    if sizes and rng.random() < 0.45:
        shard_ranks = int(rng.choice(sizes)) * in_host
    job = place_sharded(
        rng,
        task_id="train-0",
        fleet=fleet,
        degrees=degrees,
        seats=seats,
        shard_ranks=shard_ranks,
        pace=pace,
    )
    return World(fleet=fleet, jobs=(job,), pace=pace)


def experts(rng: np.random.Generator) -> World:
    """Expert groups over several hosts, with all-to-all exchanges."""
    options = _options(
        tp=(1, 2, 4, 8), pp=(1, 2, 4, 8), dp=(2, 4, 8, 16, 32, 64), ep=(2, 4, 8, 16, 32)
    )
    options = [d for d in options if d.ep * d.tp >= 16 and d.ep * d.tp <= 128]
    schedule = "1f1b" if rng.random() < 0.75 else str(rng.choice(["interleaved", "zb1", "dual"]))
    degrees = pick_degrees(rng, options)
    fits = degrees.pp > 2 or (degrees.pp > 1 and schedule != "dual")
    return _one_job(rng, degrees, schedule if fits else "1f1b")


def context(rng: np.random.Generator) -> World:
    """Context groups over several hosts: keys and values go around."""
    options = _options(tp=(4, 8, 8), cp=(2, 4, 8), dp=(1, 2, 4, 8), pp=(1, 2, 4))
    options = [d for d in options if d.tp * d.cp >= 16]
    return _one_job(rng, pick_degrees(rng, options), _plain_schedule(rng))


def odd_hosts(rng: np.random.Generator) -> World:
    """Hosts with six, four or mixed numbers of RNICs; tensor groups of half a host.

    Half of the hosts have four RNICs instead of eight (`mixed`), some have lost one (`seven`), or
    their GPUs are wired to RNICs in another order (`crossed`).
    """
    kind = str(rng.choice(list(ODD_TENSORS)))
    gpus = {"six": 6, "half_host": 4}.get(kind, 8)
    ranks = (32, 384) if kind in {"four_of_eight", "mixed", "seven"} else (16, 256)
    evenly = rng.random() < 0.2
    pp = (1,) if evenly else (2, 3, 4, 6, 8)
    options = _options(tp=ODD_TENSORS[kind], pp=pp, dp=tuple(range(2, 17)))
    degrees = pick_degrees(rng, options, gpus_per_host=gpus, ranks=ranks)
    rails = {"six": tuple(range(6)), "four_of_eight": (0, 1, 2, 3)}.get(kind, EIGHT)
    if kind == "half_host":
        rails = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 2, 4, 6))[int(rng.integers(3))]
    other = {
        "mixed": (0, 1, 2, 3),
        "seven": tuple(r for r in EIGHT if r != 3),
        "crossed": (*EIGHT[4:], *EIGHT[:4]),
    }.get(kind, rails)
    share = {"mixed": 0.5, "seven": 0.15, "crossed": 0.3}.get(kind, 0.0)
    names = host_names(rng, degrees.ranks // gpus)
    hosts = [
        Host(name=name, gpus=gpus, rails=other if rng.random() < share else rails) for name in names
    ]
    fleet = Fleet(hosts)
    seats = seats_on(rng, fleet, range(len(hosts)))
    if not evenly:
        return _one_job(rng, degrees, "1f1b", fleet=fleet, seats=seats)
    pace = draw_pace(rng)
    job = place_sharded(
        rng,
        task_id="train-0",
        fleet=fleet,
        degrees=degrees,
        seats=seats,
        shard_ranks=degrees.dp,
        pace=pace,
    )
    return World(fleet=fleet, jobs=(job,), pace=pace)


def one_replica(rng: np.random.Generator) -> World:
    """Pipeline without replicas: no gradients go over the network."""
    stages = int(rng.choice([2, 4, 4, 8, 8, 16]))
    degrees = pick_degrees(rng, _options(tp=(4, 8), pp=(stages,)), ranks=(16, 128))
    schedule = str(rng.choice(["1f1b", "1f1b", "1f1b", "interleaved", "zb1"]))
    return _one_job(rng, degrees, schedule)


def pipelines_across_rails(rng: np.random.Generator) -> World:
    """Successive stages beside each other in a host, so that pipelines change rails."""
    options = _options(tp=(1, 2, 4), pp=(4, 8, 16), dp=(2, 4, 8, 16), nesting=PIPELINE_FIRST)
    options = [d for d in options if d.tp * d.pp > 8]
    return _one_job(rng, pick_degrees(rng, options), "1f1b")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A job of a shared cluster: on which GPUs of how many hosts, and beside which job."""

    degrees: Degrees
    kind: str
    gpus: tuple[int, ...] = EIGHT
    beside: int | None = None

    @property
    def hosts(self) -> int:
        """Number of hosts that the job needs."""
        return self.degrees.ranks // len(self.gpus)


def _shared_plans(rng: np.random.Generator) -> list[_Plan]:
    """Draw two to five jobs: on whole hosts, on half of each, or on the halves of each other's."""
    plans: list[_Plan] = []
    for _ in range(int(rng.integers(2, 6))):
        kind = str(rng.choice(["pipeline", "pipeline", "sharded", "experts", "half"]))
        if kind == "half":
            degrees = Degrees(tp=4, pp=int(rng.choice([2, 4])), dp=int(rng.choice([2, 3, 4])))
            plans.append(_Plan(degrees=degrees, kind=kind, gpus=EIGHT[:4]))
            if rng.random() < 0.6:
                other = Degrees(tp=4, pp=2, dp=degrees.pp * degrees.dp // 2)
                if rng.random() < 0.5:
                    other = degrees
                beside = len(plans) - 1
                plans.append(_Plan(degrees=other, kind=kind, gpus=EIGHT[4:], beside=beside))
            continue
        options = {
            "pipeline": _options(tp=(4, 8), pp=(1, 2, 4), dp=(2, 3, 4)),
            "sharded": _options(tp=(1, 8), dp=(2, 3, 4, 16, 24, 32)),
            "experts": _options(tp=(2, 4), pp=(1, 2), dp=(8,), ep=(8,)),
        }[kind]
        plans.append(_Plan(degrees=pick_degrees(rng, options, ranks=(16, 64)), kind=kind))
    return plans


def shared_cluster(rng: np.random.Generator) -> World:
    """Several jobs, some on halves of hosts or beside each other in them, and idle hosts."""
    pace = draw_pace(rng, slowest_s=20.0)
    plans = _shared_plans(rng)
    needed = sum(plan.hosts for plan in plans if plan.beside is None)
    idle = int(rng.integers(2, max(3, needed // 2)))
    fleet = Fleet(draw_hosts(rng, needed + idle))
    places = [int(p) for p in rng.permutation(len(fleet.hosts))]
    if rng.random() < 0.6:
        places.sort()
    jobs: list[PlacedJob] = []
    taken: list[list[int]] = []
    for number, plan in enumerate(plans):
        if plan.beside is None:
            hosts, places = sorted(places[: plan.hosts]), places[plan.hosts :]
        else:
            hosts = taken[plan.beside]
        taken.append(hosts)
        seats = seats_on(rng, fleet, hosts, plan.gpus)
        own = _own_pace(rng, pace)
        name = f"job-{int(rng.integers(10**6)):06d}-{number}"
        if plan.kind == "sharded":
            placed = place_sharded(
                rng,
                task_id=name,
                fleet=fleet,
                degrees=plan.degrees,
                seats=seats,
                shard_ranks=plan.degrees.dp,
                pace=own,
            )
        else:
            placed = place_pipelined(
                rng,
                task_id=name,
                fleet=fleet,
                degrees=plan.degrees,
                seats=seats,
                schedule="1f1b",
                pace=own,
            )
        jobs.append(placed)
    return World(fleet=fleet, jobs=tuple(jobs), pace=pace)


def _own_pace(rng: np.random.Generator, pace: Pace) -> Pace:
    """Return the pace of one job among several."""
    factor = float(np.exp(rng.uniform(-0.7, 0.7)))
    low, high = pace.seconds
    least = ITERATION_S[0] if pace.hz > 1 else SLOW_TICKS_S
    low = float(np.clip(low * factor, least, 18.0))
    return Pace(
        hz=pace.hz,
        link_gbps=pace.link_gbps,
        seconds=(low, float(np.clip(high * factor, low * 1.2, 25.0))),
    )


def large(rng: np.random.Generator) -> World:
    """1,024 RNICs on 128 hosts: mostly dense, some interleaved, with experts, or sharded."""
    pace = Pace(hz=10.0, link_gbps=400.0, seconds=(3.0, 9.0))
    kind = str(rng.choice(["1f1b", "interleaved", "experts", "sharded"], p=[0.55, 0.2, 0.15, 0.1]))
    if kind == "sharded":
        degrees = Degrees(dp=1024)
        fleet, seats = _whole_hosts(rng, degrees)
        job = place_sharded(
            rng,
            task_id="train-0",
            fleet=fleet,
            degrees=degrees,
            seats=seats,
            shard_ranks=int(rng.choice([64, 1024])),
            pace=pace,
        )
        return World(fleet=fleet, jobs=(job,), pace=pace)
    if kind == "experts":
        degrees = Degrees(tp=4, pp=8, dp=32, ep=int(rng.choice([8, 16])))
        return _one_job(rng, degrees, "1f1b", pace=pace)
    pp = int(rng.choice([4, 8] if kind == "interleaved" else [4, 8, 16]))
    return _one_job(rng, Degrees(tp=8, pp=pp, dp=128 // pp), kind, pace=pace)


BUILDERS: Final[Mapping[str, Callable[[np.random.Generator], World]]] = {
    "dense": dense,
    "interleaved": interleaved,
    "sharded": sharded,
    "experts": experts,
    "context": context,
    "odd_hosts": odd_hosts,
    "one_replica": one_replica,
    "pipelines_across_rails": pipelines_across_rails,
    "shared_cluster": shared_cluster,
    "large": large,
}
