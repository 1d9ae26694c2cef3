"""How a training job is laid out: its ranks, their hosts and communicators.

Ranks are numbered as Megatron does: tensor parallelism varies fastest, then data parallelism,
then the stage of the pipeline. Expert parallelism takes neighbours of the data-parallel dimension.
Each rank has an RNIC of its own.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from arena.world.topology import endpoint_id, host_id
from schemas.enums import CommunicatorRole

GLOO: Final = "gloo"
NCCL: Final = "nccl"
TCP: Final = "tcp"
RDMA: Final = "rdma"
# PyTorch's defaults (ms).
TIMEOUT_MS: Final = {GLOO: 1_800_000, NCCL: 600_000}


class ShapeError(ValueError):
    """A job that cannot be laid out; the message says why."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A communicator.

    Attributes
    ----------
    number
        Its place among the job's communicators; its name is the number as text.
    description
        As PyTorch records it.
    ranks
        Members, in the order in which the ring goes.
    spans
        Whether members are on several hosts, so that bytes cross the network.
    """

    number: int
    description: str
    role: CommunicatorRole
    ranks: tuple[int, ...]
    spans: bool

    @property
    def name(self) -> str:
        """Its name, the same in all ranks."""
        return str(self.number)


@dataclass(frozen=True, kw_only=True)
class JobShape:
    """Sizes of a job, and how its library works.

    Attributes
    ----------
    tp, pp, dp
        Degrees of tensor, pipeline and data parallelism; their product is the number of ranks.
    ep
        Ranks of an expert-parallel group; 1: no experts.
    rails
        Ranks, and RNICs, of a host.
    library
        `gloo`: the program waits for each operation. `nccl`: it runs ahead of the GPU.
    transport
        `tcp`, or `rdma`, of which the kernel's sockets show nothing.
    timed
        Whether NCCL's recorder has times of the start (TORCH_NCCL_ENABLE_TIMING).
    microbatches
        Of an iteration.
    forward_us
        A stage's computing of one microbatch forward; backward takes twice as long.
    ring
        Operations that the recorder holds (TORCH_FR_BUFFER_SIZE).

    Raises
    ------
    ShapeError
        If the degrees do not fit.
    """

    tp: int = 2
    pp: int = 2
    dp: int = 4
    ep: int = 2
    rails: int = 2
    library: str = GLOO
    transport: str = TCP
    timed: bool = True
    microbatches: int = 4
    forward_us: int = 60_000
    ring: int = 500
    task_id: str = "job-a"

    def __post_init__(self) -> None:
        if min(self.tp, self.pp, self.dp, self.ep, self.rails, self.microbatches) < 1:
            raise ShapeError("all degrees are at least 1")
        if self.dp % self.ep or self.ranks % self.rails:
            raise ShapeError("ep divides dp, and rails the number of ranks")
        if self.library not in TIMEOUT_MS or self.transport not in {TCP, RDMA}:
            raise ShapeError(f"library {self.library!r}, transport {self.transport!r}")

    @property
    def ranks(self) -> int:
        """How many ranks the job has."""
        return self.tp * self.pp * self.dp

    @property
    def hosts(self) -> int:
        """How many hosts; the job has them whole."""
        return self.ranks // self.rails

    @property
    def waits_for_each(self) -> bool:
        """Whether the program waits for each operation."""
        return self.library == GLOO

    def host(self, rank: int) -> int:
        """Return the number of a rank's host."""
        return rank // self.rails

    def host_name(self, rank: int) -> str:
        """Return the id of a rank's host."""
        return host_id(self.host(rank))

    def endpoint(self, rank: int) -> str:
        """Return the id of a rank's endpoint."""
        return endpoint_id(*divmod(rank, self.rails))

    def stage(self, rank: int) -> int:
        """Return a rank's stage of the pipeline."""
        return rank // (self.tp * self.dp)

    @cached_property
    def groups(self) -> tuple[GroupShape, ...]:
        """All communicators, that of all ranks first; none of a single rank."""
        every = range(self.ranks)
        members: dict[tuple[str, int], list[int]] = defaultdict(list)
        for rank in every:
            tensor = rank // self.tp
            stage = self.stage(rank)
            replica = tensor % self.dp
            place = rank % self.tp
            members["tp", tensor].append(rank)
            members["pp", replica * self.tp + place].append(rank)
            members["dp", stage * self.tp + place].append(rank)
            block = (stage * (self.dp // self.ep) + replica // self.ep) * self.tp + place
            members["ep", block].append(rank)
        roles = {
            "tp": CommunicatorRole.TP, "pp": CommunicatorRole.PP, "dp": CommunicatorRole.DP,
            "ep": CommunicatorRole.EP,
        }  # fmt: skip
        found = [self._group(0, "default_pg", CommunicatorRole.WORLD, list(every))]
        for (name, _), ranks in sorted(members.items()):
            if len(ranks) > 1:
                found.append(self._group(len(found), f"mesh_{name}", roles[name], ranks))
        return tuple(found)

    def _group(
        self, number: int, description: str, role: CommunicatorRole, ranks: list[int]
    ) -> GroupShape:
        spans = len({self.host(rank) for rank in ranks}) > 1
        return GroupShape(number, description, role, tuple(ranks), spans)

    @cached_property
    def groups_of(self) -> tuple[dict[CommunicatorRole, GroupShape], ...]:
        """By rank: its communicators by what they are for."""
        found: list[dict[CommunicatorRole, GroupShape]] = [{} for _ in range(self.ranks)]
        for group in self.groups:
            for rank in group.ranks:
                found[rank][group.role] = group
        return tuple(found)
