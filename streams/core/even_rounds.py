"""Parts of the kernel for plain rounds that take an even round, eight or more results at a time.

A round is even if every probe was answered, and its 5-tuples have their rows side by side, in the
order of the results, and stand alike: none is watched, all have as many results in the window.
Nearly all rounds are, since the 5-tuples of an agent are entered together, and probed in the same
order again and again. Then what is counted of each result is one step on some neighbours of an
array, which the processor takes together, without a branch. `streams.core.absorb` has what counts
the others one by one, to the same effect.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.compiled import compiled
from schemas.columns.interpreter import NULL
from schemas.units import SECOND_NS
from streams.columns.quantities import COUNT, ROUND_TRIP
from streams.columns.round_kernel import Item
from streams.columns.rounds import MISSING, OK_CODE
from streams.columns.slots import MOST
from streams.core.partition_arrays import RecentArrays, SlotArrays
from streams.detectors.late_answers import LATE_NS
from streams.detectors.recent import HOST_DELAYS, LATEST, SLOTS

_TRANSPORT: Final = int(Item.TRANSPORT)
_STATUS: Final = int(Item.STATUS)
_VALUES: Final = int(Item.VALUES)
_RTT_NS: Final = _VALUES + ROUND_TRIP
_PROBER_NS, _RESPONDER_NS = (_VALUES + quantity for _, quantity in HOST_DELAYS)

# Loops go over slices: of a place that counts from 0 the compiler knows that it is not negative,
# and only then takes several at a time.


@compiled
def is_even(
    count: int,
    window: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    recent: RecentArrays,
    slots: SlotArrays,
) -> bool:
    """Return whether a round that lies in one window is even, and has slots there.

    Parameters
    ----------
    count, items, rows
        Its results, as `streams.columns.round_kernel.read_round` wrote them.
    window
        Place of the window in `slots`.
    recent, slots
        State of the partition.
    """
    first = rows[0]
    apart = 0
    for place in range(count):
        apart |= rows[place] ^ (first + place)
    slot = slots.counts[window, first]
    if apart != 0 or slot >= slots.values.shape[2]:
        return False
    lost = 0
    for place in range(count):
        lost |= (items[_STATUS, place] ^ OK_CODE) | (items[_RTT_NS, place] == NULL)
    for quantity in range(COUNT):
        for place in range(count):
            lost |= items[_VALUES + quantity, place] > MOST
    watched = recent.watched[first : first + count]
    cut_off = recent.cut_off[first : first + count]
    turns = recent.turn[first : first + count]
    turn = turns[0]
    uneven = np.int8(0)
    for place in range(count):
        uneven |= watched[place] | cut_off[place] | (turns[place] ^ turn)
    counts = slots.counts[window, first : first + count]
    for place in range(count):
        apart |= counts[place] ^ slot
    return bool(lost == 0 and uneven == 0 and apart == 0)


@compiled
def count_even(
    count: int,
    active_ns: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    recent: RecentArrays,
) -> None:
    """Count the results of an even round in the rings; each is a sample.

    Parameters
    ----------
    active_ns
        The partition's active time.
    """
    first = rows[0]
    last = first + count
    second = (active_ns // SECOND_NS) % SLOTS
    sent, sampled = recent.sent[second, first:last], recent.sampled[second, first:last]
    for place in range(count):
        sent[place] += 1
    for place in range(count):
        sampled[place] += 1
    last_ns, transports = recent.last_ns[first:last], recent.transport[first:last]
    for place in range(count):
        last_ns[place] = active_ns
    for place in range(count):
        transports[place] = items[_TRANSPORT, place]
    turns = recent.turn[first:last]
    turn = turns[0]
    behind = turn + 1 if turn + 1 < LATEST else 0
    for place in range(count):
        turns[place] = behind
    latest = recent.latest[turn, first:last]
    for place in range(count):
        latest[place] = max(items[_RTT_NS, place], 0)
    late = 0
    for place in range(count):
        late |= (items[_PROBER_NS, place] >= LATE_NS) | (items[_RESPONDER_NS, place] >= LATE_NS)
    if late != 0:
        for place in range(count):
            row = first + place
            if items[_PROBER_NS, place] >= LATE_NS:
                recent.late[second, recent.prober[row]] += 1
            if items[_RESPONDER_NS, place] >= LATE_NS:
                recent.late[second, recent.responder[row]] += 1


@compiled
def gather_even(
    count: int,
    window: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    slots: SlotArrays,
) -> None:
    """Enter the results of an even round into the slots of its window."""
    first = rows[0]
    counts = slots.counts[window, first : first + count]
    slot = counts[0]
    for place in range(count):
        counts[place] += 1
    # A round trip counts as 0 if it is negative; another value is not measured, as without one.
    for place in range(count):
        items[_RTT_NS, place] = max(items[_RTT_NS, place], 0)
    for quantity in range(COUNT):
        values = slots.values[window, quantity, slot, first : first + count]
        for place in range(count):
            values[place] = max(items[_VALUES + quantity, place], MISSING)
