"""Keeps the index of what is probed, and the ways of replies, up with what they depend on."""

from collections import defaultdict

from localizer.flow_index import FlowIndex
from localizer.paths import FlowKey, PathBook
from localizer.replies import ReplyWays
from localizer.roster import Roster
from localizer.topology import Topology


class IndexCache:
    """Follows ping lists, registrations and traces; a changed topology makes all anew."""

    def __init__(self, roster: Roster, paths: PathBook, topology: Topology) -> None:
        self._roster = roster
        self._paths = paths
        self._topology = topology
        self._version: int | None = None
        self._begin()

    def get(self) -> FlowIndex:
        """Return the current index."""
        agents, endpoints = self._roster.take_changes()
        keys = self._paths.take_changes()
        if self._topology.version != self._version:
            self._version = self._topology.version
            self._begin()
            agents, endpoints, keys = set(self._roster.listed()), set(), set()
        for endpoint in endpoints:
            agents |= self._naming.get(endpoint, set())
        if agents:
            # Of one 5-tuple on two lists it is the first agent's.
            keys |= {key for agent in sorted(agents) for key in self._list(agent)}
        for key in keys:
            self._renew(key)
        self._replies.forget(keys)
        return self._index

    def settle(self) -> None:
        """Do now, while all is calm, what else a decision would do first."""
        self.get().settle()
        self._replies.settle()

    def replies(self) -> ReplyWays:
        """Return the ways of replies as the current index shows them."""
        self.get()
        return self._replies

    def _begin(self) -> None:
        self._index = FlowIndex()
        self._replies = ReplyWays(self._topology, self._index)
        self._lists: dict[str, dict[FlowKey, None]] = {}
        # By 5-tuple: whose lists it is on, by endpoint: whose lists name it.
        self._owners: dict[FlowKey, tuple[str, ...]] = {}
        self._naming: defaultdict[str, set[str]] = defaultdict(set)
        self._named: dict[str, set[str]] = {}

    def _list(self, agent_id: str) -> set[FlowKey]:
        """Take in an agent's ping list; return the 5-tuples that may have changed."""
        before = self._lists.pop(agent_id, {})
        now = dict.fromkeys(self._roster.probed_by(agent_id))
        if now:
            self._lists[agent_id] = now
        for key in before.keys() - now.keys():
            others = tuple(a for a in self._owners.pop(key, ()) if a != agent_id)
            if others:
                self._owners[key] = others
        for key in now:
            owners = self._owners.get(key, ())
            if agent_id not in owners:
                self._owners[key] = tuple(sorted((*owners, agent_id)))
        named = self._roster.named_by(agent_id)
        for endpoint in self._named.get(agent_id, set()) - named:
            self._naming[endpoint].discard(agent_id)
        for endpoint in named:
            self._naming[endpoint].add(agent_id)
        self._named[agent_id] = named
        return before.keys() | now.keys()

    def _renew(self, key: FlowKey) -> None:
        owners = self._owners.get(key)
        if owners is None or not self._paths.is_traced(key):
            self._index.drop(key)
            return
        components = self._paths.path(key).components
        self._index.put(key, components, owners[0], self._roster.agent_of(key[1]))
