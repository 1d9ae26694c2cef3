"""Time in a partition: when rounds arrived, how far each agent's own clock is, duplicates.

Two kinds of time, neither of which one source can set for others:

* Arrival, which the broker writes into the log. It moves the grids of progress marks and repeated
  anomalies, and tells silence. A pause of the log ages nobody: active time is arrival without the
  part of each gap between rounds that is longer than `MAX_GAP_NS`.
* The event time of an agent: the largest `started_at` of its rounds. It closes the windows of this
  agent's 5-tuples and of no others.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np

from schemas.bounds import MAX_AHEAD_NS
from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled
from schemas.units import SECOND_NS
from streams.columns.rounds import NEVER_NS
from streams.columns.table import Column, Table
from streams.config import PROGRESS_STEP_NS, REFRESH_STEP_NS, DetectionConfig
from streams.core.starts import EARLIER, is_new, note_start

# A longer gap between rounds of a partition is an outage of the broker, or nobody probes.
MAX_GAP_NS: Final = 10 * SECOND_NS
# An agent that is silent for so long after its window's end will hardly send the rest of it: agents
# are back within seconds after a broker's outage, and the outage itself does not count.
SILENCE_NS: Final = 60 * SECOND_NS
# A restart reads more than `settling_ns` and this of the rounds, whatever the settings are
# (`streams.core.anchors.probes_horizon_ns`): before an agent's clock settles it has sent one.
MUCH_SILENCE_NS: Final = 30 * SECOND_NS
ROUNDS_IN_CHUNK: Final = 4_096
# Later than every time.
FOREVER_NS: Final = 2**62
# No agent has this name.
NOBODY: Final = ""
CLUSTER_NUMBER: Final = 0

# Agent's number, incarnation, number of the round, its start in nanoseconds.
RoundId = tuple[int, int, int, int]


def max_open_ns(config: DetectionConfig) -> int:
    """Return the active time after which an agent's window is closed whatever its clock says."""
    return config.window_ns + config.lateness_ns + config.closing_spread_ns + SILENCE_NS


def settling_ns(config: DetectionConfig) -> int:
    """Return the active time after which an agent's open windows follow from its rounds since.

    For a clock that runs at the right speed; overdue windows are looked for on the refresh grid.
    """
    return max_open_ns(config) + 2 * REFRESH_STEP_NS


def closing_delay_ns(config: DetectionConfig, agent: str) -> int:
    """Return how long after its end an agent's window is closed, by the agent's clock.

    It follows from the name alone, so that a restarted worker closes the same windows.
    """
    return config.lateness_ns + crc32(agent.encode()) * config.closing_spread_ns // 2**32


def forget_agent_ns(config: DetectionConfig) -> int:
    """Return the silence, in active time, after which an agent is forgotten.

    Long enough that the windows it may open when it is back lie behind those that were closed
    (`AgentClocks.meet`), although its clock may have been `MAX_AHEAD_NS` ahead.
    """
    return max_open_ns(config) + MAX_AHEAD_NS + (max_open_ns(config) - SILENCE_NS)


@dataclass(frozen=True, slots=True)
class ClockState:
    """The partition's time; small enough to travel with a committed offset.

    Attributes
    ----------
    arrival_ns
        Latest arrival of a round; None before the first.
    paused_ns
        Sum of the pauses so far: what gaps were longer than `MAX_GAP_NS`.
    """

    arrival_ns: int | None = None
    paused_ns: int = 0

    @property
    def active_ns(self) -> int:
        """Arrival without pauses; only differences have a meaning."""
        return (self.arrival_ns or 0) - self.paused_ns

    @property
    def grid_ns(self) -> int:
        """Last point of the progress grid that was passed."""
        return (self.arrival_ns or 0) // PROGRESS_STEP_NS * PROGRESS_STEP_NS

    def at(self, arrival_ns: int) -> "ClockState":
        """Return the clock at another arrival, with the same pauses."""
        return ClockState(arrival_ns, self.paused_ns)


def advance_clock(clock: ClockState, arrival_ns: int) -> ClockState:
    """Return the clock after a round's arrival; it never goes back."""
    before = clock.arrival_ns
    if before is None:
        return ClockState(arrival_ns)
    if arrival_ns <= before:
        return clock
    return ClockState(arrival_ns, clock.paused_ns + max(arrival_ns - before - MAX_GAP_NS, 0))


class AgentClocks:
    """The agents of a partition and how far each is, in columns of `table`.

    * `closing_ns`: how long after its end its window is closed.
    * `latest_ns`: largest start of the agent's rounds; `earlier_ns`: the next ones, see
      `streams.core.starts`; `reach_ns`: time of its latest probe.
    * `first_open`: index of its first open window; `opened_ns`: active time when that last changed.
    * `entry_ns`: results before this time belong to no window any more.
    * `heard_ns`: active time of its latest round.
    * `needed_ns`: active time of the round before it fell silent for long, or before its rounds
      were late, or of its first; until active time is `settled_ns`, a restart reads it, too.
    """

    def __init__(self, config: DetectionConfig, floor_ns: int) -> None:
        self._config = config
        # Results before this time are in published windows of another length.
        self._floor_ns = floor_ns
        self.table: Table[str] = Table(
            {
                "closing_ns": Column(np.int64, 0),
                "latest_ns": Column(np.int64, NEVER_NS),
                "earlier_ns": Column(np.int64, NEVER_NS, (EARLIER,)),
                "reach_ns": Column(np.int64, NEVER_NS),
                "first_open": Column(np.int64, 0),
                "entry_ns": Column(np.int64, 0),
                "opened_ns": Column(np.int64, 0),
                "heard_ns": Column(np.int64, NEVER_NS),
                "needed_ns": Column(np.int64, NEVER_NS),
                "settled_ns": Column(np.int64, NEVER_NS),
            }
        )
        # The kernel finds the cluster's name by this number. A round that names the cluster as its
        # agent is never plain: it cannot begin after `FOREVER_NS`.
        nobody = self.table.row(NOBODY)
        self.table["latest_ns"][nobody] = FOREVER_NS
        self.table["earlier_ns"][nobody] = FOREVER_NS
        # Whether some agent's clock may have passed the end of a window that is open.
        self.closable = False

    def __len__(self) -> int:
        return len(self.table) - 1

    def is_new(self, number: int, started_ns: int) -> bool:
        """Return whether certainly no round of an agent began then."""
        table = self.table
        return is_new(table["latest_ns"], table["earlier_ns"], number, started_ns)

    def _numbers(self) -> Int64s:
        """Return the numbers of the agents, ascending."""
        numbers = self.table.rows()
        out: Int64s = numbers[numbers != CLUSTER_NUMBER]
        return out

    def observe_round(self, number: int, started_ns: int, reach_ns: int, active_ns: int) -> None:
        """Move an agent's clock on by a round."""
        table = self.table
        before_ns = int(table["heard_ns"][number])
        if active_ns - before_ns > MUCH_SILENCE_NS or reach_ns < table["entry_ns"][number]:
            if active_ns > table["settled_ns"][number]:
                table["needed_ns"][number] = active_ns if before_ns == NEVER_NS else before_ns
            table["settled_ns"][number] = active_ns + settling_ns(self._config)
        note_start(table["latest_ns"], table["earlier_ns"], number, started_ns)
        table["reach_ns"][number] = max(table["reach_ns"][number], reach_ns)
        table["heard_ns"][number] = active_ns
        self.closable = True

    def meet(self, agent: str, started_ns: int, clock: ClockState) -> int:
        """Return the agent's number; a new agent gets one, and its first open window.

        A new agent with a backlog may have been here before and be forgotten since. The first
        window of its backlog may then be closed, so it begins with the next one.
        """
        known = self.table.find(agent)
        if known is not None:
            return known
        config, number = self._config, self.table.row(agent)
        self.table["closing_ns"][number] = closing_delay_ns(config, agent)
        behind_ns = (clock.arrival_ns or 0) - started_ns
        if behind_ns > max_open_ns(config):
            first_open = started_ns // config.window_ns + 1
        else:
            first_open = (started_ns - closing_delay_ns(config, agent)) // config.window_ns
        self.open_from(np.array([number]), np.array([first_open]), clock.active_ns)
        return number

    def open_from(self, numbers: Int64s, first_open: Int64s, active_ns: int) -> None:
        """Set the first open windows of some agents."""
        table = self.table
        table["first_open"][numbers] = first_open
        entry_ns = first_open * self._config.window_ns
        table["entry_ns"][numbers] = np.maximum(entry_ns, self._floor_ns)
        table["opened_ns"][numbers] = active_ns

    @property
    def closed_ns(self) -> int:
        """Event time up to which windows of the agent that is furthest are closed."""
        numbers = self._numbers()
        first_open = int(self.table["first_open"][numbers].max(initial=0))
        return max(first_open * self._config.window_ns, self._floor_ns)

    def due(self, active_ns: int, *, overdue: bool) -> tuple[Int64s, Int64s]:
        """Return the agents whose windows are to be closed, and their first open windows then.

        Parameters
        ----------
        active_ns
            The partition's active time.
        overdue
            Whether to look for windows that have been open for too long, too.

        Returns
        -------
        numbers, first_open : (n,) int64
            In the order of the agents' numbers.
        """
        table, config = self.table, self._config
        numbers = self._numbers()
        first_open = np.empty_like(numbers)
        # Windows opened by then have been open for too long.
        old_ns = active_ns - max_open_ns(config) if overdue else NEVER_NS
        count = _due(
            numbers, config.window_ns, old_ns, table["latest_ns"], table["closing_ns"],
            table["reach_ns"], table["opened_ns"], table["first_open"], first_open,
        )  # fmt: skip
        return numbers[:count], first_open[:count]

    def forget_silent(self, active_ns: int) -> list[int]:
        """Forget the agents that have been silent for long; return their numbers."""
        numbers = self._numbers()
        before_ns = active_ns - forget_agent_ns(self._config)
        gone: list[int] = numbers[self.table["heard_ns"][numbers] < before_ns].tolist()
        for number in gone:
            self.table.remove(self.table.key(number))
        return gone

    def needed_ns(self, active_ns: int) -> int | None:
        """Return the active time from which on agents that are, or were, silent or late are read.

        What such an agent's clock was depends on its rounds of `settling_ns` before, as that of any
        other depends on those of the last `settling_ns`; None if there is no such agent.
        """
        numbers = self._numbers()
        heard_ns, needed_ns, settled_ns = (
            self.table[name][numbers] for name in ("heard_ns", "needed_ns", "settled_ns")
        )
        silent = (heard_ns != NEVER_NS) & (active_ns - heard_ns > MUCH_SILENCE_NS)
        times_ns = np.concatenate((heard_ns[silent], needed_ns[settled_ns >= active_ns]))
        return int(times_ns.min()) - settling_ns(self._config) if len(times_ns) else None

    def first_open(self, agent: str, arrival_ns: int) -> int:
        """Return the index of an agent's first open window; of a forgotten one by arrival."""
        number = self.table.find(agent)
        if number is None:
            return (arrival_ns - closing_delay_ns(self._config, agent)) // self._config.window_ns
        return int(self.table["first_open"][number])

    def now_ns(self, agent: str, clock: ClockState) -> int:
        """Return the present time by an agent's own clock; of a forgotten one, arrival."""
        number = self.table.find(agent)
        if number is None:
            return clock.arrival_ns or 0
        silence_ns = clock.active_ns - int(self.table["heard_ns"][number])
        return int(self.table["latest_ns"][number]) + silence_ns


@compiled
def _due(
    numbers: Int64s,
    window_ns: int,
    old_ns: int,
    latest_ns: Int64s,
    closing_ns: Int64s,
    reach_ns: Int64s,
    opened_ns: Int64s,
    first_open: Int64s,
    after: Int64s,
) -> int:
    """Move the agents whose windows are to be closed to the front; return how many they are."""
    count = 0
    for place in range(len(numbers)):
        number = numbers[place]
        due = (latest_ns[number] - closing_ns[number]) // window_ns
        if opened_ns[number] <= old_ns:
            due = max(due, reach_ns[number] // window_ns + 1)
        if due > first_open[number]:
            numbers[count], after[count] = number, due
            count += 1
    return count


class SeenRounds:
    """Identities of the rounds of the last `horizon_ns` of active time.

    Older ones are forgotten: their windows are closed by then. A round that is certainly new, as
    nearly every one is, is looked for nowhere.

    Attributes
    ----------
    rounds : (ROUNDS_IN_CHUNK, 5) int64; agent, incarnation, number, start, active time at
        acceptance; the first `used[0]` rows are set
    """

    def __init__(self, horizon_ns: int) -> None:
        self.horizon_ns = horizon_ns
        # With the least and the greatest start in each: a round that comes late is looked for only
        # where it may be.
        self._full: deque[tuple[int, int, Int64s]] = deque()
        self.rounds = np.zeros((ROUNDS_IN_CHUNK, 5), np.int64)
        self.used = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return int(self.used[0]) + len(self.rounds) * len(self._full)

    def seen_before(self, identity: RoundId, active_ns: int, *, new: bool) -> bool:
        """Return whether the round was here before; remember it.

        `new` says that it certainly was not.
        """
        oldest_ns = active_ns - self.horizon_ns
        if not new and self._holds(identity, oldest_ns):
            return True
        self.make_room(oldest_ns)
        self.rounds[self.used[0]] = (*identity, active_ns)
        self.used[0] += 1
        return False

    def make_room(self, oldest_ns: int) -> None:
        """Make room for another round; drop chunks whose rounds are all older than `oldest_ns`."""
        if self.used[0] == len(self.rounds):
            started_ns = self.rounds[:, 3]
            self._full.append((int(started_ns.min()), int(started_ns.max()), self.rounds))
            self.rounds, self.used = np.zeros_like(self.rounds), np.zeros_like(self.used)
        while self._full and self._full[0][2][-1, -1] < oldest_ns:
            self._full.popleft()

    def _holds(self, row: RoundId, oldest_ns: int) -> bool:
        wanted = np.array(row)
        found = any(
            least_ns <= row[3] <= greatest_ns and _holds(full, len(full), wanted, oldest_ns)
            for least_ns, greatest_ns, full in self._full
        )
        return found or _holds(self.rounds, int(self.used[0]), wanted, oldest_ns)


@compiled
def _holds(rounds: Int64s, used: int, wanted: Int64s, oldest_ns: int) -> bool:
    """Return whether a round is among these, not older than that."""
    for place in range(used):
        # Few began in the same microsecond.
        if rounds[place, 3] == wanted[3] and rounds[place, 4] >= oldest_ns:
            same = True
            for column in range(len(wanted)):
                same = same and rounds[place, column] == wanted[column]
            if same:
                return True
    return False
