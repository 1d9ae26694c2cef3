"""Where the ranks of a job are placed, and which of them exchange data.

A *block* is one tensor-parallel group: all GPUs at one (stage, replica, context)
position. A *slot* is a set of neighbouring NICs of a host that one block uses; a *lane* is
one slot of one host. All NICs of a lane carry the same bytes, so traffic is computed per lane.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arena.workload.spec import JobSpec
from schemas.columns.arrays import Int64s


@dataclass(frozen=True)
class Layout:
    """The positions of a job's blocks.

    Lanes are numbered host × slots + slot; hosts in the order of the ranks.
    """

    spec: JobSpec

    @cached_property
    def lane_of(self) -> Int64s:
        """Lane of each block, shape (pp, dp, cp)."""
        s = self.spec
        stage, replica, context = np.meshgrid(
            np.arange(s.pp), np.arange(s.dp), np.arange(s.cp), indexing="ij"
        )
        if s.order == "tp-cp-dp-pp":
            block = (stage * s.dp + replica) * s.cp + context
        else:
            block = (replica * s.pp + stage) * s.cp + context
        gpu = block * s.tp
        host, local = gpu // s.gpus_per_host, gpu % s.gpus_per_host
        slot = local * s.nics_per_host // s.gpus_per_host // s.width
        lanes: Int64s = host * s.slots + slot
        return lanes

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return self.spec.hosts * self.spec.slots

    def host(self, lanes: Int64s) -> Int64s:
        """Return the host of each lane."""
        out: Int64s = lanes // self.spec.slots
        return out

    def across(self, src: int, dst: int) -> tuple[int, int] | None:
        """Return the lanes that carry what block at lane src sends to lane dst.

        None inside a host. With PXN the sending NIC is the one on the receiver's rail.
        """
        slots = self.spec.slots
        if src // slots == dst // slots:
            return None
        if self.spec.pxn:
            return src - src % slots + dst % slots, dst
        return src, dst

    def gradient_groups(self) -> list[tuple[int, list[int]]]:
        """Return (stage, lanes in rank order) of each gradient sum, over replicas and contexts."""
        return [(p, self.lane_of[p].ravel().tolist()) for p in range(self.spec.pp)]

    def context_groups(self) -> list[tuple[int, int, list[int]]]:
        """Return (stage, unit, lanes) of each context ring."""
        s = self.spec
        if s.cp == 1:
            return []
        return [
            (p, d // s.ep, self.lane_of[p, d].tolist()) for p in range(s.pp) for d in range(s.dp)
        ]

    def expert_groups(self) -> list[tuple[int, int, list[int]]]:
        """Return (stage, unit, lanes) of each all-to-all."""
        s = self.spec
        if s.ep == 1:
            return []
        return [
            (p, d // s.ep, self.lane_of[p, d : d + s.ep, c].tolist())
            for p in range(s.pp)
            for d in range(0, s.dp, s.ep)
            for c in range(s.cp)
        ]


def group_by_host(lanes: list[int], slots: int) -> list[list[int]]:
    """Return a group's lanes host by host, the hosts in the order of their first lane.

    >>> group_by_host([0, 1, 4, 5], 2)
    [[0, 1], [4, 5]]
    """
    hosts: dict[int, list[int]] = {}
    for lane in lanes:
        members = hosts.setdefault(lane // slots, [])
        if lane not in members:
            members.append(lane)
    return list(hosts.values())
