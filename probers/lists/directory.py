"""The registered endpoints that the agent needs, and some that it may need later. Pure.

A cluster has tens of thousands of endpoints; an agent probes some dozens. Endpoints on the ping
list are always kept. Of the others the latest `spare` are kept, for a ping list that comes later
than the registrations it names. If that was not enough, `set_wanted` says so, and the agent reads
the (compacted) topic again.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from schemas.records import Endpoint

# 0.5 KB each: 1 MB at most.
SPARE_ENDPOINTS: Final = 2_000


class Directory:
    """Registrations by endpoint id, bounded.

    Records read for the second time are `replayed`. They are old, so they count only when the
    second reading has ended, and then all at once.
    """

    def __init__(self, spare: int = SPARE_ENDPOINTS) -> None:
        self._spare = spare
        self._wanted: frozenset[str] = frozenset()
        self._kept: dict[str, Endpoint] = {}
        self._others: OrderedDict[str, Endpoint] = OrderedDict()
        self._replayed: dict[str, Endpoint] = {}
        self._forgotten = False

    def emptied(self) -> "Directory":
        """Return one without registrations that wants the same endpoints."""
        other = Directory(self._spare)
        other.set_wanted(self._wanted)
        return other

    def __len__(self) -> int:
        return len(self._kept) + len(self._others)

    def get(self, endpoint_id: str) -> Endpoint | None:
        """Return the registration of a wanted endpoint; None where it has not registered."""
        return self._kept.get(endpoint_id)

    def add_registration(self, endpoint: Endpoint, *, replayed: bool = False) -> bool:
        """Add or replace a registration; return whether a wanted endpoint has changed."""
        name = endpoint.endpoint_id
        if replayed:
            if name in self._wanted:
                self._replayed[name] = endpoint
            return False
        if name in self._wanted:
            changed = self._kept.get(name) != endpoint
            self._kept[name] = endpoint
            return changed
        self._others[name] = endpoint
        self._others.move_to_end(name)
        self._trim()
        return False

    def remove_registration(self, endpoint_id: str, *, replayed: bool = False) -> bool:
        """Remove a registration; return whether a wanted endpoint has left."""
        self._replayed.pop(endpoint_id, None)
        if replayed:
            return False
        self._others.pop(endpoint_id, None)
        return self._kept.pop(endpoint_id, None) is not None

    def set_wanted(self, endpoint_ids: Iterable[str]) -> bool:
        """Replace the wanted ids; return whether one may have been forgotten that is needed."""
        self._wanted = frozenset(endpoint_ids)
        for name in [n for n in self._kept if n not in self._wanted]:
            self._others[name] = self._kept.pop(name)
        for name in [n for n in self._others if n in self._wanted]:
            self._kept[name] = self._others.pop(name)
        self._trim()
        return self._forgotten and len(self._kept) < len(self._wanted)

    def read_to_end(self) -> bool:
        """Apply the replayed records; return whether a wanted endpoint has changed."""
        missing = {n: e for n, e in self._replayed.items() if n not in self._kept}
        self._kept.update(missing)
        self._replayed.clear()
        return bool(missing)

    def _trim(self) -> None:
        while len(self._others) > self._spare:
            self._others.popitem(last=False)
            self._forgotten = True
