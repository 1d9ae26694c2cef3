"""A training job as the platform knows it: which RNICs it has, and where they are."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from schemas.records import Task

_NUMBER: Final = re.compile(r"(\d+)")

NaturalKey = tuple[tuple[int, int, str], ...]


def natural_key(name: str) -> NaturalKey:
    """Return a sort key that compares the numbers in a name as numbers.

    The platform numbers the containers of a job, and frameworks number their ranks in that order:
    so `w2` comes before `w10`.

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
    """One endpoint of a job: an RNIC in a container on a host."""

    endpoint_id: str
    container_id: str
    host: str
    rail: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """The RNICs of a job, and its number of GPUs where that is known."""

    task_id: str
    rnics: tuple[Rnic, ...]
    gpus: int | None = None

    @cached_property
    def ordered(self) -> tuple[Rnic, ...]:
        """The RNICs in the platform's order: by container, host and rail."""
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
        """Return the job that a task.v1 record describes; a repeated endpoint counts once."""
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
