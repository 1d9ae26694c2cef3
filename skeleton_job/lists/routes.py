"""Which registration goes to which partition of `target.v1`. Pure.

An agent reads one partition of `target.v1`. There it finds, as they were registered, the endpoints
that it may need: the targets of its list, its own endpoints, and those of its host. A registration
is copied to the partitions of the agents that need it: as many as probe it, however large the
cluster is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from schemas.kafka.murmur2 import partition_of
from schemas.records import Endpoint


class Copy(NamedTuple):
    """A registration to write; `value` None is a tombstone."""

    partition: int
    endpoint_id: str
    value: bytes | None


class _Registered(NamedTuple):
    value: bytes
    agent_id: str
    host_id: str


class Routes:
    """Registrations, who needs them, and where copies of them stand.

    Parameters
    ----------
    partitions : number of partitions of `target.v1`
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._registered: dict[str, _Registered] = {}
        self._lists: dict[str, frozenset[str]] = {}
        # Target → partition → how many agents of that partition have it on their lists.
        self._probed: dict[str, Counter[int]] = {}
        # Host → its agents, with the number of their endpoints; and its endpoints.
        self._agents: dict[str, Counter[str]] = {}
        self._endpoints: dict[str, set[str]] = {}
        # Endpoint → partition → the copy that stands there.
        self._copies: dict[str, dict[int, bytes]] = {}
        self._dirty: set[str] = set()

    def set_registration(
        self, endpoint_id: str, endpoint: Endpoint | None, value: bytes | None
    ) -> None:
        """Note a registration, as a record and as the bytes that its agent wrote; None: it left."""
        old = self._registered.pop(endpoint_id, None)
        if old is not None:
            self._count(endpoint_id, old, -1)
        if endpoint is not None and value is not None:
            new = _Registered(value, endpoint.agent_id, endpoint.host_id)
            self._registered[endpoint_id] = new
            self._count(endpoint_id, new, 1)
        self._dirty.add(endpoint_id)

    def set_targets(self, agent_id: str, targets: Iterable[str]) -> None:
        """Note whom an agent probes by its latest list."""
        old, new = self._lists.pop(agent_id, frozenset()), frozenset(targets)
        if new:
            self._lists[agent_id] = new
        partition = self._place(agent_id)
        for endpoint_id in new - old:
            self._probed.setdefault(endpoint_id, Counter())[partition] += 1
        for endpoint_id in old - new:
            probed = self._probed[endpoint_id]
            probed[partition] -= 1
            if not probed[partition]:
                del probed[partition]
            if not probed:
                del self._probed[endpoint_id]
        self._dirty |= new ^ old

    def restore(self, partition: int, endpoint_id: str, value: bytes | None) -> None:
        """Note what stands in a partition; None: nothing does."""
        copies = self._copies.setdefault(endpoint_id, {})
        if value is None:
            copies.pop(partition, None)
        else:
            copies[partition] = value
        if not copies:
            del self._copies[endpoint_id]
        self._dirty.add(endpoint_id)

    def due(self) -> Iterator[Copy]:
        """Yield the copies that are missing, outdated or not needed, and count them as written."""
        dirty, self._dirty = self._dirty, set()
        for endpoint_id in sorted(dirty):
            registered = self._registered.get(endpoint_id)
            there = self._copies.get(endpoint_id, {})
            wanted = frozenset[int]() if registered is None else self._needed(endpoint_id)
            for partition in sorted(there.keys() - wanted):
                yield Copy(partition, endpoint_id, None)
            if registered is None:
                self._copies.pop(endpoint_id, None)
                continue
            for partition in sorted(wanted):
                if there.get(partition) != registered.value:
                    yield Copy(partition, endpoint_id, registered.value)
            self._copies[endpoint_id] = dict.fromkeys(wanted, registered.value)

    def failed(self, copy: Copy) -> None:
        """Note that a copy was not delivered; it is written again."""
        # It stands there or not: bytes that nobody registers differ from both.
        self.restore(copy.partition, copy.endpoint_id, b"")

    def __len__(self) -> int:
        """How many registrations and listed targets are known."""
        return len(self._registered) + len(self._probed)

    def _needed(self, endpoint_id: str) -> frozenset[int]:
        """Return the partitions of those who probe an endpoint or live on its host."""
        host_id = self._registered[endpoint_id].host_id
        here = {self._place(agent_id) for agent_id in self._agents[host_id]}
        return frozenset(here | self._probed.get(endpoint_id, Counter()).keys())

    def _count(self, endpoint_id: str, registered: _Registered, change: int) -> None:
        """Add an endpoint to its host, or remove it (-1)."""
        host_id, agent_id = registered.host_id, registered.agent_id
        agents = self._agents.setdefault(host_id, Counter())
        endpoints = self._endpoints.setdefault(host_id, set())
        before = agents[agent_id]
        agents[agent_id] += change
        if change > 0:
            endpoints.add(endpoint_id)
        else:
            endpoints.discard(endpoint_id)
        if not before or not agents[agent_id]:
            # An agent that is new on a host needs all endpoints there; one that left, none.
            self._dirty |= endpoints
        if not agents[agent_id]:
            del agents[agent_id]
        if not agents:
            del self._agents[host_id], self._endpoints[host_id]

    def _place(self, agent_id: str) -> int:
        return partition_of(agent_id.encode(), self._partitions)
