"""Kernels that fold a rank's new operations into those that are known of it.

Rows are in order of their record ids. The loops are what the text says; compiled, they take a
fiftieth of the time.
"""

from typing import Final

import numpy as np

from localizer.collectives.operation_columns import COMPLETED, ROW
from localizer.collectives.usual_waits import TIMEOUT_MS, US_PER_MS
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.compiled import compiled, inlined
from schemas.columns.interpreter import NULL

# Between two launches that follow each other there is at most the record of a coalesced one, which
# readers leave out; more is what was lost.
NEXT: Final = 2
# A rank waits in a few operations at once, one for each of its communicators and buckets.
MAX_PENDING: Final = 4_096
# Where `match` counts.
PENDING: Final = 0
REFUSED: Final = 1
NEWEST: Final = 2
LOST: Final = 3
TAKEN: Final = 4
REMOVED: Final = 5
COUNTS: Final = 6

_ID: Final = ROW["record_id"]
_CODE: Final = ROW["communicator"]
_SEQUENCE: Final = ROW["sequence"]
_P2P: Final = ROW["is_p2p"]
_STATE: Final = ROW["state"]
_LAUNCHED: Final = ROW["launched_at"]
_STARTED: Final = ROW["started_at"]
_ENDED: Final = ROW["completed_at"]
_RETIRED: Final = ROW["retired"]
_TIMEOUT: Final = ROW["timeout_ms"]


@compiled
def drop_unmentioned(known: Int64s, told: Int64s, removed: Bools, counts: Int64s) -> None:
    """Note the operations that wait and are not told any more: how they ended is not known.

    Parameters as of `match`.
    """
    i = 0
    for place in range(known.shape[1]):
        while i < told.shape[1] and told[_ID, i] < known[_ID, place]:
            i += 1
        mentioned = i < told.shape[1] and told[_ID, i] == known[_ID, place]
        if not mentioned and known[_STATE, place] != COMPLETED:
            removed[place] = True
            counts[REMOVED] += 1
            counts[LOST] += 1
            counts[PENDING] -= 1


@inlined
def _is_same(known: Int64s, place: int, told: Int64s, i: int) -> bool:
    """Return whether an operation that waits is told again as it was: hung ranks do so for long."""
    same: bool = (
        known[_STATE, place] == told[_STATE, i]
        and known[_LAUNCHED, place] == told[_LAUNCHED, i]
        and known[_STARTED, place] == told[_STARTED, i]
        and known[_RETIRED, place] == told[_RETIRED, i]
    )
    return same


@compiled
def match(known: Int64s, told: Int64s, removed: Bools, taken: Bools, counts: Int64s) -> None:
    """Note which operations are new or have changed since.

    An end that was told once stays. Of those that wait only so many are known: the oldest, which
    are those that matter.

    Parameters
    ----------
    known, told
        `OperationColumns.numbers`, shapes (17, n) and (17, m), each by record id.
    removed, taken
        Shapes (n,) and (m,); set where a known one is replaced, and where one that is told takes
        its place or is new.
    counts
        Those that wait; those beyond the bound; the greatest record id; those that were lost; how
        many are marked in `taken` and `removed`.
    """
    place, last = 0, -1
    for i in range(told.shape[1]):
        number = told[_ID, i]
        while place < known.shape[1] and known[_ID, place] < number:
            place += 1
        was_known = place < known.shape[1] and known[_ID, place] == number
        again = last >= 0 and told[_ID, last] == number
        if again and told[_STATE, last] == COMPLETED:
            continue
        if was_known and not again and known[_STATE, place] == COMPLETED:
            continue
        if was_known and not again and _is_same(known, place, told, i):
            continue
        waits, waited = told[_STATE, i] != COMPLETED, again or was_known
        if waits and not waited and counts[PENDING] >= MAX_PENDING:
            counts[REFUSED] += 1
            continue
        if again:
            taken[last] = False
            counts[TAKEN] -= 1
        elif was_known:
            removed[place] = True
            counts[REMOVED] += 1
        counts[PENDING] += int(waits) - int(waited)
        counts[NEWEST] = max(counts[NEWEST], number)
        taken[i] = True
        counts[TAKEN] += 1
        last = i


@compiled
def measure(rows: Int64s, unmeasured: Bools, at_once: int, newest: int, found: Int64s) -> int:
    """Return of how many operations it is known by now how long they took.

    The recorder of gloo has no times of an end. One that waits for each operation has ended it
    before it launches the next; one that was never seen to wait for more than n at once, before it
    launches the n-th after.

    Parameters
    ----------
    rows
        Shape (17, n), by record id.
    unmeasured
        Shape (n,): which have ended and are to be measured; cleared where that is done, or will
        never be possible.
    at_once
        How many wait at once.
    newest
        The greatest record id that was ever told.
    found
        Shape (2, n): the places of these operations, and how long each took (µs).
    """
    later, count = 0, 0
    for i in range(rows.shape[1]):
        if not unmeasured[i]:
            continue
        launched = rows[_LAUNCHED, i]
        ended = rows[_ENDED, i]
        if launched != NULL and ended == NULL:
            number = rows[_ID, i] + at_once
            while later < rows.shape[1] and rows[_ID, later] < number:
                later += 1
            if later < rows.shape[1] and rows[_ID, later] == number:
                ended = rows[_LAUNCHED, later]
            elif newest >= number:
                # It was never seen, and may have been launched long before what was.
                unmeasured[i] = False
                continue
            if ended == NULL:
                continue
        unmeasured[i] = False
        if launched != NULL:
            started = rows[_STARTED, i]
            began = started if started > 0 else launched
            found[0, count] = i
            found[1, count] = max(0, ended - began)
            count += 1
    return count


@compiled
def choose(rows: Int64s, unmeasured: Bools, keep: int, held: Int64s, kept: Bools) -> None:
    """Note what is kept: what waits, what is to be measured, and the last of each communicator.

    Parameters
    ----------
    rows, unmeasured
        As of `measure`.
    keep
        How many finished operations of each communicator.
    held
        By communicator, how many were kept so far: 0.
    kept
        Shape (n,); set where one is.
    """
    for i in range(rows.shape[1] - 1, -1, -1):
        code = rows[_CODE, i]
        if rows[_STATE, i] != COMPLETED or unmeasured[i]:
            kept[i] = True
        elif held[code] < keep:
            held[code] += 1
            kept[i] = True


@compiled
def has_lost_some(rows: Int64s, sequences: Int64s, numbers: Int64s) -> bool:
    """Return whether operations are missing between others, beside coalesced launches.

    A coalesced launch has the sequence number of its members: where it is left out, one record id
    is missing, and no sequence number. So is the last operation of a communicator, or a member of
    a coalesced launch: that one of these alone is missing is not seen.

    Parameters
    ----------
    rows
        Shape (17, n), by record id.
    sequences, numbers
        Shape (2, communicators), of collective operations and of transfers: the sequence number and
        record id of the last one so far. 0, since recorders count from 0 or 1; and -1.
    """
    before, missing = -1, -2
    for i in range(rows.shape[1]):
        number, code, kind = rows[_ID, i], rows[_CODE, i], int(rows[_P2P, i] != 0)
        if before >= 0 and number > before + NEXT:
            return True
        if before >= 0 and number > before + 1:
            missing = before
        sequence = rows[_SEQUENCE, i]
        if missing >= numbers[kind, code] and sequence > sequences[kind, code] + 1:
            return True
        sequences[kind, code], numbers[kind, code] = sequence, number
        before = number
    return False


@compiled
def first_to_wait(rows: Int64s, began: int) -> int:
    """Return the place of what waits and began first; -1: of none it is known when it began.

    Parameters
    ----------
    rows
        Shape (17, n).
    began
        The row that says when.
    """
    found = -1
    for i in range(rows.shape[1]):
        if rows[_STATE, i] == COMPLETED or rows[began, i] == NULL:
            continue
        if found < 0 or rows[began, i] < rows[began, found]:
            found = i
    return found


@compiled
def summarise(rows: Int64s, waited: Int64s, most_us: int, count: Int64s, longest: Int64s) -> int:
    """Count waits by communicator, and note the longest; return how many are left out as too long.

    Parameters
    ----------
    rows
        Shape (17, n).
    waited
        Shape (n,), microseconds.
    most_us
        Longer ones are left out, and what would have been given up before: the host's clock was
        set in between.
    count, longest
        By communicator.
    """
    left_out = 0
    for i in range(rows.shape[1]):
        left_out += int(waited[i] > most_us)
        own_ms = rows[_TIMEOUT, i]
        if not own_ms or own_ms == NULL:
            own_ms = TIMEOUT_MS
        if waited[i] <= most_us and (waited[i] + US_PER_MS - 1) // US_PER_MS <= own_ms:
            code = rows[_CODE, i]
            count[code] += 1
            longest[code] = max(longest[code], waited[i])
    return left_out


def warm() -> None:
    """Compile the kernels, some seconds once after an installation, or read them from disk."""
    rows = np.zeros((len(ROW), 0), np.int64)
    marks, numbers = np.zeros(0, np.bool_), np.zeros(0, np.int64)
    counts = np.zeros(COUNTS, np.int64)
    drop_unmentioned(rows, rows, marks, counts)
    match(rows, rows, marks, marks, counts)
    measure(rows, marks, 1, 0, numbers.reshape(2, 0))
    choose(rows, marks, 1, numbers, marks)
    has_lost_some(rows, numbers.reshape(2, 0), numbers.reshape(2, 0))
    first_to_wait(rows, 0)
    summarise(rows, numbers, 0, numbers, numbers)
