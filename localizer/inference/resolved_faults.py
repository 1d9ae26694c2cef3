"""What faults that are resolved account for: losses of their time speak for no other fault."""

from collections.abc import Collection, Iterable

from localizer.network.paths import FlowKey, PathBook
from localizer.network.replies import ReplyWays


class ResolvedFaults:
    """Until when resolved faults account for what 5-tuples lost.

    Parameters
    ----------
    ended
        Faults that were resolved until recently: the time of the resolve, and what they blamed.
    paths, replies
        Which ways probes take, and replies may take.
    """

    def __init__(
        self,
        ended: Iterable[tuple[int, Collection[str]]],
        paths: PathBook,
        replies: ReplyWays,
    ) -> None:
        self._ended = list(ended)
        self._paths = paths
        self._replies = replies

    def until_ns(self, key: FlowKey, components: Iterable[str] = ()) -> int:
        """Return the last resolve of a fault that its packets met; 0: there was none.

        Parameters
        ----------
        components
            What it crossed then, beside what it crosses now.
        """
        if not self._ended:
            return 0
        ways = (*components, *self._paths.path(key).components, *self._replies.of(*key[:2]))
        met = frozenset(ways)
        return max((at for at, blamed in self._ended if not met.isdisjoint(blamed)), default=0)
