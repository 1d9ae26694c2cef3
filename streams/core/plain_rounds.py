"""The plain rounds of a partition, processed by the kernel; the machine processes the others."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from schemas.columns.arrays import Int64s
from schemas.columns.blocks import Block
from schemas.columns.plan import Plan
from streams.columns.index import NONE, FlowIndex, Names
from streams.columns.round_kernel import ITEMS, Field, key_spans
from streams.config import PROGRESS_STEP_NS, REFRESH_STEP_NS
from streams.core import absorb
from streams.core.absorb import (
    GRIDS,
    MOST_RESULTS,
    Bounds,
    NoteArrays,
    RecentArrays,
    SeenArrays,
)
from streams.core.clock import ClockState
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from streams.detectors.base import ResultBatch

SEED_BITS: Final = 64


class PlainRounds:
    """The kernel's state of one partition: names and 5-tuples by their bytes, and its arrays.

    Whether a round goes through here or through `PartitionMachine.process` changes no output.
    """

    def __init__(self, machine: PartitionMachine) -> None:
        self._machine = machine
        seed = secrets.randbits(SEED_BITS)
        self._names = Names(seed)
        self._flows = FlowIndex(seed)
        self._cluster = machine.seen.number(machine.identity.cluster)
        self._names.enter(self._cluster, machine.identity.cluster)
        self._fields = np.zeros((len(Field), 1), np.int64)
        self._items = np.zeros((ITEMS, MOST_RESULTS), np.int64)
        self._rows = np.zeros(MOST_RESULTS, np.int32)
        self._now = np.zeros(absorb.NOW_PLACES, np.int64)
        self._notes = NoteArrays(
            row=np.zeros(MOST_RESULTS, np.int64),
            sent_ns=np.zeros(MOST_RESULTS, np.int64),
            ok=np.zeros(MOST_RESULTS, np.bool_),
            before_ns=np.zeros(MOST_RESULTS, np.int64),
            sampled=np.zeros(MOST_RESULTS, np.bool_),
            grid=np.zeros(GRIDS, np.int64),
        )
        machine.recent.flows.on_removed.append(self._flows.forget)

    def process(self, block: Block, at: int) -> tuple[int, list[Output]]:
        """Process plain rounds from number `at` of a block on.

        Returns
        -------
        int
            The first round that is not plain, which the machine must process; the block's length
            if all are plain.
        list of Output
            What the rounds publish, in order.
        """
        outputs: list[Output] = []
        machine = self._machine
        if block.plan is None:
            return at, outputs
        while at < len(block):
            watermark_ns = machine.clock.watermark_ns
            if watermark_ns is None or machine.clock.ahead_rounds:
                break
            at, why = self._run(block, block.plan, at, watermark_ns)
            outputs += self._flush_notes(due=why == absorb.DUE)
            if why == absorb.NO_ROOM:
                self._make_room()
            elif why != absorb.DUE:
                break
        return at, outputs

    def _flush_notes(self, *, due: bool) -> list[Output]:
        """Give the kernel's notes to the machine; return what is published.

        Parameters
        ----------
        due
            Whether the machine must finish the last round by itself (`absorb.DUE`).
        """
        machine, now, notes = self._machine, self._now, self._notes
        end = int(now[absorb.NOTED])
        last = end - int(now[absorb.NOTED_LAST]) if due else end
        waited = slice(0, last)
        machine.observe_answers(notes.row[waited], notes.sent_ns[waited], notes.before_ns[waited])
        outputs = machine.progress_marks(notes.grid[: now[absorb.GRID]].tolist())
        if due:
            before = ClockState(
                int(now[absorb.BEFORE_WATERMARK_NS]), int(now[absorb.BEFORE_REACH_NS])
            )
            own = slice(last, end)
            counted = notes.sampled[own]
            for row, sent_ns in zip(
                notes.row[own][counted].tolist(), notes.sent_ns[own][counted].tolist(), strict=True
            ):
                machine.recent.note_loss(row, sent_ns)
            results = ResultBatch(
                notes.row[own], notes.sent_ns[own], notes.ok[own], notes.before_ns[own]
            )
            outputs += machine.finish_round(before, results)
        now[absorb.NOTED] = now[absorb.NOTED_LAST] = now[absorb.GRID] = 0
        return outputs

    def learn(self, block: Block, at: int, datum: Mapping[str, Any]) -> None:
        """Enter the names and 5-tuples of a round that the machine has just processed."""
        plan, machine = block.plan, self._machine
        if plan is None or datum["cluster"] != machine.identity.cluster:
            return
        agent, results = datum["agent_id"], datum["results"]
        known = machine.recent.flows.find_all(
            [(agent, r["src"], r["dst"], r["flow"]) for r in results]
        )
        if None in known or not known:
            return
        rows = np.array(known, np.int64)
        if self._is_known(rows):
            return
        number = machine.seen.number(agent)
        self._names.enter(number, agent)
        spans = np.zeros((len(rows), 2), np.int64)
        scratch = np.zeros((max(len(Field), ITEMS), 1), np.int64)
        found = key_spans(block.data, block.starts[at], block.ends[at], plan, scratch, spans)
        if found == len(rows):
            self._flows.enter(rows, number, block.data, spans)

    def _is_known(self, rows: Int64s) -> bool:
        agents = self._flows.arrays.agent
        return bool(rows.max() < len(agents) and (agents[rows] != NONE).all())

    def _run(self, block: Block, plan: Plan, at: int, watermark_ns: int) -> tuple[int, int]:
        """Let the kernel run, with the machine's clock and state."""
        machine, now = self._machine, self._now
        clock = machine.clock
        now[absorb.WATERMARK_NS], now[absorb.REACH_NS] = watermark_ns, clock.reach_ns
        now[absorb.HEAD_S] = machine.recent.head_s
        now[absorb.RESULTS] = now[absorb.ROUNDS] = 0
        window_ns, first_open = machine.windows.window_ns, machine.windows.first_open
        bounds = Bounds(
            cluster=self._cluster,
            window_ns=window_ns,
            closed_ns=machine.windows.entry_ns,
            first_open=first_open,
            step_ns=PROGRESS_STEP_NS,
            due_ns=(clock.reach_ns // REFRESH_STEP_NS + 1) * REFRESH_STEP_NS,
            close_ns=(first_open + 1) * window_ns + machine.config.lateness_ns,
            anchor_ns=machine.anchors.due_ns,
            quiet=machine.open_anomalies == 0,
        )
        flows, rings, seen = machine.recent.flows, machine.recent.rings, machine.seen
        machine.windows.fit_slots(flows.rows_ever)
        at, why = absorb.absorb(
            block.data,
            block.starts,
            block.ends,
            at,
            plan,
            self._names.arrays,
            self._flows.arrays,
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
                sampled=rings["sampled"],
                sent=rings["sent"],
                lost=rings["lost"],
            ),
            machine.windows.slots,
            self._notes,
            SeenArrays(used=seen.used, rounds=seen.rounds, latest_ns=seen.latest_ns),
        )
        if now[absorb.ROUNDS]:
            machine.clock = ClockState(int(now[absorb.WATERMARK_NS]), int(now[absorb.REACH_NS]))
            machine.recent.head_s = int(now[absorb.HEAD_S])
            machine.counts["rounds"] += int(now[absorb.ROUNDS])
            machine.counts["results"] += int(now[absorb.RESULTS])
        return at, why

    def _make_room(self) -> None:
        """Make room for another round, whichever array was full."""
        machine = self._machine
        machine.windows.spill_slots()
        machine.seen.make_room((machine.clock.watermark_ns or 0) - machine.seen.horizon_ns)
