"""Rounds taken into windows and rings by one kernel, as long as nothing has to be decided.

A plain round is new, on time and whole: nearly all are. Most of them only count. Where a probe
was lost, or one of a 5-tuple that lost some lately came back, the kernel notes these results
beside, for the detectors of probes; it goes on where that can wait, and stops where it
cannot. It also stops before a round that is not plain, which it leaves untouched to
`streams.core.machine`, and where time comes to a place at which something is due.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.columns.compiled import compiled, inlined
from schemas.units import SECOND_NS
from streams.columns.index import FlowArrays, NameArrays
from streams.columns.interpreter import NULL, read_round
from streams.columns.plan import Field, Item, Plan
from streams.columns.rounds import MAX_TIME_US, MISSING
from streams.columns.slots import MOST
from streams.config import MAX_ADVANCE_NS, MAX_ROUND_SPAN_NS, MAX_RTT_NS
from streams.detectors.connectivity import CUT
from streams.detectors.recent import OUTAGE_PROBES, RING_S, SLOTS

# Windows that a round can lie in at a time; one of a second may have more, which are rare.
LANES: Final = 4
# Results that no slot holds and that are gathered before they become a chunk of their window.
SPILL: Final = 16_384

# Results of a round: more are not plain. As many may wait to be looked at.
MOST_RESULTS: Final = 4_096
GRIDS: Final = 256

# Why the kernel stopped.
DONE: Final = 0
# The next round is not plain.
NOT_PLAIN: Final = 1
# The last round brought what has to be looked at before the next.
DUE: Final = 2
# A lane, the notes or the list of rounds is full.
NO_ROOM: Final = 3

_CLUSTER: Final = int(Field.CLUSTER)
_AGENT: Final = int(Field.AGENT)
_INCARNATION: Final = int(Field.INCARNATION)
_SEQ: Final = int(Field.SEQ)
_STARTED_US: Final = int(Field.STARTED_US)
_OFFSET_NS: Final = int(Item.OFFSET_NS)
_TRANSPORT: Final = int(Item.TRANSPORT)
_OK: Final = int(Item.OK)
_RTT_NS: Final = int(Item.RTT_NS)
_HOST_NS: Final = int(Item.HOST_NS)
_RESPONDER_NS: Final = int(Item.RESPONDER_NS)

# Places of `Clock.now`.
WATERMARK_NS: Final = 0
REACH_NS: Final = 1
BEFORE_WATERMARK_NS: Final = 2
BEFORE_REACH_NS: Final = 3
HEAD_S: Final = 4
SERIAL: Final = 5
RESULTS: Final = 6
ROUNDS: Final = 7
# How many notes and grid points are set; of the notes, how many are of the last round.
NOTED: Final = 8
NOTED_LAST: Final = 9
GRID: Final = 10
NOW_PLACES: Final = 11


class Bounds(NamedTuple):
    """What the kernel needs to know, in nanoseconds; fixed during a call.

    Attributes
    ----------
    step_ns : points of this grid that the reach passes are noted, where nothing else is due
    due_ns, close_ns : where the reach and the watermark make something due
    quiet : no anomaly is open: answers of watched 5-tuples and grid points can wait
    """

    cluster: int
    window_ns: int
    closed_ns: int
    first_open: int
    step_ns: int
    due_ns: int
    close_ns: int
    anchor_ns: int
    quiet: bool


class RecentArrays(NamedTuple):
    """The arrays of `streams.detectors.recent`: by row, the last two by second and row."""

    last_ns: NDArray[np.int64]
    transport: NDArray[np.int8]
    cut_off: NDArray[np.int8]
    watched: NDArray[np.int8]
    last_round: NDArray[np.int64]
    probes: NDArray[np.int32]
    losses: NDArray[np.int32]
    sampled: NDArray[np.uint16]
    sent: NDArray[np.uint16]
    lost: NDArray[np.uint16]


class LaneArrays(NamedTuple):
    """Results gathered by window (index modulo the lanes); rtt -1: lost, delays -1: not measured.

    Attributes
    ----------
    counts : (lanes, rows) int32; slots used
    slots : (lanes, 3, slots, rows) int32; round trip, prober's and responder's delay
    spilled : (lanes,); how many results no slot held: values too large, slots too few
    spill : (lanes, 4, SPILL) int64; their rows and values
    """

    counts: NDArray[np.int32]
    slots: NDArray[np.int32]
    spilled: NDArray[np.int64]
    spill: NDArray[np.int64]


class NoteArrays(NamedTuple):
    """Results to be looked at one by one, and grid points passed, in order.

    `before_ns` is when the 5-tuple's latest probe before the round was sent; `sampled`: a loss
    that counts as a sample; `grid`: the points.
    """

    row: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    ok: NDArray[np.bool_]
    before_ns: NDArray[np.int64]
    sampled: NDArray[np.bool_]
    grid: NDArray[np.int64]


class SeenArrays(NamedTuple):
    """The arrays of `streams.core.clock.SeenRounds`."""

    used: NDArray[np.int64]
    rounds: NDArray[np.int64]
    latest_ns: NDArray[np.int64]


@compiled
def absorb(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    message: int,
    plan: Plan,
    names: NameArrays,
    flows: FlowArrays,
    fields: NDArray[np.int64],
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    bounds: Bounds,
    now: NDArray[np.int64],
    recent: RecentArrays,
    lanes: LaneArrays,
    notes: NoteArrays,
    seen: SeenArrays,
) -> tuple[int, int]:
    """Take plain rounds from number `message` on; return the first not taken, and why.

    Parameters
    ----------
    data, starts, ends, plan, names, flows, fields, items, rows
        As `read_round` takes them; `fields` of one message, `items` and `rows` of one round.
    """
    while message < len(starts):
        count = read_round(
            data, starts[message], ends[message], plan, names, flows, fields, 0, items, rows, 0
        )
        if count <= 0:
            return message, NOT_PLAIN
        why = _take(count, fields, items, rows, bounds, now, recent, lanes, notes, seen)
        if why in (NOT_PLAIN, NO_ROOM):
            return message, why
        message += 1
        if why == DUE:
            return message, DUE
    return message, DONE


@compiled
def _take(
    count: int,
    fields: NDArray[np.int64],
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    bounds: Bounds,
    now: NDArray[np.int64],
    recent: RecentArrays,
    lanes: LaneArrays,
    notes: NoteArrays,
    seen: SeenArrays,
) -> int:
    """Take a round in, or say why not."""
    agent = fields[_AGENT, 0]
    started_us = fields[_STARTED_US, 0]
    watermark_ns = now[WATERMARK_NS]
    if fields[_CLUSTER, 0] != bounds.cluster or started_us < 0 or started_us > MAX_TIME_US:
        return NOT_PLAIN
    started_ns = started_us * 1000
    if started_ns - watermark_ns > MAX_ADVANCE_NS or watermark_ns >= bounds.anchor_ns:
        return NOT_PLAIN
    # Later than all of this agent: its identity cannot have been here before.
    if started_ns <= seen.latest_ns[agent]:
        return NOT_PLAIN
    least = items[_OFFSET_NS, 0]
    most = least
    for place in range(count):
        offset = items[_OFFSET_NS, place]
        rtt = items[_RTT_NS, place]
        least = min(least, offset)
        most = max(most, offset)
        if rtt > MAX_RTT_NS:
            return NOT_PLAIN
    if least < 0 or most > MAX_ROUND_SPAN_NS or started_ns + least < bounds.closed_ns:
        return NOT_PLAIN
    reach_ns = max(now[REACH_NS], started_ns + most)
    head_s = max(now[HEAD_S], reach_ns // SECOND_NS)
    if (started_ns + least) // SECOND_NS <= head_s - RING_S:
        return NOT_PLAIN
    first = (started_ns + least) // bounds.window_ns
    last = (started_ns + most) // bounds.window_ns
    width = len(lanes.spilled)
    if last - bounds.first_open >= width or last - first > 1:
        return NOT_PLAIN
    used = seen.used[0]
    if used >= len(seen.rounds) or now[NOTED] + count > MOST_RESULTS or now[GRID] >= GRIDS:
        return NO_ROOM
    for lane in (first % width, last % width):
        if lanes.spilled[lane] + count > SPILL:
            return NO_ROOM

    # From here on it counts.
    seen.rounds[used, 0] = agent
    seen.rounds[used, 1] = fields[_INCARNATION, 0]
    seen.rounds[used, 2] = fields[_SEQ, 0]
    seen.rounds[used, 3] = started_ns
    seen.latest_ns[agent] = started_ns
    now[BEFORE_WATERMARK_NS] = watermark_ns
    now[BEFORE_REACH_NS] = now[REACH_NS]
    watermark_ns = max(watermark_ns, started_ns)
    seen.rounds[used, 4] = watermark_ns
    seen.used[0] = used + 1
    now[WATERMARK_NS] = watermark_ns
    now[REACH_NS] = reach_ns
    now[ROUNDS] += 1
    now[RESULTS] += count
    _advance(now, head_s, recent)
    urgent = _count(count, started_ns, items, rows, now, recent, notes)
    _gather(count, started_ns, first, last, items, rows, bounds.window_ns, lanes)
    point_ns = reach_ns // bounds.step_ns * bounds.step_ns
    passed = point_ns > now[BEFORE_REACH_NS]
    told = now[NOTED_LAST] > 0
    if (
        urgent
        or reach_ns >= bounds.due_ns
        or watermark_ns >= bounds.close_ns
        or (not bounds.quiet and (passed or told))
    ):
        return DUE
    if passed:
        notes.grid[now[GRID]] = point_ns
        now[GRID] += 1
    return DONE


@compiled
def _advance(now: NDArray[np.int64], head_s: int, recent: RecentArrays) -> None:
    """Move the rings on to a second."""
    steps = min(head_s - now[HEAD_S], SLOTS)
    for second in range(head_s - steps + 1, head_s + 1):
        slot = second % SLOTS
        recent.sampled[slot, :] = 0
        recent.sent[slot, :] = 0
        recent.lost[slot, :] = 0
    now[HEAD_S] = head_s


@inlined
def _is_lost(items: NDArray[np.int64], place: int) -> bool:
    return bool(items[_OK, place] != 1 or items[_RTT_NS, place] == NULL)


@compiled
def _count(
    count: int,
    started_ns: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    now: NDArray[np.int64],
    recent: RecentArrays,
    notes: NoteArrays,
) -> bool:
    """Count the results in the rings, note those of 5-tuples that lose or lost.

    Returns whether one was lost, or one of a 5-tuple came back of which the latest were lost. The
    first probe of a 5-tuple is a sample, unless the round or the one before it tells of an
    outage, as `streams.detectors.recent` has it.
    """
    now[SERIAL] += 1
    serial = now[SERIAL]
    lost_probes = 0
    urgent = False
    for place in range(count):
        row = rows[place]
        lost = 1 if _is_lost(items, place) else 0
        lost_probes += lost
        if recent.last_round[row] != serial:
            recent.last_round[row] = serial
            recent.probes[row] = 1
            recent.losses[row] = lost
        else:
            recent.probes[row] += 1
            recent.losses[row] += lost
    noted = now[NOTED]
    for place in range(count):
        row = rows[place]
        sent_ns = started_ns + items[_OFFSET_NS, place]
        slot = (sent_ns // SECOND_NS) % SLOTS
        lost_here = lost_probes > 0 and _is_lost(items, place)
        recent.transport[row] = items[_TRANSPORT, place]
        recent.sent[slot, row] += 1
        if lost_here:
            recent.lost[slot, row] += 1
        sampled = False
        if recent.last_round[row] == serial:
            # The first of this row; for its others the number differs now.
            recent.last_round[row] = -serial
            losses = recent.losses[row]
            outage = recent.probes[row] >= OUTAGE_PROBES and losses == recent.probes[row]
            if not outage and recent.cut_off[row] == 0:
                recent.sampled[slot, row] += 1
                sampled = True
            recent.cut_off[row] = 1 if outage else 0
        if recent.watched[row] != 0 or recent.losses[row] > 0:
            urgent = urgent or lost_here or recent.watched[row] == CUT
            notes.row[noted] = row
            notes.sent_ns[noted] = sent_ns
            notes.ok[noted] = not lost_here
            notes.before_ns[noted] = recent.last_ns[row]
            notes.sampled[noted] = sampled and lost_here
            noted += 1
    now[NOTED_LAST] = noted - now[NOTED]
    now[NOTED] = noted
    # After all have been noted: what was before is before the round.
    for place in range(count):
        row = rows[place]
        sent_ns = started_ns + items[_OFFSET_NS, place]
        recent.last_ns[row] = max(recent.last_ns[row], sent_ns)
    return urgent


@compiled
def _gather(
    count: int,
    started_ns: int,
    first: int,
    last: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    window_ns: int,
    lanes: LaneArrays,
) -> None:
    """Put the results where those of their window are gathered."""
    bound_ns = last * window_ns
    width = len(lanes.spilled)
    most = lanes.slots.shape[2]
    for place in range(count):
        later = started_ns + items[_OFFSET_NS, place] >= bound_ns
        lane = (last if later else first) % width
        row = rows[place]
        # Whatever is negative, null's mark among it, is not measured.
        host = max(items[_HOST_NS, place], MISSING)
        responder = max(items[_RESPONDER_NS, place], MISSING)
        rtt = MISSING if _is_lost(items, place) else max(items[_RTT_NS, place], 0)
        slot = lanes.counts[lane, row]
        if slot < most and max(rtt, host, responder) <= MOST:
            lanes.slots[lane, 0, slot, row] = rtt
            lanes.slots[lane, 1, slot, row] = host
            lanes.slots[lane, 2, slot, row] = responder
            lanes.counts[lane, row] = slot + 1
        else:
            used = lanes.spilled[lane]
            lanes.spill[lane, 0, used] = row
            lanes.spill[lane, 1, used] = rtt
            lanes.spill[lane, 2, used] = host
            lanes.spill[lane, 3, used] = responder
            lanes.spilled[lane] = used + 1
