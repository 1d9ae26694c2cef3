"""The state of one partition but for its detectors, and how a round of any kind enters it.

Most rounds are plain and enter by a kernel (`streams.core.plain_rounds`), the others one by one
(`observe_round`). Both are functions on one state, and return what the machine has to finish.
"""

import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from schemas.columns.arrays import Int64s
from streams.columns.index import FlowIndex, Names
from streams.columns.rounds import RoundColumns, round_columns
from streams.config import DetectionConfig
from streams.core.anchors import Anchor, Anchors, horizon_ns
from streams.core.clock import ClockState, SeenRounds, advance_clock
from streams.core.metrics import Metric
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
    """

    before: ClockState
    results: ResultBatch


class PartitionState:
    """Clock, windows, recent probes and names of one partition.

    Parameters
    ----------
    config, identity
        Settings; cluster and partition for the records.
    anchor
        Where the log is entered, and the clock there.
    floor_ns
        Results before this time are in published windows already.
    """

    def __init__(
        self, config: DetectionConfig, identity: Identity, anchor: Anchor, floor_ns: int
    ) -> None:
        self.config = config
        self.identity = identity
        self.clock = anchor.clock
        self.counts: Counter[str] = Counter()
        self.anchors = Anchors(horizon_ns(config), anchor)
        self.seen = SeenRounds(horizon_ns(config))
        self.windows = Windows(config.window_ns, floor_ns, lateness_ns=config.lateness_ns)
        self.recent = RecentProbes(anchor.clock.reach_ns)
        # Names and 5-tuples by their bytes, for the kernel.
        seed = secrets.randbits(SEED_BITS)
        self.names = Names(seed)
        self.index = FlowIndex(seed)
        if anchor.clock.watermark_ns is not None:
            self.windows.close(anchor.clock.watermark_ns - config.lateness_ns)

    def forget_silent(self, before_ns: int) -> list[int]:
        """Forget the 5-tuples without results since `before_ns`; return their rows."""
        rows = self.recent.retire(before_ns)
        for row in rows:
            self.index.forget(row)
        return rows


def observe_round(
    state: PartitionState, datum: dict[str, Any], offset: int, columns: RoundColumns | None = None
) -> UnfinishedRound | None:
    """Enter any round into the state; None for a duplicate.

    Parameters
    ----------
    datum, offset, columns
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
    clock, accepted = advance_clock(before, datum["agent_id"], columns.started_ns, columns.reach_ns)
    if not accepted:
        state.clock = clock
        raise RefusedRoundError(
            "clock_ahead", f"started_at={datum['started_at']} is not confirmed by others"
        )
    state.counts["rounds"] += 1
    identity = (
        datum["agent_id"], datum["incarnation"], datum["round_seq"], columns.started_ns
    )  # fmt: skip
    if state.seen.seen_before(identity, clock.watermark_ns or 0):
        state.counts["duplicate"] += columns.count
        rows, here = state.recent.known_rows(columns.keys)
        state.windows.add_repeats(rows, columns.sent_ns[here])
        return None
    state.clock = clock
    state.recent.advance(clock.reach_ns)
    return UnfinishedRound(before, _observe_results(state, columns))


def _columns(datum: dict[str, Any]) -> RoundColumns:
    try:
        return round_columns(datum)
    except ValueError as error:
        raise RefusedRoundError("invalid", str(error)) from error


def _observe_results(state: PartitionState, columns: RoundColumns) -> ResultBatch:
    """Enter the results that come in time into windows and rings; return them."""
    rows = state.recent.rows(columns.keys)
    timely = state.windows.add_round(rows, columns)
    state.counts["results"] += columns.count
    state.counts["late"] += columns.count - int(timely.sum())
    before_ns: Int64s = state.recent.flows["last_ns"][rows]
    if columns.count:
        state.recent.count_round(columns, rows, timely)
    return ResultBatch(rows[timely], columns.sent_ns[timely], columns.ok[timely], before_ns[timely])
