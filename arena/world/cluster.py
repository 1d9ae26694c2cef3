"""The hosts on a fabric: agents, endpoints, virtual switches, training jobs, and who probes whom.

Every host has an agent and a virtual switch; every RNIC of a job's hosts carries one
endpoint, in the job's container on that host. An endpoint probes its ring neighbours on
its own rail at distances 1, 2, 4, … in both directions, by several 5-tuples each: what a
rail-optimised job's skeleton looks like, whatever the job's layout.

Components are numbered: those of the fabric, then virtual switches, then endpoints.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from arena.world.fabric import NOWHERE, Fabric
from arena.world.topology import endpoint_id, vswitch_id
from schemas.columns.arrays import Int64s

# Endpoint and virtual switch at both ends stand around what is crossed of the fabric.
ENDS: Final = 4


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """A training job.

    Attributes
    ----------
    task_id : its name
    first_host, hosts : the hosts it has to itself
    begin_s : when its endpoints are there, seconds after the scenario's begin
    end_s : when it ends; None: after the scenario
    askew_s : its containers come up over so many seconds, one host after the other
    """

    task_id: str
    first_host: int
    hosts: int
    begin_s: float = 0.0
    end_s: float | None = None
    askew_s: float = 0.0


@dataclass(frozen=True)
class Flows:
    """All 5-tuples that are probed, as columns of one length.

    `src`, `dst`: RNIC numbers; `flow`: index among the 5-tuples of the pair; `job`: index
    of the job; `there`, `back`: components that probe and reply cross, shape (n, 17),
    padded by -1, in order: from endpoint to endpoint.
    """

    src: Int64s
    dst: Int64s
    flow: Int64s
    job: Int64s
    there: Int64s
    back: Int64s

    def __len__(self) -> int:
        return len(self.src)


class Cluster:
    """A fabric with what lives on it.

    Parameters
    ----------
    fabric
        The network.
    jobs
        Training jobs; a host has one at most at a time.
    targets
        Targets of each endpoint at most.
    flows
        5-tuples of each pair.
    symmetric
        Whether replies take the way of the probe back; otherwise ECMP chooses anew.
    """

    def __init__(
        self,
        fabric: Fabric,
        jobs: tuple[JobPlan, ...],
        *,
        targets: int = 4,
        flows: int = 2,
        symmetric: bool = True,
    ) -> None:
        for job in jobs:
            if job.hosts < 2 or job.first_host + job.hosts > fabric.shape.hosts:
                raise ValueError(
                    f"job {job.task_id}: hosts {job.first_host} to "
                    f"{job.first_host + job.hosts - 1} of {fabric.shape.hosts}, at least 2"
                )
        self.fabric = fabric
        self.jobs = jobs
        self.targets = targets
        self.pair_flows = flows
        self.symmetric = symmetric
        self.vswitch0 = len(fabric)
        self.endpoint0 = self.vswitch0 + fabric.shape.hosts

    @property
    def rails(self) -> int:
        """RNICs of a host."""
        return self.fabric.shape.rails

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Ids of all components by number."""
        shape = self.fabric.shape
        return (
            *self.fabric.names,
            *(vswitch_id(h) for h in range(shape.hosts)),
            *(endpoint_id(*divmod(n, shape.rails)) for n in range(shape.rnics)),
        )

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Numbers by id."""
        return {name: number for number, name in enumerate(self.names)}

    def host_of(self, rnic: Int64s) -> Int64s:
        """Return the hosts of RNICs."""
        hosts: Int64s = rnic // self.rails
        return hosts

    def pairs(self, job: int) -> Iterator[tuple[int, int]]:
        """Yield (prober, target) RNICs of a job, in the order of the ping lists."""
        plan = self.jobs[job]
        steps = _steps(plan.hosts, self.targets)
        for host in range(plan.hosts):
            for rail in range(self.rails):
                for step in steps:
                    yield (
                        (plan.first_host + host) * self.rails + rail,
                        (plan.first_host + (host + step) % plan.hosts) * self.rails + rail,
                    )

    @cached_property
    def flows(self) -> Flows:
        """All 5-tuples, sorted by host, job, then as on the ping list."""
        rows = [(a, b, job) for job in range(len(self.jobs)) for a, b in self.pairs(job)]
        table = np.array(rows, np.int64).reshape(-1, 3)
        table = np.repeat(table, self.pair_flows, axis=0)
        flow = np.tile(np.arange(self.pair_flows), len(rows))
        order = np.argsort(self.host_of(table[:, 0]), kind="stable")
        src, dst, job = (np.ascontiguousarray(c) for c in table[order].T)
        flow = flow[order]
        there = self.fabric.paths(src, dst, flow)
        back = self.fabric.paths(dst, src, flow)
        if self.symmetric:
            back = _reversed(there)
        return Flows(src, dst, flow, job, self._with_ends(there, src, dst),
                     self._with_ends(back, dst, src))  # fmt: skip

    def _with_ends(self, way: Int64s, src: Int64s, dst: Int64s) -> Int64s:
        """Put endpoints and virtual switches around the components of the fabric."""
        out = np.full((len(way), way.shape[1] + ENDS), NOWHERE, np.int64)
        out[:, 0] = self.endpoint0 + src
        out[:, 1] = self.vswitch0 + self.host_of(src)
        out[:, 2:-2] = way
        rows, last = np.arange(len(way)), (way != NOWHERE).sum(axis=1) + 2
        out[rows, last] = self.vswitch0 + self.host_of(dst)
        out[rows, last + 1] = self.endpoint0 + dst
        return out


def _steps(hosts: int, targets: int) -> list[int]:
    """Return distances in the ring: 1, -1, 2, -2, 4, …, none twice."""
    found: list[int] = []
    distance = 1
    while len(found) < min(targets, hosts - 1):
        for step in (distance, -distance):
            if step % hosts and step % hosts not in {s % hosts for s in found}:
                found.append(step)
        distance = distance * 2 if distance * 2 < hosts else distance + 1
    return found[:targets]


def _reversed(way: Int64s) -> Int64s:
    """Return each row's components in reverse order, padding at the end."""
    length = (way != NOWHERE).sum(axis=1)
    places = length[:, None] - 1 - np.arange(way.shape[1])
    found: Int64s = np.where(
        places >= 0, np.take_along_axis(way, np.maximum(places, 0), axis=1), NOWHERE
    )
    return found
