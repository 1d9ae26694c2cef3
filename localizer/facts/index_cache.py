"""Keeps the index of what is probed, and the ways of replies, up with what they depend on."""

from collections import defaultdict
from typing import Final

from localizer.facts.roster import Roster
from localizer.network.flow_index import FlowIndex
from localizer.network.paths import FlowKey, PathBook
from localizer.network.replies import ReplyWays
from localizer.network.topology import Topology

NONE: Final[frozenset[str]] = frozenset()
# Numbers of endpoints that left are kept until there are so many, and as many as are listed.
SPARE: Final = 1_024


class IndexCache:
    """Follows ping lists, registrations, traces and ends; another fabric makes all anew."""

    def __init__(self, roster: Roster, paths: PathBook, topology: Topology) -> None:
        self._roster = roster
        self._paths = paths
        self._topology = topology
        self._version: int | None = None
        self._begin()

    def refresh(self) -> FlowIndex:
        """Return the current index."""
        agents, endpoints = self._roster.pop_changes()
        keys = self._paths.pop_changes()
        moved = self._topology.pop_moved_ends()
        if self._topology.fabric_version != self._version:
            self._version = self._topology.fabric_version
            self._begin()
            agents, endpoints, keys, moved = (
                set(self._roster.agents_with_list()),
                set(),
                set(),
                set(),
            )
        # Of one 5-tuple on two lists it is the first agent's.
        for agent in sorted(agents):
            keys |= self._list(agent)
        for agent, ends in self._whose(endpoints, agents).items():
            keys |= self._listed_again(agent, ends)
        moves = self._keys_of(moved)
        changed, crossed = set(moves), set[str]()
        for key in keys | moves | self._keys_of(endpoints):
            before = self._index.crossed(key)
            if self._renew(key):
                changed.add(key)
                crossed.update(before, self._index.crossed(key))
        if changed or moved:
            self._replies.invalidate(changed, moved, crossed)
        if len(self._index.endpoints) > SPARE + 2 * len(self._naming):
            self._index.renumber_endpoints()
            self._replies.renumber()
        return self._index

    def prepare(self) -> None:
        """Do now, while all is calm, what else a decision would do first."""
        self.refresh().sort_if_stale()
        self._replies.prepare()

    def replies(self) -> ReplyWays:
        """Return the ways of replies as the current index shows them."""
        self.refresh()
        return self._replies

    def _begin(self) -> None:
        self._index = FlowIndex()
        self._replies = ReplyWays(self._topology, self._index)
        self._lists: dict[str, set[FlowKey]] = {}
        # By 5-tuple: whose lists it is on, by endpoint: whose lists name it.
        self._owners: dict[FlowKey, tuple[str, ...]] = {}
        self._naming: defaultdict[str, set[str]] = defaultdict(set)
        self._named: dict[str, set[str]] = {}

    def _whose(self, endpoints: set[str], but: set[str]) -> dict[str, set[str]]:
        """Return whose lists name some endpoints, and which of them each."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for endpoint in endpoints:
            for agent in self._naming.get(endpoint, NONE) - but:
                found[agent].add(endpoint)
        return found

    def _keys_of(self, ends: set[str]) -> set[FlowKey]:
        """Return the 5-tuples from and to some endpoints."""
        return {
            key
            for agent, mine in self._whose(ends, set()).items()
            for key in self._lists.get(agent, ())
            if key[0] in mine or key[1] in mine
        }

    def _list(self, agent_id: str) -> set[FlowKey]:
        """Take in an agent's ping list; return the 5-tuples that have come or gone."""
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
        return self._listed_again(agent_id, before | named)

    def _listed_again(self, agent_id: str, ends: set[str]) -> set[FlowKey]:
        """Take in what an agent's list says of some endpoints; return what has come or gone."""
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

    def _renew(self, key: FlowKey) -> bool:
        """Look at a 5-tuple again; return whether anything of it changed."""
        owners = self._owners.get(key)
        if owners is None or not self._paths.is_traced(key):
            return self._index.drop_flow(key)
        components = self._paths.path(key).components
        return self._index.set_flow(key, components, owners[0], self._roster.agent_of(key[1]))
