"""The shape of a lab: hosts, RNICs, switches, links, and the names of all of them."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

from arena.world.topology import Cable, agent_id, host_id, rnic_id, spine_id
from ops.lab.errors import LabUsageError
from schemas.ids import check_id

# A relay needs a socket for each node; these bounds keep a lab below the 1,024
# files that a process may open by default on macOS and many Linux systems.
MAX_HOSTS: Final = 64
MAX_RAILS: Final = 8
MAX_SWITCHES: Final = 64


class ShapeError(LabUsageError):
    """A shape that cannot be built; the message names every parameter that is wrong."""


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One RNIC of one container: where it stands, and what it hangs on."""

    endpoint_id: str
    container_id: str
    agent_id: str
    host: int
    rail: int
    host_id: str
    vswitch_id: str
    rnic_id: str


@dataclass(frozen=True, kw_only=True)
class LabShape:
    """Numbers of hosts, RNICs per host, pods, leaves per pod, spines.

    Hosts are split evenly over the pods. In each pod the rails are split over
    the leaves, so that RNICs of one rail share a leaf: traffic of a rail stays
    below it, or crosses exactly one spine to another pod.

    Raises
    ------
    ShapeError
        If a number is out of its bounds.
    """

    hosts: int = 4
    rails: int = 4
    pods: int = 2
    leaves: int = 2
    spines: int = 2
    task_id: str = "job1"

    def __post_init__(self) -> None:
        wrong = [
            f"{name}={value}: {low} to {high} ({why})"
            for name, value, low, high, why in (
                ("hosts", self.hosts, 1, MAX_HOSTS, "each is one container"),
                ("rails", self.rails, 1, MAX_RAILS, "RNICs per host"),
                ("pods", self.pods, 1, max(1, min(self.hosts, MAX_SWITCHES)), "none without host"),
                ("leaves", self.leaves, 1, max(1, self.rails), "per pod, none without rail"),
                ("spines", self.spines, 1, MAX_SWITCHES, "joined to every leaf"),
            )
            if not low <= value <= high
        ]
        try:
            check_id("task_id", self.task_id)
        except ValueError as error:
            wrong.append(str(error))
        if wrong:
            raise ShapeError("; ".join(wrong))

    def as_dict(self) -> dict[str, int | str]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def pod_of(self, host: int) -> int:
        """Return the pod of a host."""
        return host * self.pods // self.hosts

    def leaf_of(self, host: int, rail: int) -> str:
        """Return the leaf switch on which an RNIC hangs."""
        return f"leaf:p{self.pod_of(host)}-{rail * self.leaves // self.rails}"

    def host_ids(self) -> list[str]:
        """Return the ids of the hosts, in order."""
        return [host_id(host) for host in range(self.hosts)]

    def vswitch_ids(self) -> list[str]:
        """Return the ids of the virtual switches, one per host."""
        return [f"vsw:h{host}" for host in range(self.hosts)]

    def rnic_ids(self) -> list[str]:
        """Return the ids of the RNICs, host by host."""
        return [e.rnic_id for e in self.endpoints]

    def leaf_ids(self) -> list[str]:
        """Return the ids of the leaf switches, pod by pod."""
        return [f"leaf:p{pod}-{leaf}" for pod in range(self.pods) for leaf in range(self.leaves)]

    def spine_ids(self) -> list[str]:
        """Return the ids of the spine switches."""
        return [spine_id(spine) for spine in range(self.spines)]

    def switch_ids(self) -> list[str]:
        """Return the ids of all physical switches."""
        return self.leaf_ids() + self.spine_ids()

    def node_ids(self) -> list[str]:
        """Return everything that forwards packets: virtual switches, RNICs, leaves, spines."""
        return self.vswitch_ids() + self.rnic_ids() + self.switch_ids()

    def agent_ids(self) -> list[str]:
        """Return the ids of the agents, one per host."""
        return [agent_id(host) for host in range(self.hosts)]

    @cached_property
    def endpoints(self) -> tuple[EndpointSpec, ...]:
        """All endpoints, host by host, rail by rail."""
        return tuple(
            EndpointSpec(
                endpoint_id=f"{self.task_id}-w{host}/r{rail}",
                container_id=f"{self.task_id}-w{host}",
                agent_id=agent_id(host),
                host=host,
                rail=rail,
                host_id=host_id(host),
                vswitch_id=f"vsw:h{host}",
                rnic_id=rnic_id(host, rail),
            )
            for host in range(self.hosts)
            for rail in range(self.rails)
        )

    @cached_property
    def links(self) -> tuple[Cable, ...]:
        """All cables: RNIC to leaf, leaf to spine."""
        leaves = (Cable.between(e.rnic_id, self.leaf_of(e.host, e.rail)) for e in self.endpoints)
        spines = (Cable.between(x, y) for x in self.leaf_ids() for y in self.spine_ids())
        return (*leaves, *spines)
