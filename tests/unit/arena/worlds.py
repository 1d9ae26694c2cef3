"""Small clusters and worlds for tests."""

from arena.faults.effects import Effect
from arena.simulation.world import EPOCH_NS, World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from schemas.units import SECOND_NS


def cluster(
    *, hosts: int = 6, rails: int = 2, targets: int = 2, flows: int = 2, tiers: int = 2,
    symmetric: bool = True, jobs: tuple[JobPlan, ...] | None = None,
) -> Cluster:  # fmt: skip
    """Return a cluster with one job on all hosts unless told otherwise."""
    shape = FabricShape(hosts=hosts, rails=rails, segment_hosts=2, spines=2, tiers=tiers)
    plans = jobs or (JobPlan(task_id="job-a", first_host=0, hosts=hosts),)
    return Cluster(Fabric(shape), plans, targets=targets, flows=flows, symmetric=symmetric)


def world(seconds: int = 5, *, seed: int = 1, on: Cluster | None = None, **what: object) -> World:
    """Return a world of some seconds."""
    return World(name="w", seed=seed, cluster=on or cluster(), seconds=seconds, **what)  # type: ignore[arg-type]


def at(seconds: float) -> int:
    """Return an event time, ns."""
    return EPOCH_NS + round(seconds * SECOND_NS)


def loss(on: Cluster, name: str, rate: float = 1.0, begin_s: float = 0, **what: object) -> Effect:
    """Return an effect that loses packets at a component."""
    return Effect(component=on.number_of[name], begin_ns=at(begin_s), loss=rate, **what)  # type: ignore[arg-type]
