"""Which pairs of endpoints have no entry in the overlay's flow tables.

A table says it of an endpoint and a destination if both stand in it, but not together, and never
did: an entry that was there and is gone is a fault, and its pair must stay on the ping lists.
"""

from collections.abc import Set
from typing import Final

from schemas.records import FlowTable

# Pairs remembered for all hosts, and of one host; beyond them a table says nothing.
MAX_PAIRS: Final = 2_000_000
MAX_HOST_PAIRS: Final = 65_536

Lacking = dict[str, frozenset[str]]


class Ways:
    """The destinations that endpoints lack in the latest flow tables."""

    def __init__(self) -> None:
        # By host: the destinations that its table names, and those that each endpoint lacks.
        self._hosts: dict[str, tuple[frozenset[str], Lacking]] = {}
        self._lacking: Lacking = {}
        self._pairs = 0

    def set_table(self, host_id: str, table: FlowTable | None) -> Set[str]:
        """Replace the table of a host, or forget it (None).

        Returns
        -------
        The endpoints of which it says something else now.
        """
        named, before = self._hosts.pop(host_id, (frozenset[str](), Lacking()))
        self._pairs -= _count(before)
        for endpoint_id in before:
            self._lacking.pop(endpoint_id, None)
        now = Lacking()
        if table is not None:
            dsts, now = _lacking(table)
            for endpoint_id, lacks in now.items():
                # What the last table named and did not lack, it had.
                had = named - before.get(endpoint_id, frozenset())
                now[endpoint_id] = lacks - had if endpoint_id in named else lacks
            if _count(now) > min(MAX_HOST_PAIRS, MAX_PAIRS - self._pairs):
                now = Lacking()
            self._hosts[host_id] = dsts, now
            self._pairs += _count(now)
            self._lacking |= now
        return {e for e in before.keys() | now.keys() if before.get(e) != now.get(e)}

    def lacks(self, one: str, other: str) -> bool:
        """Return whether either endpoint lacks an entry for the other."""
        nothing = frozenset[str]()
        return other in self._lacking.get(one, nothing) or one in self._lacking.get(other, nothing)


def _lacking(table: FlowTable) -> tuple[frozenset[str], Lacking]:
    """Return the destinations that a table names, and those that each of its endpoints lacks."""
    entries: dict[str, set[str]] = {}
    for entry in table.entries:
        entries.setdefault(entry.node, set()).add(entry.dst)
    dsts = frozenset[str]().union(*entries.values())
    # A host's own endpoints are nodes and destinations; virtual switches are nodes only.
    return dsts, {node: dsts - known - {node} for node, known in entries.items() if node in dsts}


def _count(lacking: Lacking) -> int:
    return sum(map(len, lacking.values()))
