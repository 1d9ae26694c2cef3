"""Hosts, their RNICs, and where the ranks of a job run.

A rank is one GPU. It sends through one RNIC, the nearest of its host, which it may share with
other GPUs. The degrees of parallelism and their nesting say what a rank's number means: the first
axis of the nesting changes fastest, as in the rank generators of training frameworks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

AXES: Final = ("pp", "dp", "cp", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host: its name, its number of GPUs, and the rails of its RNICs."""

    name: str
    gpus: int
    rails: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A GPU of a host that a job uses, by the host's place in the fleet."""

    host: int
    gpu: int


class Fleet:
    """All hosts of a capture, and a number for each of their RNICs."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = tuple(hosts)
        self.rnic_host: list[int] = []
        self.rnic_rail: list[int] = []
        self.names: list[str] = []
        self._numbers: dict[tuple[int, int], int] = {}
        for place, host in enumerate(self.hosts):
            for rail in host.rails:
                self._numbers[place, rail] = len(self.names)
                self.rnic_host.append(place)
                self.rnic_rail.append(rail)
                self.names.append(f"{host.name}/r{rail}")

    def __len__(self) -> int:
        return len(self.names)

    def rnic_of(self, seat: Seat) -> int:
        """Return the number of the RNIC through which a GPU sends."""
        host = self.hosts[seat.host]
        nearest = seat.gpu * len(host.rails) // host.gpus
        return self._numbers[seat.host, host.rails[nearest]]

    def rnic_at(self, host: int, rail: int) -> int | None:
        """Return the number of a host's RNIC on a rail, None if it has none there."""
        return self._numbers.get((host, rail))


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Degrees of parallelism, and the nesting of the axes with the fastest first."""

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    nesting: tuple[str, ...] = ("tp", "cp", "dp", "pp")

    @property
    def ranks(self) -> int:
        """Number of GPUs. Expert groups are cut from the replicas and need none of their own."""
        return self.tp * self.cp * self.dp * self.pp

    def of(self, axis: str) -> int:
        """Return the degree of an axis."""
        return {"tp": self.tp, "cp": self.cp, "dp": self.dp, "pp": self.pp}[axis]


class Layout:
    """The ranks of a job on the seats that it was given.

    Attributes
    ----------
    grid
        Ranks, shape (pp, dp, cp, tp).
    rnic, host
        RNIC and host of each rank, by their numbers in the fleet; shape (ranks,).
    """

    def __init__(self, fleet: Fleet, degrees: Degrees, seats: Sequence[Seat]) -> None:
        if len(seats) != degrees.ranks:
            raise ValueError(f"{degrees.ranks} ranks do not fit on {len(seats)} seats")
        self.fleet = fleet
        self.degrees = degrees
        outer_first = tuple(reversed(degrees.nesting))
        ranks = np.arange(degrees.ranks, dtype=np.int64)
        nested = ranks.reshape([degrees.of(axis) for axis in outer_first])
        self.grid: IntArray = nested.transpose([outer_first.index(axis) for axis in AXES])
        self.rnic: IntArray = np.array([fleet.rnic_of(seat) for seat in seats], np.int64)
        self.host: IntArray = np.array([seat.host for seat in seats], np.int64)

    @property
    def rnics(self) -> frozenset[int]:
        """Numbers of the job's RNICs."""
        return frozenset(self.rnic.tolist())

    def fits(self) -> bool:
        """Say whether tensor groups stay in a host, and no RNIC serves two stages or replicas."""
        hosts = self.host[self.grid]
        if not bool((hosts == hosts[..., :1]).all()):
            return False
        owner: dict[int, tuple[int, int, int]] = {}
        for (stage, replica, part, _), rank in np.ndenumerate(self.grid):
            place = (stage, replica, part)
            if owner.setdefault(int(self.rnic[rank]), place) != place:
                return False
        return True

    def stages(self) -> tuple[frozenset[str], ...]:
        """Names of the RNICs by pipeline stage, the first stage first."""
        return tuple(self._names(part) for part in self.grid)

    def replicas(self) -> tuple[frozenset[str], ...]:
        """Names of the RNICs by replica."""
        return tuple(self._names(self.grid[:, replica]) for replica in range(self.degrees.dp))

    def gradient_groups(self, stage: int) -> list[IntArray]:
        """Ranks of a stage that sum their gradients: all replicas and all context parts."""
        return [self.grid[stage, :, :, tensor].reshape(-1) for tensor in range(self.degrees.tp)]

    def expert_groups(self, stage: int) -> list[IntArray]:
        """Ranks of a stage that exchange tokens: `ep` successive replicas."""
        size = self.degrees.ep
        return [
            self.grid[stage, first : first + size, part, tensor]
            for first in range(0, self.degrees.dp, size)
            for part in range(self.degrees.cp)
            for tensor in range(self.degrees.tp)
        ]

    def expert_gradient_groups(self, stage: int) -> list[IntArray]:
        """Ranks of a stage that hold the same experts."""
        size = self.degrees.ep
        return [
            self.grid[stage, first::size, :, tensor].reshape(-1)
            for first in range(size)
            for tensor in range(self.degrees.tp)
        ]

    def context_groups(self, stage: int, replica: int) -> list[IntArray]:
        """Ranks of a stage and replica that share one sequence."""
        return [self.grid[stage, replica, :, tensor] for tensor in range(self.degrees.tp)]

    def _names(self, ranks: IntArray) -> frozenset[str]:
        return frozenset(self.fleet.names[rnic] for rnic in self.rnic[ranks].reshape(-1))
