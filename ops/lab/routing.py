"""Next hops of the fabric: by flow table in the hosts, by ECMP hash between leaves and spines."""

import hashlib
from dataclasses import dataclass
from typing import Final

from ops.lab.overlay import Missing, Overlay
from ops.lab.shape import EndpointSpec, LabShape

SALT: Final = b"skeletonhunter"
DIGEST_BYTES: Final = 8


def flow_hash(src: bytes, dst: bytes, entropy: bytes) -> int:
    """Return the hash of a 5-tuple; the same for both directions.

    `src` and `dst` are address and port as they stand in the header. They are
    put in order before hashing, so that a reply, which keeps the entropy of its
    request, crosses the same links: a loss then speaks about one path, not two.
    Real switches do the same where "symmetric hashing" is configured. A
    cryptographic hash, since CRCs are linear and would send consecutive entropy
    numbers to few of the next hops; it is computed once per 5-tuple.
    """
    low, high = (src, dst) if src <= dst else (dst, src)
    digest = hashlib.blake2b(low + high + entropy, digest_size=DIGEST_BYTES, key=SALT)
    return int.from_bytes(digest.digest())


# Longer than any way through the fabric: what has not arrived by then loops.
MAX_STEPS: Final = 64


@dataclass(frozen=True, slots=True)
class Step:
    """The next node (or the target endpoint); `cabled` if a physical link leads there."""

    next_id: str
    cabled: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """A packet's way: the nodes and at last the endpoint, or where and why it ended."""

    nodes: tuple[str, ...]
    missing: Missing | None = None


class Router:
    """Next hops: by flow table in the hosts, by tunnel end and ECMP hash in the fabric."""

    def __init__(self, shape: LabShape, overlay: Overlay) -> None:
        self._overlay = overlay
        self._spines = shape.spine_ids()
        self._leaves = frozenset(shape.leaf_ids())
        self._vswitches = frozenset(shape.vswitch_ids())
        self._leaf_of = {e.rnic_id: shape.leaf_of(e.host, e.rail) for e in shape.endpoints}

    def step(
        self, node: str, src: EndpointSpec, dst: EndpointSpec, flow_hash: int
    ) -> Step | Missing:
        """Return where `node` sends a packet of that 5-tuple, or why it cannot."""
        if node in self._vswitches:
            found = self._overlay.next_hop(node, dst.endpoint_id)
            return found if isinstance(found, Missing) else Step(found, cabled=False)
        if node in self._leaf_of:
            return self._from_rnic(node, dst)
        tunnel_end = self._overlay.tunnel_end(src, dst)
        if tunnel_end is None:
            return Missing.UNKNOWN
        leaf = self._leaf_of[tunnel_end]
        if node == leaf:
            return Step(tunnel_end, cabled=True)
        if node in self._leaves:
            return Step(self._spines[flow_hash % len(self._spines)], cabled=True)
        return Step(leaf, cabled=True)

    def _from_rnic(self, rnic: str, dst: EndpointSpec) -> Step | Missing:
        found = self._overlay.next_hop(rnic, dst.endpoint_id)
        if isinstance(found, Missing):
            return found
        if found in self._leaf_of:
            return Step(self._leaf_of[rnic], cabled=True)
        return Step(found, cabled=False)

    def walk(self, src: EndpointSpec, dst: EndpointSpec, flow_hash: int) -> Walk:
        """Return the whole way of a packet, at most 64 steps of it.

        The nodes are those that a trace by ttl sees, in order; the target
        endpoint is the last when the packet arrives.
        """
        node, nodes = src.vswitch_id, [src.vswitch_id]
        while len(nodes) < MAX_STEPS:
            step = self.step(node, src, dst, flow_hash)
            if isinstance(step, Missing):
                return Walk(tuple(nodes), step)
            nodes.append(step.next_id)
            if step.next_id == dst.endpoint_id:
                break
            node = step.next_id
        return Walk(tuple(nodes))
