"""What all agents counted together, from their heartbeats: for metrics, no decision reads it.

Agents count since their start. What an agent counted before the first heartbeat that is read, and
between its last one and its end, is not known and not in the sums.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

from schemas.records import Heartbeat

SENT: Final[Mapping[str, str]] = {
    "rounds_sent": "rounds",
    "results_sent": "results",
    "rounds_dropped": "rounds_dropped",
}
# What an agent got and could not use: field of the heartbeat, and its name among the counts.
DISCARDED: Final[Mapping[str, str]] = {
    "replies_duplicate": "reply_duplicate",
    "replies_late": "reply_late",
    "replies_foreign": "reply_foreign",
    "packets_malformed": "packet_malformed",
    "packets_filtered": "packet_filtered",
    "records_undecodable": "record_undecodable",
    "lists_refused": "list_refused",
    "registrations_refused": "registration_refused",
}
_NAMES: Final = (*SENT.values(), *DISCARDED.values())
_VALUES: Final[Callable[[Heartbeat], tuple[int | None, ...]]] = attrgetter(*SENT, *DISCARDED)


class AgentCounts:
    """Sums over agents that only grow.

    Attributes
    ----------
    totals
        By name.
    """

    def __init__(self, max_agents: int) -> None:
        self.totals: Counter[str] = Counter(dict.fromkeys(_NAMES, 0))
        self._max_agents = max_agents
        self._last: dict[str, tuple[int, int, tuple[int | None, ...]]] = {}

    def __len__(self) -> int:
        return len(self._last)

    def observe_heartbeat(self, beat: Heartbeat) -> None:
        """Add what an agent counted since its last heartbeat."""
        values = _VALUES(beat)
        incarnation, seq, before = self._last.get(beat.agent_id, (beat.incarnation, -1, values))
        if (beat.incarnation, beat.seq) < (incarnation, seq):
            return
        if beat.agent_id not in self._last and len(self._last) >= self._max_agents:
            return
        if beat.incarnation != incarnation:
            # Another process: it began to count at 0.
            before = (0,) * len(values)
        for name, now, then in zip(_NAMES, values, before, strict=True):
            self.totals[name] += max(0, (now or 0) - (then or 0))
        self._last[beat.agent_id] = beat.incarnation, beat.seq, values

    def keep(self, is_known: Callable[[str], bool]) -> None:
        """Forget the last heartbeats of agents that are not known any more."""
        for agent_id in [a for a in self._last if not is_known(a)]:
            del self._last[agent_id]
