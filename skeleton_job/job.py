"""A training job as the platform knows it: which RNICs it has, and where they are.

Who exchanges data, given groups and stages.

Counters do not show who is whose neighbour in the ring of a gradient group: all
members carry the same bytes at the same time. Small groups are meshed. In
larger ones each member gets peers at fixed distances in the platform's order:
1, since ranks follow that order and rings are built along ranks; 2 and 4, which
with 1 are the edges that binary trees and rings that skip a host use most.
"""

import re
from dataclasses import dataclass
from functools import cached_property
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


def ordered(a: str, b: str) -> Pair:
    """Return an unordered pair, the smaller id first."""
    return (a, b) if a < b else (b, a)
