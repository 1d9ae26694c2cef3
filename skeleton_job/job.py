"""A training job as the platform knows it: which RNICs it has, and where they are.

Who exchanges data, given groups and stages.

Counters do not show who is whose neighbour in the ring of a gradient group: all
members carry the same bytes at the same time. Small groups are meshed. In
larger ones each member gets peers at fixed distances in the platform's order:
1, since ranks follow that order and rings are built along ranks; 2 and 4, which
with 1 are the edges that binary trees and rings that skip a host use most.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from schemas.records import Task

_NUMBER: Final = re.compile(r"(\d+)")

NaturalKey = tuple[tuple[int, int, str], ...]


def natural_key(name: str) -> NaturalKey:
    """Return a sort key that reads the numbers in a name as numbers.

    The container platform numbers the containers of a job; their order is what
    frameworks number their ranks by, so `w2` has to stand before `w10`.

    >>> sorted(["w10", "w2"], key=natural_key)
    ['w2', 'w10']
    """
    # isdecimal, as int() takes it; other digits (superscripts) are plain text
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in _NUMBER.split(name)
        if part
    )


@dataclass(frozen=True, slots=True)
class Rnic:
    """One endpoint of a job."""

    endpoint_id: str
    container_id: str
    host: str
    rail: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """The RNICs of a job; `gpus` is their number of GPUs where it is known."""

    task_id: str
    rnics: tuple[Rnic, ...]
    gpus: int | None = None

    @cached_property
    def ordered(self) -> tuple[Rnic, ...]:
        """The RNICs in the platform's order, whatever order they were given in."""
        return tuple(
            sorted(
                self.rnics,
                key=lambda r: (natural_key(r.container_id), natural_key(r.host), r.rail),
            )
        )

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in the platform's order of their first container."""
        return tuple(dict.fromkeys(r.host for r in self.ordered))

    @classmethod
    def from_task(cls, task: Task) -> "Job":
        """Return the job that a task.v1 record describes; double endpoints count once."""
        rnics = {
            e.endpoint_id: Rnic(
                endpoint_id=e.endpoint_id, container_id=e.container_id, host=e.host_id, rail=e.rail
            )
            for e in task.endpoints
        }
        hosts = len({r.host for r in rnics.values()})
        gpus = None if task.gpus_per_host is None else task.gpus_per_host * hosts
        return cls(task_id=task.task_id, rnics=tuple(rnics.values()), gpus=gpus)


Pair = tuple[str, str]

# Up to this size all pairs of a group are taken: 3 peers each, of which a ring uses 2.
MESH_SIZE: Final = 4
RING_DISTANCES: Final = (1, 2, 4)


def ordered(a: str, b: str) -> Pair:
    """Return an unordered pair, the smaller id first."""
    return (a, b) if a < b else (b, a)


def group_pairs(group: Sequence[Rnic], distances: Sequence[int] = RING_DISTANCES) -> set[Pair]:
    """Return the pairs of a gradient group, its members in the platform's order.

    Members on one host talk inside it and make no pair. Where hosts have several members, a ring
    goes from host to host: on each member's rail, or from the last member to the first.

    Parameters
    ----------
    distances : along the ring, of groups above `MESH_SIZE`
    """
    hosts: dict[str, list[Rnic]] = {}
    for rnic in group:
        hosts.setdefault(rnic.host, []).append(rnic)
    rows = list(hosts.values())
    if len(rows) < len(group):
        around = zip(rows, rows[1:] + rows[:1], strict=True)
        steps = [(*pair,) for a, b in around for pair in (*zip(a, b, strict=False), (a[-1], b[0]))]
    else:
        n = len(group)
        mesh = range(1, n) if n <= MESH_SIZE and distances == RING_DISTANCES else distances
        steps = [(a, group[(i + d) % n]) for i, a in enumerate(group) for d in mesh]
    return {ordered(a.endpoint_id, b.endpoint_id) for a, b in steps if a.host != b.host}


# A pipeline of two stages has one joint.
CLOSED: Final = 2


def chain_pairs(chains: Iterable[Sequence[Rnic]]) -> set[Pair]:
    """Return the pairs of neighbours along pipelines, those inside a host left out.

    The last stage and the first are neighbours as well: interleaved schedules go round, and
    tied embeddings are summed over the two. It costs one pair for each pipeline.
    """
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for chain in chains
        for a, b in pairwise([*chain, chain[0]] if len(chain) > CLOSED else chain)
        if a.host != b.host
    }


def same_rail_pairs(rnics: Iterable[Rnic]) -> set[Pair]:
    """Return all pairs of one rail on different hosts: the basic list."""
    rails: dict[int, list[Rnic]] = {}
    for rnic in rnics:
        rails.setdefault(rnic.rail, []).append(rnic)
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for members in rails.values()
        for i, a in enumerate(members)
        for b in members[i + 1 :]
        if a.host != b.host
    }
