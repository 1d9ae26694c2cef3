"""Keeps the index of probed 5-tuples, and the ways of replies, up to date.

Follows ping lists, registrations, traces and moved endpoints change by change. A change of the
fabric rebuilds everything.
"""

from collections import defaultdict
from collections.abc import Container, Iterable
from itertools import compress
from typing import Final

import numpy as np

from localizer.facts.roster import Roster
from localizer.network.directions import Directions
from localizer.network.flow_index import FIRST, NOTHING, FlowIndex, NewFlow
from localizer.network.paths import PathBook
from localizer.network.plain_routes import Ends
from localizer.network.replies import ReplyWays
from localizer.network.topology import Topology
from schemas.ids import FlowId

NONE: Final[frozenset[str]] = frozenset()
# The index renumbers its endpoints when it has this many unused numbers, and as many as are in use;
# it is built anew when it has so many unused numbers of agents and components.
SPARE_NUMBERS: Final = 1_024
# Fewer 5-tuples are added sooner one by one.
LEAST: Final = 8


class IndexCache:
    """The index of probed 5-tuples, updated on each access."""

    def __init__(self, roster: Roster, paths: PathBook, topology: Topology) -> None:
        self._roster = roster
        self._paths = paths
        self._topology = topology
        self._version: int | None = None
        # 5-tuples at the last `prepare`.
        self._prepared = 0
        self._begin(None)

    def _begin(self, before: Directions | None) -> None:
        self._index = FlowIndex()
        # Count of numbers at which their use is looked at again.
        self._check_at = SPARE_NUMBERS
        self._replies = ReplyWays(self._topology, self._index)
        self._places = Directions(self._index, self._topology, self._replies, before=before)
        self._lists: dict[str, set[FlowId]] = {}
        # By 5-tuple the agents that list it; by endpoint the agents whose lists name it.
        self._owners: dict[FlowId, tuple[str, ...]] = {}
        self._naming: defaultdict[str, set[str]] = defaultdict(set)
        self._named: dict[str, set[str]] = {}

    @property
    def probed(self) -> Container[FlowId]:
        """The 5-tuples on ping lists at the last refresh."""
        return self._owners.keys()

    def refresh(self) -> FlowIndex:
        """Apply all changes since the last call; return the index."""
        agents, endpoints = self._roster.pop_changes()
        keys = self._paths.pop_changes()
        moved = self._topology.pop_moved_ends()
        anew = self._topology.fabric_version != self._version or self._wastes_numbers()
        if not (anew or agents or endpoints or keys or moved):
            return self._index
        if anew:
            self._version = self._topology.fabric_version
            self._begin(self._places)
            agents, endpoints, keys, moved = (
                set(self._roster.agents_with_list()),
                set(),
                {},
                set(),
            )
        # A 5-tuple on two lists belongs to the first agent.
        for agent in sorted(agents):
            keys |= dict.fromkeys(self._apply_list(agent))
        for agent, ends in self._agents_naming(endpoints, agents).items():
            keys |= dict.fromkeys(self._apply_list_for(agent, ends))
        moves = self._keys_of(moved)
        changed = set(moves)
        new: list[NewFlow] = []
        # In the order of their traces, which is that in which they lie in memory.
        keys |= dict.fromkeys(moves | self._keys_of(endpoints))
        left, ends, crossed = self._add_plain(keys)
        for key in left:
            flow = self._probed_flow(key)
            if flow is not None and key not in self._index.by_key:
                new.append(flow)
                continue
            before = self._index.crossed(key)
            if self._index.drop_flow(key) if flow is None else self._index.set_flow(*flow):
                changed.add(key)
                crossed.update(before, self._index.crossed(key))
        self._index.add_flows(new)
        for key, components, *_ in new:
            changed.add(key)
            crossed.update(components)
        if changed or ends or moved:
            ends.update(end for key in changed for end in key[:2])
            self._replies.invalidate(ends, moved, crossed)
        if len(self._index.endpoints) > SPARE_NUMBERS + 2 * len(self._naming):
            self._index.renumber_endpoints()
            self._replies.renumber()
        return self._index

    def _add_plain(self, keys: Iterable[FlowId]) -> tuple[list[FlowId], set[str], set[str]]:
        """Add those of some 5-tuples that are new and lie in rows of the path book.

        Returns
        -------
        left
            The others.
        ends, crossed
            Endpoints of those that were added, and what they cross.
        """
        owners, index = self._owners, self._index
        new: list[FlowId] = []
        probers: list[str] = []
        left: list[FlowId] = []
        for key in keys:
            own = owners.get(key)
            if own is None or key in index.by_key:
                left.append(key)
            else:
                new.append(key)
                probers.append(own[0])
        if len(new) < LEAST:
            return [*left, *new], set(), set()
        numbers, found = self._paths.plain_rows(new)
        if not found.all():
            left += compress(new, (~found).tolist())
            new = list(compress(new, found.tolist()))
            probers = list(compress(probers, found.tolist()))
        used = np.unique(numbers[numbers != NOTHING]).tolist()
        crossed = [self._paths.component_names[number] for number in used]
        own_numbers = np.zeros(max(used, default=0) + 1, np.int32)
        own_numbers[used] = [index.component_number(name) for name in crossed]
        ends = Ends.of(new)
        agents = [self._roster.agent_of(end) for end in ends.names]
        index.add_rows(new, ends, own_numbers[numbers], probers, agents)
        return left, set(ends.names), set(crossed)

    def prepare(self) -> None:
        """Do now, while all is calm, the work that a first decision would need.

        Not while first traces pour in: all of it would be done anew at the next step.
        """
        index = self.refresh()
        before, self._prepared = self._prepared, len(index)
        if len(index) - before <= FIRST:
            index.sort_if_stale()
            self._replies.prepare()

    def replies(self) -> ReplyWays:
        """Return the ways of replies according to the current index."""
        self.refresh()
        return self._replies

    def places(self) -> Directions:
        """Return the directed cables according to the current index."""
        self.refresh()
        return self._places

    def _wastes_numbers(self) -> bool:
        """Return whether most numbers or rows of the index belong to what left."""
        index = self._index
        if index.spare_row_count > SPARE_NUMBERS + 2 * len(index):
            return True
        count = index.number_count
        if count < self._check_at:
            return False
        self._check_at = count + SPARE_NUMBERS
        return count > SPARE_NUMBERS + 2 * index.used_number_count

    def _agents_naming(self, endpoints: set[str], but: set[str]) -> dict[str, set[str]]:
        """Return the agents whose lists name some endpoints, with the endpoints that each names."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for endpoint in endpoints:
            for agent in self._naming.get(endpoint, NONE) - but:
                found[agent].add(endpoint)
        return found

    def _keys_of(self, ends: set[str]) -> set[FlowId]:
        """Return the 5-tuples from and to some endpoints."""
        return {
            key
            for agent, mine in self._agents_naming(ends, set()).items()
            for key in self._lists.get(agent, ())
            if key[0] in mine or key[1] in mine
        }

    def _apply_list(self, agent_id: str) -> set[FlowId]:
        """Apply an agent's new ping list; return the 5-tuples that came or went."""
        named = self._roster.endpoints_on_list_of(agent_id)
        before = self._named.pop(agent_id, set())
        for endpoint in before - named:
            self._naming[endpoint].discard(agent_id)
            if not self._naming[endpoint]:
                del self._naming[endpoint]
        for endpoint in named:
            self._naming[endpoint].add(agent_id)
        if named:
            self._named[agent_id] = named
        return self._apply_list_for(agent_id, before | named)

    def _apply_list_for(self, agent_id: str, ends: set[str]) -> set[FlowId]:
        """Apply an agent's list for some endpoints; return the 5-tuples that came or went."""
        held = self._lists.setdefault(agent_id, set())
        before = {key for key in held if key[0] in ends or key[1] in ends}
        now = set(self._roster.probed_by(agent_id, ends))
        for key in before - now:
            held.discard(key)
            others = tuple(a for a in self._owners.pop(key, ()) if a != agent_id)
            if others:
                self._owners[key] = others
        for key in now - before:
            held.add(key)
            self._owners[key] = tuple(sorted((*self._owners.get(key, ()), agent_id)))
        if not held:
            del self._lists[agent_id]
        return before ^ now

    def _probed_flow(self, key: FlowId) -> NewFlow | None:
        """Return what the index holds of a 5-tuple; None if it is not probed, or not traced."""
        owners = self._owners.get(key)
        if owners is None or not self._paths.is_traced(key):
            return None
        return key, self._paths.components(key), owners[0], self._roster.agent_of(key[1])
