"""The state of one partition but for its detectors, and how a round of any kind enters it.

Most rounds are plain and enter by a kernel (`streams.core.plain_rounds`), the others one by one
(`observe_round`). Both are functions on one state, and return what the machine has to finish.
"""

import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from schemas.columns.arrays import Int64s
from streams.columns.index import FlowIndex, Names
from streams.columns.outcomes import count_outcomes
from streams.columns.rounds import RoundColumns, round_columns
from streams.config import DetectionConfig
from streams.core.anchors import Anchor, Anchors, retire_ns
from streams.core.clock import AgentClocks, ClockState, SeenRounds, advance_clock
from streams.core.metrics import Metric, Tally
from streams.core.windows import Windows
from streams.detectors.base import ResultBatch
from streams.detectors.recent import RecentProbes

START: Final = ClockState()
SEED_BITS: Final = 64


class RefusedRoundError(ValueError):
    """A round that goes to the dead letters; `counter` names what is counted."""

    def __init__(self, counter: Metric, reason: str) -> None:
        self.counter = counter
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose outputs these are."""

    cluster: str
    partition: int


@dataclass(frozen=True, slots=True)
class UnfinishedRound:
    """A round that is in windows and rings, and that detectors have not observed.

    Attributes
    ----------
    before
        The clock before the round.
    results
        All of its results of 5-tuples that lost a probe in it or are watched.
    crowded
        Whether its agent has more windows open than there are slots for.
    """

    before: ClockState
    results: ResultBatch
    crowded: bool = False


class PartitionState:
    """Clock, windows, recent probes and names of one partition.

    Parameters
    ----------
    config, identity
        Settings; cluster and partition for the records.
    anchor
        Where the log is entered, and the clock there.
    floor_ns
        Results before this time are in published windows of another length.
    """

    def __init__(
        self, config: DetectionConfig, identity: Identity, anchor: Anchor, floor_ns: int
    ) -> None:
        self.config = config
        self.identity = identity
        self.clock = anchor.clock
        self.tally = Tally()
        self.anchors = Anchors(config, anchor)
        self.agents = AgentClocks(config, floor_ns)
        self.seen = SeenRounds(retire_ns(config))
        self.windows = Windows(config, self.agents)
        self.recent = RecentProbes(anchor.clock.active_ns)
        # Names and 5-tuples by their bytes, for the kernel.
        seed = secrets.randbits(SEED_BITS)
        self.names = Names(seed)
        self.index = FlowIndex(seed)

    @property
    def counts(self) -> Counter[str]:
        """What was counted by name."""
        return self.tally.counts

    def forget_silent(self, before_ns: int) -> list[int]:
        """Forget the 5-tuples without results since `before_ns`; return their rows.

        Those with results in open windows are kept: by the clock of an agent that runs slow a
        window may stay open for any time. Agents that are silent for long are forgotten, too.
        """
        rows = self.recent.retire(before_ns, self.windows.holding)
        for row in rows:
            self.index.forget(row)
        agents = self.agents.forget_silent(self.clock.active_ns)
        if agents:
            self.names.forget(agents)
        return rows


def observe_round(
    state: PartitionState,
    datum: dict[str, Any],
    offset: int,
    arrival_ns: int | None,
    columns: RoundColumns | None = None,
) -> UnfinishedRound | None:
    """Enter any round into the state; None for a duplicate.

    Parameters
    ----------
    datum, offset, arrival_ns, columns
        As for `streams.core.machine.PartitionMachine.process`.

    Raises
    ------
    RefusedRoundError
        If the round cannot count.
    """
    before = state.clock
    state.anchors.note(offset, before)
    if datum["cluster"] != state.identity.cluster:
        raise RefusedRoundError(
            "foreign", f"cluster {datum['cluster']!r} instead of {state.identity.cluster!r}"
        )
    columns = columns or _columns(datum)
    _check_room(state, datum["agent_id"], columns)
    state.counts["rounds"] += 1
    clock = advance_clock(before, columns.reach_ns if arrival_ns is None else arrival_ns)
    agent = state.agents.meet(datum["agent_id"], columns.started_ns, clock)
    identity = agent, datum["incarnation"], datum["round_seq"], columns.started_ns
    new = state.agents.is_new(agent, columns.started_ns)
    if state.seen.seen_before(identity, clock.active_ns, new=new):
        state.counts["duplicate"] += columns.count
        rows, here = state.recent.known_rows(columns.keys)
        state.windows.add_repeats(agent, rows, columns.sent_ns[here])
        return None
    state.clock = clock
    state.agents.observe_round(agent, columns.started_ns, columns.reach_ns, clock.active_ns)
    state.recent.advance(clock.active_ns)
    results = _observe_results(state, agent, columns, datum["round_seq"])
    return UnfinishedRound(before, results, state.windows.is_crowded(agent, columns.reach_ns))


def _check_room(state: PartitionState, agent: str, columns: RoundColumns) -> None:
    """Refuse a round whose agent or 5-tuples are more than the partition may hold."""
    config = state.config
    if state.agents.table.find(agent) is None and len(state.agents) >= config.max_agents:
        raise RefusedRoundError(
            "beyond_limits", f"agent {agent!r} is beyond max_agents={config.max_agents}"
        )
    if len(state.recent.flows) + columns.count > config.max_flows:
        new = state.recent.flows.find_all(columns.keys).count(None)
        if len(state.recent.flows) + new > config.max_flows:
            raise RefusedRoundError(
                "beyond_limits", f"{new} new 5-tuples are beyond max_flows={config.max_flows}"
            )


def _columns(datum: dict[str, Any]) -> RoundColumns:
    try:
        return round_columns(datum)
    except ValueError as error:
        raise RefusedRoundError("invalid", str(error)) from error


def _observe_results(
    state: PartitionState, agent: int, columns: RoundColumns, seq: int
) -> ResultBatch:
    """Enter the results into windows, but for late ones, and into rings; return them."""
    rows = state.recent.rows(columns.keys)
    timely = state.windows.add_round(agent, rows, columns)
    state.counts["results"] += columns.count
    state.counts["late"] += columns.count - int(timely.sum())
    before_ns: Int64s = state.recent.flows["last_ns"][rows]
    if columns.count:
        count_outcomes(state.tally.outcomes, columns, seq)
        state.recent.count_round(columns, rows, state.clock.active_ns)
    active_ns = np.full(columns.count, state.clock.active_ns)
    return ResultBatch(rows, columns.sent_ns, active_ns, columns.ok, before_ns)
