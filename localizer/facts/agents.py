"""What is known of each agent from its heartbeats, as arrays: a row of columns for each.

A cluster sends thousands of heartbeats a second, and nearly all say what the one before said. Those
are folded in whole batches (`localizer.facts.heartbeats`); of an agent of which anything else is to
be known an `Agent` is made. All times are nanoseconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, auto
from typing import Final, NamedTuple

import numpy as np

from schemas.columns.arrays import Bools, Int64s
from schemas.columns.interpreter import NULL
from schemas.process import memory
from schemas.units import SECOND_NS

FIRST: Final = 1_024
# An agent that nobody registered is missed only after it sent heartbeats for so long.
MEMBER_NS: Final = 30 * SECOND_NS
# The last sign of life of each of so many seconds, in turns, is kept: longer than anything waits
# for one.
SIGNS: Final = 8
# The place of an agent that is not known.
UNKNOWN: Final = -1


class Column(IntEnum):
    """What is kept as a number; all but the first three may be `NULL`."""

    HEARD_NS = 0
    INTERVAL_NS = auto()
    FIRST_NS = auto()
    SENT_NS = auto()
    INCARNATION = auto()
    SEQ = auto()
    PARTITION = auto()
    HOST_DELAY_NS = auto()
    # What the last heartbeat says of probing, of its clock and of its 5-tuples.
    PROBING = auto()
    CLOCK_OFFSET_NS = auto()
    FLOWS_ACTIVE = auto()


_NUMBERS: Final = len(Column)
# Of an agent, as opposed to what it says of itself.
_OWN: Final = slice(Column.HEARD_NS, Column.HOST_DELAY_NS + 1)


class Agent(NamedTuple):
    """What is known of one agent.

    Attributes
    ----------
    first_ns, heard_ns
        Arrival of its first and of its last heartbeat.
    sent_ns
        When the last one was sent at the earliest, see `ArrivalClock.sent_since_ns`.
    partition
        Partition of agent.heartbeat.v1 that its heartbeats stand in; None: not known.
    silences
        Its latest silences, oldest first: when it was last seen before, and when it was seen again,
        also as another process.
    """

    agent_id: str
    host_id: str
    first_ns: int
    heard_ns: int
    sent_ns: int
    interval_ns: int
    incarnation: int
    seq: int
    partition: int | None = None
    leaving: bool = False
    host_delay_ns: int | None = None
    silences: tuple[tuple[int, int], ...] = ()


class AgentTable:
    """All agents.

    Attributes
    ----------
    excusable
        Those that leave or were silent once.
    version
        Grows when an agent comes or goes.
    """

    def __init__(self) -> None:
        self.excusable: set[str] = set()
        self.version = 0
        self._places: dict[str, int] = {}
        self._names: list[str] = []
        self._hosts: list[str] = []
        self._leaving: set[str] = set()
        self._silences: dict[str, tuple[tuple[int, int], ...]] = {}
        # Shape (columns and signs, capacity), by agent.
        self._columns: Int64s = _blank(FIRST)
        # The usual interval, unless it may have changed; whether no agent is new any more.
        self._usual_ns: int | None = None
        self._settled = False
        # By a number of intervals, until when certainly no agent is silent for longer.
        self._calm_until_ns: dict[float, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, agent_id: str) -> bool:
        return agent_id in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def get(self, agent_id: str) -> Agent | None:
        """Return what is known of an agent."""
        place = self._places.get(agent_id)
        if place is None:
            return None
        (
            heard_ns, interval_ns, first_ns, sent_ns, incarnation, seq, partition, host_delay_ns,
        ) = self._columns[_OWN, place].tolist()  # fmt: skip
        return Agent(
            agent_id, self._hosts[place], first_ns, heard_ns, sent_ns, interval_ns, incarnation,
            seq, _none(partition), agent_id in self._leaving, _none(host_delay_ns),
            self._silences.get(agent_id, ()),
        )  # fmt: skip

    def number(self, agent_id: str, column: Column) -> int | None:
        """Return one number of an agent; None: it is not known."""
        place = self._places.get(agent_id)
        return None if place is None else _none(int(self._columns[column, place]))

    def numbers(self, column: Column) -> dict[str, int]:
        """Return a number of all agents of which it is known."""
        found = self._columns[column, : len(self)].tolist()
        return {a: n for a, n in zip(self._names, found, strict=True) if n != NULL}

    def is_leaving(self, agent_id: str) -> bool:
        """Return whether an agent said that it leaves."""
        return agent_id in self._leaving

    def put(self, agent: Agent) -> None:
        """Replace what is known of an agent, or add it; that it was heard is a sign of life."""
        name = agent.agent_id
        place = self._places.setdefault(name, len(self))
        if place == len(self):
            self._add(name)
        column = self._columns[:, place]
        if column[Column.INTERVAL_NS] != agent.interval_ns:
            self._usual_ns = None
            self._calm_until_ns.clear()
        elif not self._settled:
            self._usual_ns = None
        column[_OWN] = (
            agent.heard_ns, agent.interval_ns, agent.first_ns, agent.sent_ns, agent.incarnation,
            agent.seq, _null(agent.partition), _null(agent.host_delay_ns),
        )  # fmt: skip
        column[_NUMBERS + agent.heard_ns // SECOND_NS % SIGNS] = agent.heard_ns
        self._hosts[place] = agent.host_id
        _keep(self._leaving, name, there=agent.leaving)
        if agent.silences:
            self._silences[name] = agent.silences
        else:
            self._silences.pop(name, None)
        _keep(self.excusable, name, there=agent.leaving or bool(agent.silences))

    def _add(self, agent_id: str) -> None:
        self.version += 1
        if len(self) == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, _blank(len(self))], axis=1)
        self._columns[:, len(self)] = NULL
        self._columns[_NUMBERS:, len(self)] = 0
        self._names.append(agent_id)
        self._hosts.append("")

    def say(self, agent_id: str, said: dict[Column, int | None]) -> None:
        """Note what an agent that is known says of itself."""
        for column, number in said.items():
            self._columns[column, self._places[agent_id]] = _null(number)

    def places(self, agents: Iterable[str]) -> Int64s:
        """Return by agent its place, `UNKNOWN` where there is none, until one is forgotten."""
        get = self._places.get
        return np.array([get(name, UNKNOWN) for name in agents], np.int64)

    def column(self, column: Column, places: Int64s) -> Int64s:
        """Return a number of the agents at some places."""
        found: Int64s = self._columns[column, places]
        return found

    def on_hosts(self, places: Int64s, hosts: Sequence[str]) -> Bools:
        """Return which agents are on these hosts."""
        own = self._hosts
        return np.array([own[p] == h for p, h in zip(places.tolist(), hosts, strict=True)], bool)

    def set_column(self, column: Column, places: Int64s, numbers: Int64s) -> None:
        """Set a number of agents at distinct places, `NULL` where it is not known."""
        self._columns[column, places] = numbers

    def hear(self, places: Int64s, heard_ns: Int64s) -> None:
        """Note heartbeats of agents at distinct places; their intervals are as before."""
        if not self._settled:
            self._usual_ns = None
        columns = self._columns
        latest_ns = np.maximum(columns[Column.HEARD_NS, places], heard_ns)
        columns[Column.HEARD_NS, places] = latest_ns
        columns[Column.SENT_NS, places] = np.maximum(columns[Column.SENT_NS, places], heard_ns)
        columns[_NUMBERS + latest_ns // SECOND_NS % SIGNS, places] = latest_ns

    def first_after(self, agent_id: str, since_ns: int) -> int | None:
        """Return when an agent was seen first after a time, of the signs that are kept.

        Those are the last one of each second, of seconds in turns: of an agent that is seen each
        second, of the last `SIGNS` seconds. None: it was not.
        """
        signs_ns = self._columns[_NUMBERS:, self._places[agent_id]]
        later_ns = signs_ns[signs_ns > since_ns]
        return int(later_ns.min()) if len(later_ns) else None

    def forget(self, agent_id: str) -> None:
        """Forget an agent; the last row moves to its place."""
        place = self._places.pop(agent_id, None)
        if place is None:
            return
        self.version += 1
        self._usual_ns = None
        self.excusable.discard(agent_id)
        self._leaving.discard(agent_id)
        self._silences.pop(agent_id, None)
        last, host = self._names.pop(), self._hosts.pop()
        if last != agent_id:
            self._names[place], self._places[last], self._hosts[place] = last, place, host
            self._columns[:, place] = self._columns[:, len(self)]

    def shrink_tables(self) -> None:
        """Give back the room of many agents that left."""
        memory.shrink_tables(self)
        if self._columns.shape[1] > max(FIRST, 4 * len(self)):
            self._columns = self._columns[:, : max(FIRST, 2 * len(self))].copy()

    @property
    def usual_interval_ns(self) -> int:
        """Return the median interval of agents known for long, or of all; a second if of none."""
        if self._usual_ns is None:
            self._usual_ns = self._median_interval_ns()
        return self._usual_ns

    def _median_interval_ns(self) -> int:
        heard_ns, interval_ns, first_ns = self._times()
        # Of those that a former process told of the interval is made up.
        heard = self._columns[Column.PARTITION, : len(self)] != NULL
        members = heard & (heard_ns - first_ns >= MEMBER_NS)
        self._settled = bool(members.all())
        interval_ns = interval_ns[members] if members.any() else interval_ns
        return int(np.median(interval_ns)) if len(interval_ns) else SECOND_NS

    def silent_for(self, now_ns: int, intervals: float) -> list[str]:
        """Return the agents that are silent for more than this many of their intervals."""
        if now_ns <= self._calm_until_ns.get(intervals, 0):
            return []
        heard_ns, interval_ns, _ = self._times()
        late = np.flatnonzero((now_ns - heard_ns) / interval_ns > intervals)
        if not len(late):
            # Later signs only put it off.
            until_ns = (heard_ns + intervals * interval_ns).min(initial=now_ns + SECOND_NS)
            self._calm_until_ns[intervals] = int(until_ns)
        return [self._names[place] for place in late.tolist()]

    def not_heard_since(self, since_ns: int) -> list[str]:
        """Return the agents that were last heard before a time."""
        heard_ns, *_ = self._times()
        return [self._names[place] for place in np.flatnonzero(heard_ns < since_ns).tolist()]

    def _times(self) -> Int64s:
        """Return when each agent was heard last, its interval, and when it was heard first."""
        found: Int64s = self._columns[: Column.FIRST_NS + 1, : len(self)]
        return found


def _blank(count: int) -> Int64s:
    return np.full((_NUMBERS + SIGNS, count), NULL, np.int64)


def _none(number: int) -> int | None:
    return None if number == NULL else number


def _null(number: int | None) -> int:
    return NULL if number is None else number


def _keep(names: set[str], name: str, *, there: bool) -> None:
    if there:
        names.add(name)
    else:
        names.discard(name)
