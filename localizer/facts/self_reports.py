"""What agents say of themselves in heartbeats: whether they probe, how far their clocks are off.

Times are arrivals in the log, nanoseconds.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from localizer.facts.agents import AgentTable, Column
from localizer.facts.heartbeats import HeartbeatBatch
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.interpreter import NULL
from schemas.enums import ProbingState
from schemas.records import Heartbeat
from schemas.units import SECOND_NS

# A process that yielded to another of its name goes on sending heartbeats; without one for so many
# of its intervals it has ended.
DISPLACED_INTERVALS: Final = 3
# A clock is off from the first bound on, and right again below the second. NTP keeps clocks within
# milliseconds, and the pipeline's time steps are a quarter of a second.
CLOCK_OFF_NS: Final = SECOND_NS
CLOCK_RIGHT_NS: Final = SECOND_NS // 2
STOPPED: Final = frozenset({ProbingState.EMPTY_LIST, ProbingState.NO_LIST})
_PROBING: Final = list(ProbingState)
# What is kept of each heartbeat in the table.
_FIELDS: Final = {
    Column.PROBING: "probing",
    Column.CLOCK_OFFSET_NS: "clock_offset_ns",
    Column.FLOWS_ACTIVE: "flows_active",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """A process that yielded its agent's name to another process.

    Attributes
    ----------
    since_ns, heard_ns
        Arrival of the first and of the last heartbeat that says so.
    until_ns
        When it counts as ended unless it is heard again.
    displaced_by
        Incarnation that it yielded to; None: not said.
    """

    since_ns: int
    heard_ns: int
    until_ns: int
    incarnation: int
    displaced_by: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfReport:
    """What an agent's last heartbeat says.

    Attributes
    ----------
    stopped_ns, refused_ns, clock_ns
        Since when it follows no targets, refuses the newest list, and has a clock that is off;
        None: it does not.
    flows_active
        5-tuples that it probes; None: not said.
    """

    probing: ProbingState
    reason: str | None
    stopped_ns: int | None
    refusal: str | None
    refused_ns: int | None
    offset_ns: int | None
    clock_ns: int | None
    flows_active: int | None

    @property
    def is_notable(self) -> bool:
        """Whether it says that anything is not as it should be."""
        return (self.stopped_ns, self.refused_ns, self.clock_ns) != (None, None, None)

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing but numbers, and that all is as it should be."""
        return not self.is_notable and self.reason is None and self.refusal is None


BLANK: Final = SelfReport(
    probing=ProbingState.UNKNOWN, reason=None, stopped_ns=None, refusal=None, refused_ns=None,
    offset_ns=None, clock_ns=None, flows_active=None,
)  # fmt: skip


class SelfReports:
    """The latest reports of all agents.

    Parameters
    ----------
    agents
        Those that are known; it takes their numbers.

    Attributes
    ----------
    displaced
        Processes that yielded, by agent.
    notable
        Agents with a report that says that something is wrong.
    """

    def __init__(self, agents: AgentTable) -> None:
        self.displaced: dict[str, Displaced] = {}
        self.notable: set[str] = set()
        # What is plain stands in the table alone.
        self._agents = agents
        self._reports: dict[str, SelfReport] = {}

    @property
    def all_well(self) -> bool:
        """Whether no agent says that something is wrong."""
        return not self.displaced and not self.notable

    def observe_displaced(self, beat: Heartbeat, arrived_ns: int, interval_ns: int) -> None:
        """Apply the heartbeat of a process that yielded."""
        known = self.displaced.get(beat.agent_id)
        self.displaced[beat.agent_id] = Displaced(
            since_ns=arrived_ns if known is None else known.since_ns,
            heard_ns=arrived_ns,
            until_ns=arrived_ns + DISPLACED_INTERVALS * interval_ns,
            incarnation=beat.incarnation,
            displaced_by=beat.displaced_by,
        )

    def observe_heartbeat(self, beat: Heartbeat, arrived_ns: int) -> None:
        """Apply the heartbeat of an agent that is known to be alive."""
        # What is plain says nothing since any time.
        before = self._reports.get(beat.agent_id, BLANK)
        stopped, refused = beat.probing in STOPPED, beat.list_refusal is not None
        bound_ns = CLOCK_OFF_NS if before.clock_ns is None else CLOCK_RIGHT_NS
        offset_ns, error_ns = beat.clock_offset_ns, beat.clock_error_ns or 0
        off = offset_ns is not None and abs(offset_ns) - error_ns > bound_ns
        found = SelfReport(
            probing=beat.probing,
            reason=beat.probing_reason,
            stopped_ns=_since(before.stopped_ns, arrived_ns, now=stopped),
            refusal=beat.list_refusal,
            refused_ns=_since(before.refused_ns, arrived_ns, now=refused),
            offset_ns=offset_ns,
            clock_ns=_since(before.clock_ns, arrived_ns, now=off),
            flows_active=beat.flows_active,
        )
        self._agents.say(
            beat.agent_id,
            {
                Column.PROBING: _PROBING.index(found.probing),
                Column.CLOCK_OFFSET_NS: found.offset_ns,
                Column.FLOWS_ACTIVE: found.flows_active,
            },
        )
        if found.is_plain:
            self._reports.pop(beat.agent_id, None)
        else:
            self._reports[beat.agent_id] = found
        if found.is_notable:
            self.notable.add(beat.agent_id)
        else:
            self.notable.discard(beat.agent_id)

    def ordinary(self, batch: HeartbeatBatch, places: Int64s) -> Bools:
        """Return which heartbeats are as plain as what their agents said before.

        `observe_batch` applies them.

        Parameters
        ----------
        places
            Of the agents, `AgentTable.places`; an agent that is not known has any.
        """
        offset_ns, error_ns = batch.numbers("clock_offset_ns"), batch.numbers("clock_error_ns")
        off_ns = np.abs(np.where(offset_ns == NULL, 0, offset_ns))
        found: Bools = off_ns - np.where(error_ns == NULL, 0, error_ns) <= CLOCK_OFF_NS
        found |= offset_ns == NULL
        for state in STOPPED:
            found &= batch.numbers("probing") != _PROBING.index(state)
        if self._reports:
            found &= ~np.isin(places, self._agents.places(self._reports))
        return found

    def observe_batch(self, batch: HeartbeatBatch, places: Int64s) -> None:
        """Apply heartbeats that are `ordinary`."""
        for column, name in _FIELDS.items():
            self._agents.set_column(column, places, batch.numbers(name))

    def get(self, agent_id: str) -> SelfReport:
        """Return an agent's report; a blank one if there is none."""
        agents, found = self._agents, self._reports.get(agent_id)
        if found is not None:
            return found
        probing = agents.number(agent_id, Column.PROBING)
        if probing is None:
            return BLANK
        return replace(
            BLANK,
            probing=_PROBING[probing],
            offset_ns=agents.number(agent_id, Column.CLOCK_OFFSET_NS),
            flows_active=agents.number(agent_id, Column.FLOWS_ACTIVE),
        )

    def forget_agent(self, agent_id: str) -> None:
        """Forget what an agent said."""
        self._reports.pop(agent_id, None)
        self.notable.discard(agent_id)

    def expire(self, now_ns: int) -> None:
        """Forget processes that yielded and have ended."""
        for agent_id, known in list(self.displaced.items()):
            if now_ns > known.until_ns:
                del self.displaced[agent_id]

    def flows_active(self) -> dict[str, int]:
        """Return how many 5-tuples each agent says that it probes."""
        return self._agents.numbers(Column.FLOWS_ACTIVE)


def _since(before_ns: int | None, arrived_ns: int, *, now: bool) -> int | None:
    if not now:
        return None
    return arrived_ns if before_ns is None else before_ns
