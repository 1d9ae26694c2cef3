"""Kernel for plain rounds: adds results to window slots and to counters by second.

A plain round is new, on time and whole; nearly all are. Most results only have to be counted.
Results of 5-tuples that lose a probe, or lost one lately, are noted for the detectors of probes.
The kernel goes on if the notes can wait, and stops if they cannot. It also stops before a round
that is not plain, which it leaves to `streams.core.machine` as it is, and after a round whose
time makes something due.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.bounds import MAX_AHEAD_NS, MAX_NUMBER, MAX_TIME_NS
from schemas.columns.compiled import compiled, inlined
from schemas.columns.interpreter import NULL
from schemas.columns.plan import Plan
from schemas.units import SECOND_NS, US_NS
from streams.columns.index import FlowArrays, NameArrays
from streams.columns.outcomes import SAMPLED, OutcomeArrays, bucket_of
from streams.columns.quantities import COUNT, ROUND_TRIP
from streams.columns.round_kernel import Field, Item, read_round
from streams.columns.rounds import MAX_TIME_US, MISSING, OK_CODE, UNKNOWN_CODE
from streams.columns.slots import MOST
from streams.config import MAX_ROUND_SPAN_NS, MAX_RTT_NS
from streams.core.clock import MAX_GAP_NS, MUCH_SILENCE_NS
from streams.core.even_rounds import count_even, gather_even, is_even
from streams.core.partition_arrays import (
    SPILL,
    AgentArrays,
    Bounds,
    NoteArrays,
    RecentArrays,
    SeenArrays,
    SlotArrays,
)
from streams.core.slotting import put_result
from streams.core.starts import is_new, note_start
from streams.detectors.connectivity import CUT
from streams.detectors.late_answers import LATE_NS
from streams.detectors.recent import HOST_DELAYS, LATEST, OUTAGE_PROBES, SLOTS

MAX_AHEAD_US: Final = MAX_AHEAD_NS // US_NS

# Results of a plain round, and notes, at most.
MOST_RESULTS: Final = 4_096
GRIDS: Final = 256

# Why the kernel stopped.
DONE: Final = 0
# The next round is not plain.
NOT_PLAIN: Final = 1
# The machine has to finish the last round before the next one.
DUE: Final = 2
# The results without a slot, the notes or the list of rounds are full.
NO_ROOM: Final = 3
# The place before the next round has to be noted (`streams.core.anchors`).
ANCHOR: Final = 4

_CLUSTER: Final = int(Field.CLUSTER)
_AGENT: Final = int(Field.AGENT)
_INCARNATION: Final = int(Field.INCARNATION)
_SEQ: Final = int(Field.SEQ)
_STARTED_US: Final = int(Field.STARTED_US)
_OFFSET_NS: Final = int(Item.OFFSET_NS)
_TRANSPORT: Final = int(Item.TRANSPORT)
_STATUS: Final = int(Item.STATUS)
_VALUES: Final = int(Item.VALUES)
_RTT_NS: Final = _VALUES + ROUND_TRIP
_PROBER_NS, _RESPONDER_NS = (_VALUES + quantity for _, quantity in HOST_DELAYS)

# Places of `now`, the kernel's clock and counts.
ARRIVAL_NS: Final = 0
BEFORE_ARRIVAL_NS: Final = 1
# Whether an agent's clock has passed the end of a window that is open.
CLOSABLE: Final = 2
HEAD_S: Final = 3
SERIAL: Final = 4
RESULTS: Final = 5
ROUNDS: Final = 6
# How many notes and grid points are set; of the notes, how many are of the last round.
NOTED: Final = 7
NOTED_LAST: Final = 8
GRID: Final = 9
NOW_PLACES: Final = 10


@compiled
def absorb(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    arrivals_ns: NDArray[np.int64],
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
    slots: SlotArrays,
    notes: NoteArrays,
    seen: SeenArrays,
    agents: AgentArrays,
    outcomes: OutcomeArrays,
) -> tuple[int, int]:
    """Absorb plain rounds from number `message` on; return where and why it stopped.

    Parameters
    ----------
    data, starts, ends, plan, names, flows, fields, items, rows
        As for `read_round`; `fields` of one message, `items` and `rows` of one round.
    arrivals_ns
        When the rounds arrived; negative: not known, then the time of the latest probe counts.
    bounds, now, recent, slots, notes, seen, agents, outcomes
        State of the partition, which is changed.

    Returns
    -------
    int
        Number of the first round that was not absorbed.
    int
        `DONE`, `NOT_PLAIN`, `DUE`, `NO_ROOM` or `ANCHOR`.
    """
    while message < len(starts):
        if now[ARRIVAL_NS] - bounds.paused_ns >= bounds.anchor_ns:
            return message, ANCHOR
        count = read_round(
            data, starts[message], ends[message], plan, names, flows, fields, 0, items, rows, 0
        )
        if count <= 0:
            return message, NOT_PLAIN
        if not _is_within(fields, arrivals_ns[message]):
            return message, NOT_PLAIN
        why = _absorb_round(
            count, arrivals_ns[message], fields, items, rows, bounds, now, recent, slots, notes,
            seen, agents, outcomes,
        )  # fmt: skip
        if why in (NOT_PLAIN, NO_ROOM):
            return message, why
        _count_round_trips(count, fields[_SEQ, 0], items, outcomes)
        message += 1
        if why == DUE:
            return message, DUE
    return message, DONE


@compiled
def _absorb_round(
    count: int,
    arrived_ns: int,
    fields: NDArray[np.int64],
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    bounds: Bounds,
    now: NDArray[np.int64],
    recent: RecentArrays,
    slots: SlotArrays,
    notes: NoteArrays,
    seen: SeenArrays,
    agents: AgentArrays,
    outcomes: OutcomeArrays,
) -> int:
    """Absorb a round, or return why not."""
    agent = fields[_AGENT, 0]
    started_us = fields[_STARTED_US, 0]
    if fields[_CLUSTER, 0] != bounds.cluster or started_us < 0 or started_us > MAX_TIME_US:
        return NOT_PLAIN
    started_ns = started_us * 1000
    # Its identity cannot have been here before.
    if not is_new(agents.latest_ns, agents.earlier_ns, agent, started_ns):
        return NOT_PLAIN
    least, most = _span(count, items)
    if not _are_delays(count, items):
        return NOT_PLAIN
    if least < 0 or most > MAX_ROUND_SPAN_NS or started_ns + least < agents.entry_ns[agent]:
        return NOT_PLAIN
    before_ns = now[ARRIVAL_NS]
    arrival_ns = max(before_ns, arrived_ns if arrived_ns >= 0 else started_ns + most)
    # A pause changes more of the partition's clock.
    if arrival_ns - before_ns > MAX_GAP_NS:
        return NOT_PLAIN
    active_ns = arrival_ns - bounds.paused_ns
    # `AgentClocks.observe_round` notes from where a restart must read.
    if active_ns - agents.heard_ns[agent] > MUCH_SILENCE_NS:
        return NOT_PLAIN
    first = (started_ns + least) // bounds.window_ns
    last = (started_ns + most) // bounds.window_ns
    width = len(slots.spilled)
    first_open = agents.first_open[agent]
    if last - first_open >= width or last - first > 1:
        return NOT_PLAIN
    if seen.used[0] >= len(seen.rounds) or now[NOTED] + count > MOST_RESULTS or now[GRID] >= GRIDS:
        return NO_ROOM
    for window in (first % width, last % width):
        if slots.spilled[window] + count > SPILL:
            return NO_ROOM

    # From here on it counts.
    _note_seen(fields, started_ns, active_ns, seen)
    note_start(agents.latest_ns, agents.earlier_ns, agent, started_ns)
    agents.reach_ns[agent] = max(agents.reach_ns[agent], started_ns + most)
    agents.heard_ns[agent] = active_ns
    if started_ns - bounds.lateness_ns >= (first_open + 1) * bounds.window_ns:
        now[CLOSABLE] = 1
    now[BEFORE_ARRIVAL_NS] = before_ns
    now[ARRIVAL_NS] = arrival_ns
    now[ROUNDS] += 1
    now[RESULTS] += count
    _advance(now, active_ns // SECOND_NS, recent)
    urgent = False
    if first == last and is_even(count, first % width, items, rows, recent, slots):
        now[NOTED_LAST] = 0
        outcomes.statuses[OK_CODE] += count
        count_even(count, active_ns, items, rows, recent)
        gather_even(count, first % width, items, rows, slots)
    else:
        urgent = _count(count, started_ns, active_ns, items, rows, now, recent, notes, outcomes)
        _gather(count, started_ns, first, last, items, rows, bounds.window_ns, slots)
    point_ns = arrival_ns // bounds.step_ns * bounds.step_ns
    passed = point_ns > before_ns
    noted = now[NOTED_LAST] > 0
    if (
        urgent
        or arrival_ns >= bounds.due_ns
        or (passed and now[CLOSABLE] != 0)
        or (not bounds.quiet and noted)
        or (not bounds.quiet and passed and now[HEAD_S] >= bounds.next_decision_s)
    ):
        return DUE
    if passed:
        notes.grid[now[GRID]] = point_ns
        now[GRID] += 1
    return DONE


@inlined
def _note_seen(
    fields: NDArray[np.int64], started_ns: int, active_ns: int, seen: SeenArrays
) -> None:
    """Note the identity of a round."""
    used = seen.used[0]
    seen.rounds[used, 0] = fields[_AGENT, 0]
    seen.rounds[used, 1] = fields[_INCARNATION, 0]
    seen.rounds[used, 2] = fields[_SEQ, 0]
    seen.rounds[used, 3] = started_ns
    seen.rounds[used, 4] = active_ns
    seen.used[0] = used + 1


@inlined
def _is_within(fields: NDArray[np.int64], arrived_ns: int) -> bool:
    incarnation, number = fields[_INCARNATION, 0], fields[_SEQ, 0]
    numbered = number >= 0 and number <= MAX_NUMBER
    dated = incarnation >= 0 and incarnation <= MAX_TIME_NS
    ahead_us = fields[_STARTED_US, 0] - arrived_ns // US_NS
    return bool(numbered and dated and (arrived_ns < 0 or ahead_us <= MAX_AHEAD_US))


@inlined
def _span(count: int, items: NDArray[np.int64]) -> tuple[int, int]:
    """Return the offsets of the first and of the last probe."""
    least = items[_OFFSET_NS, 0]
    most = least
    for place in range(count):
        offset = items[_OFFSET_NS, place]
        least = min(least, offset)
        most = max(most, offset)
    return least, most


@compiled
def _are_delays(count: int, items: NDArray[np.int64]) -> bool:
    """Return whether all that was measured is within bounds; without a branch for each value."""
    beyond = 0
    for quantity in range(COUNT):
        for place in range(count):
            value = items[_VALUES + quantity, place]
            beyond |= (value != NULL) & ((value < -MAX_RTT_NS) | (value > MAX_RTT_NS))
    return bool(beyond == 0)


@compiled
def _advance(now: NDArray[np.int64], head_s: int, recent: RecentArrays) -> None:
    """Move the rings on to a second."""
    steps = min(head_s - now[HEAD_S], SLOTS)
    for second in range(head_s - steps + 1, head_s + 1):
        slot = second % SLOTS
        recent.sampled[slot, :] = 0
        recent.sent[slot, :] = 0
        recent.lost[slot, :] = 0
        recent.late[slot, :] = 0
    now[HEAD_S] = head_s


@inlined
def _is_lost(items: NDArray[np.int64], place: int) -> bool:
    return bool(items[_STATUS, place] != OK_CODE or items[_RTT_NS, place] == NULL)


@inlined
def _count_losses(
    count: int,
    serial: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    recent: RecentArrays,
) -> int:
    """Count probes and losses of the round by row; return all its losses."""
    lost_probes = 0
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
    return lost_probes


@inlined
def _count_round_trips(
    count: int, seq: int, items: NDArray[np.int64], outcomes: OutcomeArrays
) -> None:
    """Count one in `SAMPLED` round trips, as `streams.columns.outcomes` does, after `_gather`."""
    for place in range(seq % SAMPLED, count, SAMPLED):
        rtt_ns = items[_RTT_NS, place]
        if rtt_ns != MISSING:
            transport = items[_TRANSPORT, place]
            outcomes.round_trips[transport, bucket_of(rtt_ns)] += 1
            outcomes.sum_ns[transport] += rtt_ns


@compiled
def _count(
    count: int,
    started_ns: int,
    active_ns: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    now: NDArray[np.int64],
    recent: RecentArrays,
    notes: NoteArrays,
    outcomes: OutcomeArrays,
) -> bool:
    """Count the results in rings and outcomes; note those of 5-tuples that lose or lost a probe.

    Returns whether one was lost, or an answer came of a 5-tuple whose latest probe was lost. The
    first probe of a 5-tuple is a sample, unless this round or the one before it shows an outage,
    as in `streams.detectors.recent`.
    """
    now[SERIAL] += 1
    serial = now[SERIAL]
    lost_probes = _count_losses(count, serial, items, rows, recent)
    outcomes.statuses[OK_CODE] += count - lost_probes
    urgent = False
    noted = now[NOTED]
    slot = (active_ns // SECOND_NS) % SLOTS
    for place in range(count):
        row = rows[place]
        sent_ns = started_ns + items[_OFFSET_NS, place]
        lost_here = lost_probes > 0 and _is_lost(items, place)
        recent.transport[row] = items[_TRANSPORT, place]
        recent.sent[slot, row] += 1
        if lost_here:
            recent.lost[slot, row] += 1
            status = items[_STATUS, place]
            outcomes.statuses[UNKNOWN_CODE if status == OK_CODE else status] += 1
        else:
            turn = recent.turn[row]
            recent.latest[turn, row] = min(max(items[_RTT_NS, place], 0), MOST)
            recent.turn[row] = turn + 1 if turn + 1 < LATEST else 0
            if items[_PROBER_NS, place] >= LATE_NS:
                recent.late[slot, recent.prober[row]] += 1
            if items[_RESPONDER_NS, place] >= LATE_NS:
                recent.late[slot, recent.responder[row]] += 1
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
            notes.active_ns[noted] = active_ns
            notes.ok[noted] = not lost_here
            notes.before_ns[noted] = recent.last_ns[row]
            notes.sampled[noted] = sampled and lost_here
            noted += 1
    now[NOTED_LAST] = noted - now[NOTED]
    now[NOTED] = noted
    # After all have been noted: what was before is before the round.
    for place in range(count):
        recent.last_ns[rows[place]] = active_ns
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
    slots: SlotArrays,
) -> None:
    """Enter the results into the slots of their windows."""
    bound_ns = last * window_ns
    width = len(slots.spilled)
    for place in range(count):
        later = started_ns + items[_OFFSET_NS, place] >= bound_ns
        # A round trip counts as 0 if it is negative.
        items[_RTT_NS, place] = MISSING if _is_lost(items, place) else max(items[_RTT_NS, place], 0)
        put_result(slots, (last if later else first) % width, rows[place], items, _VALUES, place)
