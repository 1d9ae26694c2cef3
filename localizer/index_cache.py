"""The index of what is probed, and the ways of replies, as long as both hold."""

from localizer.flow_index import FlowIndex
from localizer.paths import PathBook
from localizer.replies import ReplyWays
from localizer.roster import Roster
from localizer.topology import Topology


class IndexCache:
    """Builds both again only when something they depend on has changed."""

    def __init__(self, roster: Roster, paths: PathBook, topology: Topology) -> None:
        self._roster = roster
        self._paths = paths
        self._topology = topology
        self._versions: tuple[int, ...] | None = None
        self._index = FlowIndex()
        self._replies = ReplyWays(topology, self._index)

    def get(self) -> FlowIndex:
        """Return the current index."""
        versions = (self._roster.version, self._paths.version, self._topology.version)
        if versions != self._versions:
            self._index = FlowIndex.build(self._roster, self._paths)
            self._replies = ReplyWays(self._topology, self._index)
            self._versions = versions
        return self._index

    def replies(self) -> ReplyWays:
        """Return the ways of replies as the current index shows them."""
        self.get()
        return self._replies
