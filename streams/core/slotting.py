"""Results into the slots of open windows, one by one: by kernels, from rounds of any kind."""

import numpy as np
from numpy.typing import NDArray

from schemas.columns.compiled import compiled, inlined
from streams.columns.quantities import COUNT
from streams.columns.rounds import MISSING
from streams.columns.slots import MOST
from streams.core.partition_arrays import SlotArrays


@inlined
def put_result(
    slots: SlotArrays, window: int, row: int, values: NDArray[np.int64], first: int, place: int
) -> None:
    """Put a result into its row's next slot, or among those without one.

    Parameters
    ----------
    window
        Place of the window in `slots`, which has room for one more without a slot.
    values
        (columns, n); the quantities of the result are in column `place`, from row `first` on;
        whatever is negative was not measured.
    """
    largest = MISSING
    for quantity in range(COUNT):
        largest = max(largest, values[first + quantity, place])
    slot = slots.counts[window, row]
    if slot < slots.values.shape[2] and largest <= MOST:
        for quantity in range(COUNT):
            value = max(values[first + quantity, place], MISSING)
            slots.values[window, quantity, slot, row] = value
        slots.counts[window, row] = slot + 1
    else:
        used = slots.spilled[window]
        slots.spill_rows[window, used] = row
        for quantity in range(COUNT):
            value = max(values[first + quantity, place], MISSING)
            slots.spill[window, quantity, used] = value
        slots.spilled[window] = used + 1


@compiled
def put_results(
    slots: SlotArrays, window: int, rows: NDArray[np.int64], values: NDArray[np.int64]
) -> None:
    """Put results of one window into slots; there is room for all without one.

    Parameters
    ----------
    window
        Place of the window in `slots`.
    rows : (n,) int64
        Rows of the 5-tuples.
    values : (quantities, n) int64
        What was measured.
    """
    for place in range(len(rows)):
        put_result(slots, window, rows[place], values, 0, place)
