"""Families of captures: which hosts, jobs and placements each draws from."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np

from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Seat
from arena.sealed_jobs.recipes import (
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
    schedule = "1f1b" if rng.random() < 0.75 else str(rng.choice(["interleaved", "zb1"]))
    degrees = pick_degrees(rng, options)
    return _one_job(rng, degrees, schedule if degrees.pp > 1 else "1f1b")


def context(rng: np.random.Generator) -> World:
    """Context groups over several hosts: keys and values go around."""
    options = _options(tp=(4, 8, 8), cp=(2, 4, 8), dp=(1, 2, 4, 8), pp=(1, 2, 4))
    options = [d for d in options if d.tp * d.cp >= 16]
    return _one_job(rng, pick_degrees(rng, options), _plain_schedule(rng))


def odd_hosts(rng: np.random.Generator) -> World:
    """Hosts with six, four or mixed numbers of RNICs; tensor groups of half a host."""
    kinds = ("six", "four_of_eight", "half_tensor", "half_host", "mixed", "seven")
    kind = str(rng.choice(kinds))
    gpus = 6 if kind == "six" else 4 if kind == "half_host" else 8
    tensor = {"six": (2, 3, 6), "four_of_eight": (2, 4, 8), "half_tensor": (2, 4)}
    tensors = tensor.get(kind, (2, 4) if kind == "half_host" else (8,))
    options = _options(tp=tensors, pp=(2, 3, 4, 6, 8), dp=(1, 2, 3, 4, 6, 8))
    ranks = (16, 256) if kind in {"six", "half_tensor", "half_host"} else (32, 384)
    degrees = pick_degrees(rng, options, gpus_per_host=gpus, ranks=ranks)
    names = host_names(rng, degrees.ranks // gpus)
    rails = {"six": tuple(range(6)), "four_of_eight": (0, 1, 2, 3)}.get(kind, EIGHT)
    if kind == "half_host":
        rails = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 2, 4, 6))[int(rng.integers(3))]
    fewer = tuple(range(4)) if kind == "mixed" else tuple(r for r in EIGHT if r != 3)
    share = {"mixed": 0.5, "seven": 0.15}.get(kind, 0.0)
    hosts = [
        Host(name=name, gpus=gpus, rails=fewer if rng.random() < share else rails) for name in names
    ]
    fleet = Fleet(hosts)
    seats = seats_on(rng, fleet, range(len(hosts)))
    return _one_job(rng, degrees, "1f1b", fleet=fleet, seats=seats)


def one_replica(rng: np.random.Generator) -> World:
    """Pipeline without replicas: no gradients go over the network."""
    degrees = pick_degrees(rng, _options(tp=(4, 8), pp=(2, 4, 8, 16)), ranks=(16, 128))
    schedule = str(rng.choice(["1f1b", "1f1b", "1f1b", "interleaved", "zb1"]))
    return _one_job(rng, degrees, schedule)


def pipelines_across_rails(rng: np.random.Generator) -> World:
    """Successive stages beside each other in a host, so that pipelines change rails."""
    options = _options(tp=(1, 2, 4), pp=(4, 8, 16), dp=(2, 4, 8, 16), nesting=PIPELINE_FIRST)
    options = [d for d in options if d.tp * d.pp > 8]
    return _one_job(rng, pick_degrees(rng, options), "1f1b")


def shared_cluster(rng: np.random.Generator) -> World:
    """Two to five jobs, some on halves of the same hosts, and idle hosts."""
    count = int(rng.integers(2, 6))
    pace = draw_pace(rng, slowest_s=20.0)
    plans: list[tuple[Degrees, str]] = []
    for _ in range(count):
        kind = str(rng.choice(["pipeline", "pipeline", "sharded", "experts"]))
        options = {
            "pipeline": _options(tp=(4, 8), pp=(1, 2, 4), dp=(2, 3, 4)),
            "sharded": _options(tp=(1, 8), dp=(2, 3, 4, 16, 24, 32)),
            "experts": _options(tp=(2, 4), pp=(1, 2), dp=(8,), ep=(8,)),
        }[kind]
        plans.append((pick_degrees(rng, options, ranks=(16, 64)), kind))
    halves = bool(rng.random() < 0.4)
    needs = [d.ranks // 8 for d, _ in plans]
    # Two jobs of tensor groups of four may share hosts: one on the first four GPUs of each.
    shared = 0
    if halves:
        plans[:2] = [(Degrees(tp=4, pp=2, dp=n), "pipeline") for n in (2, 2)]
        needs[:2] = [4, 0]
        shared = 4
    idle = int(rng.integers(2, max(3, sum(needs) // 2)))
    fleet = Fleet(draw_hosts(rng, sum(needs) + idle))
    places = [int(p) for p in rng.permutation(len(fleet.hosts))]
    if rng.random() < 0.6:
        places.sort()
    jobs: list[PlacedJob] = []
    first = 0
    for number, ((degrees, kind), need) in enumerate(zip(plans, needs, strict=True)):
        mine: Sequence[int] = places[first : first + need]
        gpus: Sequence[int] | None = None
        if halves and number < 2:
            mine, gpus = places[:shared], EIGHT[4 * number : 4 * number + 4]
        first += need
        seats = seats_on(rng, fleet, sorted(mine), gpus)
        own = _own_pace(rng, pace)
        name = f"job-{int(rng.integers(10**6)):06d}-{number}"
        if kind == "sharded":
            placed = place_sharded(
                rng,
                task_id=name,
                fleet=fleet,
                degrees=degrees,
                seats=seats,
                shard_ranks=degrees.dp,
                pace=own,
            )
        else:
            placed = place_pipelined(
                rng,
                task_id=name,
                fleet=fleet,
                degrees=degrees,
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
    least = 0.8 if pace.hz > 1 else 4.0
    low = float(np.clip(low * factor, least, 18.0))
    return Pace(
        hz=pace.hz,
        link_gbps=pace.link_gbps,
        seconds=(low, float(np.clip(high * factor, low * 1.2, 25.0))),
    )


def large(rng: np.random.Generator) -> World:
    """1,024 RNICs on 128 hosts."""
    pp = int(rng.choice([4, 8, 16]))
    degrees = Degrees(tp=8, pp=pp, dp=128 // pp)
    fleet, seats = _whole_hosts(rng, degrees)
    pace = Pace(hz=10.0, link_gbps=400.0, seconds=(3.0, 9.0))
    schedule = "interleaved" if rng.random() < 0.3 and pp < 16 else "1f1b"
    return _one_job(rng, degrees, schedule, fleet=fleet, seats=seats, pace=pace)


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
