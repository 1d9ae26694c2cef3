"""Size, duration and planned faults of a simulated cluster. Data."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Final, Self

from arena.world.fabric import Fabric, FabricShape

CLUSTER: Final = "bench"
RAILS: Final = 8
# The published cluster: 2,000 container creations a minute in 40,000 RNICs.
FULL_AGENTS: Final = 5_000
FULL_CONTAINERS_A_MINUTE: Final = 2_000
# Of ten jobs, eight of two hosts: 2,000 jobs on 5,000 hosts.
JOB_HOSTS: Final = (2, 2, 2, 4, 2, 2, 2, 2, 4, 3)
# A container's host stands empty for so long before the next one.
IDLE_S: Final = 5.0
RNIC: Final = "an RNIC is dead"
SPINE: Final = "a spine is dead"
# Faults begin after these shares of the time.
FAULTS: Final = ((RNIC, 0.2), (SPINE, 0.6))
# Verdict, updates and some quiet time after it.
LEAST_FAULT_S: Final = 8.0
MOST_FAULT_S: Final = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """A fault of a run: what, and between which seconds of it."""

    what: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class ClusterShape:
    """A cluster of so many hosts with an agent and eight RNICs each.

    Attributes
    ----------
    warm_s
        How long the cluster lives before anything is counted: that a localizer which has just
        started takes in a whole cluster is measured elsewhere (`localizer-start`).
    counters_every
        One agent of so many publishes counters, at 10 Hz: those of all would take the
        skeleton job's core (the part `skeleton-intake` measures that alone).
    faults
        Whether anything goes wrong.
    """

    agents: int = FULL_AGENTS
    seconds: int = 600
    warm_s: int = 60
    counters_every: int = 10
    faults: bool = True
    seed: int = 20262

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shape that `text` made a text of."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """Return the shape as an argument of a command line."""
        return json.dumps(asdict(self))

    @property
    def rnics(self) -> int:
        """RNICs of all hosts."""
        return self.agents * RAILS

    @property
    def containers_hz(self) -> float:
        """Containers that begin in a second: those of the published cluster, by its size."""
        return FULL_CONTAINERS_A_MINUTE / 60 * self.agents / FULL_AGENTS

    @property
    def spare(self) -> int:
        """Hosts that are always free: what `IDLE_S` of churn needs."""
        return max(*JOB_HOSTS, round(IDLE_S * self.containers_hz))

    @property
    def lasts_s(self) -> float:
        """How long each fault lasts."""
        return min(MOST_FAULT_S, max(LEAST_FAULT_S, self.seconds / 8))

    @property
    def lead_s(self) -> float:
        """How long ahead agents know of a fault: they encode thousands of new rounds by then."""
        return self.lasts_s / 4

    @property
    def planned(self) -> tuple[PlannedFault, ...]:
        """The faults in the order of time; none overlaps another."""
        if not self.faults:
            return ()
        return tuple(
            PlannedFault(what=what, begin_s=begin_s, end_s=begin_s + self.lasts_s)
            for what, begin_s in ((what, share * self.seconds) for what, share in FAULTS)
        )

    @cached_property
    def fabric(self) -> Fabric:
        """Two tiers; segments and spines in proportion, so that a spine is a few in a hundred."""
        return Fabric(
            FabricShape(
                hosts=self.agents,
                rails=RAILS,
                segment_hosts=max(2, min(64, self.agents // 8)),
                spines=max(4, min(32, self.agents // 16)),
            )
        )
