"""The plain rounds of a partition, entered into its state by the kernel."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.columns.arrays import Int64s
from schemas.columns.blocks import Block
from schemas.columns.plan import Plan
from streams.columns.index import NONE
from streams.columns.round_kernel import ITEMS, Field, key_spans
from streams.config import PROGRESS_STEP_NS, REFRESH_STEP_NS
from streams.core import absorb
from streams.core.absorb import GRIDS, MOST_RESULTS
from streams.core.clock import CLUSTER_NUMBER
from streams.core.detection import Detection
from streams.core.partition import PartitionState, UnfinishedRound
from streams.core.partition_arrays import (
    AgentArrays,
    Bounds,
    NoteArrays,
    RecentArrays,
    SeenArrays,
)
from streams.detectors.base import ResultBatch


@dataclass(frozen=True, slots=True)
class DeferredNotes:
    """Notes that the kernel kept until it stopped, since they decide nothing.

    Attributes
    ----------
    behind
        Number of the first round that was not entered.
    answers
        Answers of watched 5-tuples.
    grid_ns
        Points of the progress grid that were passed.
    """

    behind: int
    answers: ResultBatch
    grid_ns: list[int]


class PlainRounds:
    """Lets the kernel enter rounds into a partition's state; holds the kernel's own arrays."""

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        state.names.enter(CLUSTER_NUMBER, state.identity.cluster)
        self._fields = np.zeros((len(Field), 1), np.int64)
        self._items = np.zeros((ITEMS, MOST_RESULTS), np.int64)
        self._rows = np.zeros(MOST_RESULTS, np.int32)
        self._now = np.zeros(absorb.NOW_PLACES, np.int64)
        self._notes = NoteArrays(
            row=np.zeros(MOST_RESULTS, np.int64),
            sent_ns=np.zeros(MOST_RESULTS, np.int64),
            active_ns=np.zeros(MOST_RESULTS, np.int64),
            ok=np.zeros(MOST_RESULTS, np.bool_),
            before_ns=np.zeros(MOST_RESULTS, np.int64),
            sampled=np.zeros(MOST_RESULTS, np.bool_),
            grid=np.zeros(GRIDS, np.int64),
        )

    def observe(
        self,
        block: Block,
        at: int,
        arrivals_ns: Int64s,
        offset_of: Callable[[int], int],
        detection: Detection,
    ) -> Iterator[DeferredNotes | UnfinishedRound]:
        """Enter plain rounds from number `at` of a block on, until one is not plain.

        Parameters
        ----------
        arrivals_ns
            When each round of the block arrived; negative: not known.
        offset_of
            Gives the offset in the log of a round of the block.
        detection
            Says what can wait until the kernel stops.

        Yields
        ------
        DeferredNotes or UnfinishedRound
            First the notes of all rounds read; then the last round, if its time made something due.
        """
        state = self._state
        while block.plan is not None and at < len(block):
            if state.clock.arrival_ns is None:
                return
            at, why = self._run(block, block.plan, at, arrivals_ns, detection)
            now, notes = self._now, self._notes
            end, due = int(now[absorb.NOTED]), why == absorb.DUE
            last = end - int(now[absorb.NOTED_LAST]) if due else end
            grid_ns = notes.grid[: now[absorb.GRID]].tolist()
            now[absorb.NOTED] = now[absorb.NOTED_LAST] = now[absorb.GRID] = 0
            yield DeferredNotes(at, self._results(0, last), grid_ns)
            if due:
                yield self._last_round(last, end)
            if why == absorb.NO_ROOM:
                # Whichever array was full.
                state.windows.spill_slots()
                state.seen.make_room(state.clock.active_ns - state.seen.horizon_ns)
            elif why == absorb.ANCHOR:
                state.anchors.note(offset_of(at), state.clock)
            elif why != absorb.DUE:
                return

    def _last_round(self, first: int, end: int) -> UnfinishedRound:
        """Return the round of these notes."""
        now, notes, own = self._now, self._notes, slice(first, end)
        recent = self._state.recent
        # Most rounds are here for their time, and have none.
        for place in (first + np.flatnonzero(notes.sampled[own])).tolist() if first < end else ():
            recent.note_loss(int(notes.row[place]), int(notes.sent_ns[place]), recent.head_s)
        before = self._state.clock.at(int(now[absorb.BEFORE_ARRIVAL_NS]))
        return UnfinishedRound(before, self._results(first, end))

    def _results(self, first: int, end: int) -> ResultBatch:
        notes = self._notes
        return ResultBatch(
            notes.row[first:end], notes.sent_ns[first:end], notes.active_ns[first:end],
            notes.ok[first:end], notes.before_ns[first:end],
        )  # fmt: skip

    def learn(self, block: Block, at: int, datum: Mapping[str, Any]) -> None:
        """Enter the names and 5-tuples of a round that has just been processed by itself."""
        plan, state = block.plan, self._state
        if plan is None or datum["cluster"] != state.identity.cluster:
            return
        agent, results = datum["agent_id"], datum["results"]
        known = state.recent.flows.find_all(
            [(agent, r["src"], r["dst"], r["flow"]) for r in results]
        )
        number = state.agents.table.find(agent)
        if None in known or not known or number is None:
            return
        rows = np.array(known, np.int64)
        if self._is_known(rows):
            return
        state.names.enter(number, agent)
        spans = np.zeros((len(rows), 2), np.int64)
        scratch = np.zeros((max(len(Field), ITEMS), 1), np.int64)
        found = key_spans(block.data, block.starts[at], block.ends[at], plan, scratch, spans)
        if found == len(rows):
            state.index.enter(rows, number, block.data, spans)

    def _is_known(self, rows: Int64s) -> bool:
        agents = self._state.index.arrays.agent
        return bool(rows.max() < len(agents) and (agents[rows] != NONE).all())

    def _run(
        self,
        block: Block,
        plan: Plan,
        at: int,
        arrivals_ns: Int64s,
        detection: Detection,
    ) -> tuple[int, int]:
        """Let the kernel run with the partition's clock and arrays."""
        state, now = self._state, self._now
        clock, agents = state.clock, state.agents
        arrival_ns = clock.arrival_ns or 0
        now[absorb.ARRIVAL_NS] = arrival_ns
        now[absorb.HEAD_S] = state.recent.head_s
        now[absorb.CLOSABLE] = agents.closable
        now[absorb.RESULTS] = now[absorb.ROUNDS] = 0
        bounds = Bounds(
            cluster=CLUSTER_NUMBER,
            window_ns=state.config.window_ns,
            lateness_ns=state.config.lateness_ns,
            paused_ns=clock.paused_ns,
            step_ns=PROGRESS_STEP_NS,
            due_ns=(arrival_ns // REFRESH_STEP_NS + 1) * REFRESH_STEP_NS,
            anchor_ns=state.anchors.due_ns,
            quiet=detection.quiet,
            next_decision_s=detection.next_decision_s,
        )
        flows, rings, seen = state.recent.flows, state.recent.rings, state.seen
        state.windows.fit_slots(flows.rows_ever)
        at, why = absorb.absorb(
            block.data,
            block.starts,
            block.ends,
            arrivals_ns,
            at,
            plan,
            state.names.arrays,
            state.index.arrays,
            self._fields,
            self._items,
            self._rows,
            bounds,
            now,
            RecentArrays(
                last_ns=flows["last_ns"],
                transport=flows["transport"],
                cut_off=flows["cut_off"],
                watched=flows["watched"],
                last_round=flows["last_round"],
                probes=flows["probes"],
                losses=flows["losses"],
                prober=flows["prober"],
                responder=flows["responder"],
                sampled=rings["sampled"],
                sent=rings["sent"],
                lost=rings["lost"],
                late=state.recent.late_answers.ring,
                turn=flows["turn"],
                latest=state.recent.latest,
            ),
            state.windows.slots,
            self._notes,
            SeenArrays(used=seen.used, rounds=seen.rounds),
            AgentArrays(
                latest_ns=agents.table["latest_ns"],
                earlier_ns=agents.table["earlier_ns"],
                reach_ns=agents.table["reach_ns"],
                first_open=agents.table["first_open"],
                entry_ns=agents.table["entry_ns"],
                heard_ns=agents.table["heard_ns"],
            ),
            state.tally.outcomes,
        )
        agents.closable = bool(now[absorb.CLOSABLE])
        if now[absorb.ROUNDS]:
            state.clock = clock.at(int(now[absorb.ARRIVAL_NS]))
            state.recent.head_s = int(now[absorb.HEAD_S])
            state.counts["rounds"] += int(now[absorb.ROUNDS])
            state.counts["results"] += int(now[absorb.RESULTS])
        return at, why
