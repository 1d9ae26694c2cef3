"""The arrays of a partition's state that the kernel for plain rounds reads and writes.

A tuple for each part of the state, and the settings of one call.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Most open windows at a time that have slots; windows of a second may have more, which are rare.
OPEN_WINDOWS: Final = 4
# Most results of a window without a slot, before they become a chunk of it.
SPILL: Final = 16_384


class Bounds(NamedTuple):
    """Settings and limits of one call, in nanoseconds.

    Attributes
    ----------
    paused_ns : what the partition's active time is behind arrival
    step_ns : grid of progress marks; points that arrival passes are noted if nothing else is due
    due_ns : arrival from which on something is due
    anchor_ns : active time from which on a place of the log has to be noted
    quiet : no anomaly of a detector of probes is open, so that answers of watched 5-tuples and
        grid points can wait
    next_decision_s : else grid points of earlier active seconds than this can
    """

    cluster: int
    window_ns: int
    lateness_ns: int
    paused_ns: int
    step_ns: int
    due_ns: int
    anchor_ns: int
    quiet: bool
    next_decision_s: int


class RecentArrays(NamedTuple):
    """The arrays of `streams.detectors.recent`: by row; four by second and row or host.

    `latest` is by place and row.
    """

    last_ns: NDArray[np.int64]
    transport: NDArray[np.int8]
    cut_off: NDArray[np.int8]
    watched: NDArray[np.int8]
    last_round: NDArray[np.int64]
    probes: NDArray[np.int32]
    losses: NDArray[np.int32]
    prober: NDArray[np.int32]
    responder: NDArray[np.int32]
    sampled: NDArray[np.uint16]
    sent: NDArray[np.uint16]
    lost: NDArray[np.uint16]
    late: NDArray[np.uint16]
    turn: NDArray[np.int8]
    latest: NDArray[np.int32]


class SlotArrays(NamedTuple):
    """Results of the open windows; a window's place is its index modulo their number.

    A value of -1 was not measured; the round trip of a lost probe is -1.

    Attributes
    ----------
    counts : (windows, rows) int32; slots in use
    values : (windows, quantities, slots, rows) int32
    spilled : (windows,) int64; results without a slot: values too large, slots too few
    spill_rows : (windows, SPILL) int64; their rows
    spill : (windows, quantities, SPILL) int64; their values
    """

    counts: NDArray[np.int32]
    values: NDArray[np.int32]
    spilled: NDArray[np.int64]
    spill_rows: NDArray[np.int64]
    spill: NDArray[np.int64]


class NoteArrays(NamedTuple):
    """Results for the detectors of probes, and grid points passed, in order.

    `active_ns` is the active time of the round, `before_ns` that of the 5-tuple's latest probe
    before. `sampled` marks a loss that counts as a sample. `grid` holds the points, nanoseconds.
    """

    row: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    active_ns: NDArray[np.int64]
    ok: NDArray[np.bool_]
    before_ns: NDArray[np.int64]
    sampled: NDArray[np.bool_]
    grid: NDArray[np.int64]


class SeenArrays(NamedTuple):
    """The arrays of `streams.core.clock.SeenRounds`."""

    used: NDArray[np.int64]
    rounds: NDArray[np.int64]


class AgentArrays(NamedTuple):
    """The columns of `streams.core.clock.AgentClocks`, by the agent's number."""

    latest_ns: NDArray[np.int64]
    earlier_ns: NDArray[np.int64]
    reach_ns: NDArray[np.int64]
    first_open: NDArray[np.int64]
    entry_ns: NDArray[np.int64]
    heard_ns: NDArray[np.int64]
