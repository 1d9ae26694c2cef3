"""What all agents counted together, from their heartbeats: for metrics, no decision reads it.

Agents count since their start. What an agent counted before the first heartbeat that is read, and
between its last one and its end, is not known and not in the sums.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

import numpy as np

from localizer.facts.heartbeats import HeartbeatBatch
from schemas.columns.arrays import Int64s
from schemas.columns.interpreter import NULL
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
_FIELDS: Final = (*SENT, *DISCARDED)
_VALUES: Final[Callable[[Heartbeat], tuple[int | None, ...]]] = attrgetter(*_FIELDS)
# Rows of what an agent said last, before its counts.
_INCARNATION, _SEQ, _OWN = range(3)
_FIRST: Final = 256
_UNKNOWN: Final = -1


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
        self._places: dict[str, int] = {}
        # What each agent said last, shape (_OWN + counts, capacity), by agent.
        self._last: Int64s = np.zeros((_OWN + len(_NAMES), _FIRST), np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def observe_heartbeat(self, beat: Heartbeat) -> None:
        """Add what an agent counted since its last heartbeat."""
        counts = np.array([number or 0 for number in _VALUES(beat)], np.int64)
        place = self._places.get(beat.agent_id)
        if place is None:
            place = self._enter(beat.agent_id, beat.incarnation, counts)
        if place == _UNKNOWN:
            return
        last = self._last[:, place]
        if (beat.incarnation, beat.seq) < (last[_INCARNATION], last[_SEQ]):
            return
        if beat.incarnation != last[_INCARNATION]:
            # Another process: it began to count at 0.
            last[_OWN:] = 0
        self._add(np.maximum(counts - last[_OWN:], 0))
        last[:] = beat.incarnation, beat.seq, *counts

    def observe_batch(self, batch: HeartbeatBatch) -> None:
        """Add what agents counted since their last heartbeats, as if one came after the other."""
        fields = np.array([batch.numbers(name) for name in ("incarnation", "seq", *_FIELDS)])
        fields = np.where(fields == NULL, 0, fields)
        places = np.empty(len(batch), np.int64)
        for row, name in enumerate(batch.agents):
            place = self._places.get(name)
            if place is None:
                place = self._enter(name, int(fields[_INCARNATION, row]), fields[_OWN:, row])
            places[row] = place
        rows = np.argsort(places, kind="stable")
        rows = rows[np.searchsorted(places[rows], _UNKNOWN, side="right") :]
        places, fields = places[rows], fields[:, rows]
        first = np.ones(len(rows), np.bool_)
        first[1:] = places[1:] != places[:-1]
        before = np.where(first, self._last[:, places], np.roll(fields, 1, axis=1))
        same = fields[_INCARNATION] == before[_INCARNATION]
        overtaken = np.where(
            same, fields[_SEQ] < before[_SEQ], fields[_INCARNATION] < before[_INCARNATION]
        )
        alone = np.isin(places, places[overtaken])
        # Where the process is another one, it began to count at 0.
        more = fields[_OWN:] - np.where(same, before[_OWN:], 0)
        self._add(np.maximum(more[:, ~alone], 0).sum(axis=1))
        latest = np.roll(first, -1) & ~alone
        self._last[:, places[latest]] = fields[:, latest]
        for beat in batch.records(rows[alone]):
            self.observe_heartbeat(beat)

    def _enter(self, agent_id: str, incarnation: int, counts: Int64s) -> int:
        """Return a new agent's place; what it counted before its first heartbeat is not added."""
        if len(self) >= self._max_agents:
            return _UNKNOWN
        place = self._places[agent_id] = len(self)
        if place == self._last.shape[1]:
            self._last = np.concatenate([self._last, np.zeros_like(self._last)], axis=1)
        self._last[:, place] = incarnation, -1, *counts
        return place

    def _add(self, more: Int64s) -> None:
        for name, number in zip(_NAMES, more.tolist(), strict=True):
            self.totals[name] += number

    def keep(self, is_known: Callable[[str], bool]) -> None:
        """Forget the last heartbeats of agents that are not known any more."""
        kept = {name: place for name, place in self._places.items() if is_known(name)}
        if len(kept) < len(self):
            self._last[:, : len(kept)] = self._last[:, list(kept.values())]
            self._places = {name: place for place, name in enumerate(kept)}
