"""Kernels that fold a rank's new operations into those that are known of it.

Rows are in order of their record ids. The loops are what the text says; compiled, they take a
fiftieth of the time.
"""

from typing import Final

import numpy as np

from localizer.collectives.batch_operations import greatest_references
from localizer.collectives.operation_columns import COMPLETED, ROW, ROWS, TABLE
from localizer.collectives.usual_waits import READ_TWICE_US, TIMEOUT_MS, US_PER_MS
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.compiled import compiled, inlined
from schemas.columns.interpreter import NULL

# Between two launches that follow each other there is at most the record of a coalesced one, which
# readers leave out; more is what was lost.
NEXT: Final = 2
# A rank waits in a few operations at once, one for each of its communicators and buckets.
MAX_PENDING: Final = 4_096
# What is counted of a rank: those that wait, and at most at once; those beyond the bound; the
# greatest record id; whether some that were known are no more; whether its recorder says when its
# GPU began an operation.
PENDING: Final = 0
MOST_PENDING: Final = 1
REFUSED: Final = 2
NEWEST: Final = 3
FORGOT: Final = 4
TIMED: Final = 5
# Of the first iteration, in which connections are made: how many of its operations have ended, how
# many when the newest kind came, whether it seems to be over, whether it turned out that it was
# not, and the record id of the first operation beyond it, or -1.
CAME: Final = 6
CAME_NEW: Final = 7
WARM: Final = 8
WAS_COLD: Final = 9
WARM_FROM: Final = 10
# What is counted of a batch: those that are new or have changed; those of them that were known, and
# others that are no more; how many are known then, were measured, and the new kinds; and how many
# of those that were measured took long.
TAKEN: Final = 11
REMOVED: Final = 12
KNOWN: Final = 13
MEASURED: Final = 14
NEW_KINDS: Final = 15
LONG: Final = 16
COUNTS: Final = 17
# Rows of `notes`: the order of what is known and told, new kinds, and of those that were measured
# the record id, communicator, timeout, and how long each took (µs).
ORDER: Final = 0
KIND: Final = 1
WAIT: Final = 2
WAIT_ID: Final = 2
WAIT_CODE: Final = 3
WAIT_TIMEOUT: Final = 4
WAIT_US: Final = 5
NOTES: Final = 6
# Rows of `marks`: of what is known, which go; of what is told, which are taken; of both together,
# which are to be measured, and kept.
GOES: Final = 0
COMES: Final = 1
UNMEASURED: Final = 2
KEPT: Final = 3
MARKS: Final = 4
# Rows of `sums`, by communicator: how many were kept, how many waits were counted, and the longest.
HELD: Final = 0
WAITED: Final = 1
LONGEST: Final = 2
SUMS: Final = 3
# An iteration has some hundred operations of a rank.
MOST_COLD: Final = 1_000
# A kind of operation is its communicator's index and, in the lower bits, its signature's.
KIND_BITS: Final = 32

_ID: Final = ROW["record_id"]
_CODE: Final = ROW["communicator"]
_SIGNATURE: Final = ROW["signature"]
_SEQUENCE: Final = ROW["sequence"]
_P2P: Final = ROW["is_p2p"]
_STATE: Final = ROW["state"]
_LAUNCHED: Final = ROW["launched_at"]
_STARTED: Final = ROW["started_at"]
_ENDED: Final = ROW["completed_at"]
_RETIRED: Final = ROW["retired"]
_TIMEOUT: Final = ROW["timeout_ms"]
# Fields that decide what is measured and kept, and the others.
_DECIDING: Final = np.array([_ID, _CODE, _STATE, _LAUNCHED, _STARTED, _ENDED, _TIMEOUT])
_OTHERS: Final = np.setdiff1d(np.arange(TABLE), _DECIDING)


@compiled
def fold(
    known: Int64s,
    unmeasured: Bools,
    told: Int64s,
    begin: int,
    end: int,
    codes: Int64s,
    table: int,
    shapes: Int64s,
    kinds: Int64s,
    whole: bool,
    keep: int,
    most: float,
    counts: Int64s,
    rows: Int64s,
    marks: Bools,
    notes: Int64s,
    sums: Int64s,
) -> bool:
    """Fold what a batch tells into what is known; say whether what is told is in order.

    If not, nothing is done.

    Parameters
    ----------
    known, unmeasured
        Shapes (18, n) and (n,): `OperationColumns.numbers`, and which have ended and are to be
        measured.
    told, begin, end
        As of `BatchOperations`.
    codes
        By index of a communicator in the batch, its index in `known`.
    table
        Which of the tables is the batch's.
    shapes
        By signature of the batch, a number of what it does and the shapes of its inputs. Not read
        once the first iteration is over.
    kinds
        The kinds that came in the first iteration.
    whole
        Whether all that wait are told.
    keep, most
        How many finished operations of each communicator are kept once there are more of them all.
    counts
        Shape (`COUNTS`,), written.
    rows, marks, notes
        Shapes (18, n + m), (`MARKS`, n + m) and (`NOTES`, n + m), written: what is known then, and
        under `UNMEASURED` which of that is to be measured; the rest is said where their rows are.
        The marks are not set.
    sums
        Shape (`SUMS`, communicators): 0, written.
    """
    for i in range(begin + 1, end):
        if told[_ID, i] < told[_ID, i - 1]:
            return False
    for count in range(TAKEN, COUNTS):
        counts[count] = 0
    if whole:
        drop_unmentioned(known, told, begin, end, marks, counts)
    match(known, told, begin, end, marks, counts)
    if counts[TAKEN]:
        counts[MOST_PENDING] = max(counts[MOST_PENDING], counts[PENDING])
    merge(known, unmeasured, told, begin, end, marks, counts, notes)
    note_warm(known, told, begin, codes, shapes, kinds, marks, counts, notes)
    # Of most a few fields matter only.
    copy_rows(_DECIDING, known, told, begin, counts, notes, rows)
    name_communicators(known, codes, counts, notes, rows)
    measure(rows, marks, counts, notes)
    sum_up(counts, notes, sums)
    finished = counts[KNOWN] - counts[PENDING]
    if finished > most and finished > keep:
        choose(rows, marks[UNMEASURED], counts[KNOWN], keep, sums[HELD], marks[KEPT])
        drop_others(rows, marks, counts, notes)
    copy_rows(_OTHERS, known, told, begin, counts, notes, rows)
    name_tables(known, table, counts, notes, rows)
    return True


@compiled
def drop_unmentioned(
    known: Int64s, told: Int64s, begin: int, end: int, marks: Bools, counts: Int64s
) -> None:
    """Note the operations that wait and are not told any more: how they ended is not known.

    Parameters as of `fold`.
    """
    i = begin
    for place in range(known.shape[1]):
        while i < end and told[_ID, i] < known[_ID, place]:
            i += 1
        mentioned = i < end and told[_ID, i] == known[_ID, place]
        if not mentioned and known[_STATE, place] != COMPLETED:
            marks[GOES, place] = True
            counts[REMOVED] += 1
            counts[FORGOT] = 1
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
def match(known: Int64s, told: Int64s, begin: int, end: int, marks: Bools, counts: Int64s) -> None:
    """Note which operations are new or have changed since; parameters as of `fold`.

    An end that was told once stays. Of those that wait only so many are known: the oldest, which
    are those that matter.
    """
    place, last = 0, -1
    for i in range(begin, end):
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
            marks[COMES, last - begin] = False
            counts[TAKEN] -= 1
        elif was_known:
            marks[GOES, place] = True
            counts[REMOVED] += 1
        counts[PENDING] += int(waits) - int(waited)
        counts[NEWEST] = max(counts[NEWEST], number)
        marks[COMES, i - begin] = True
        counts[TAKEN] += 1
        last = i


@compiled
def merge(
    known: Int64s,
    unmeasured: Bools,
    told: Int64s,
    begin: int,
    end: int,
    marks: Bools,
    counts: Int64s,
    notes: Int64s,
) -> None:
    """Put what stays and what is taken in order: places in `known` or, behind these, in `told`.

    Parameters as of `fold`.
    """
    i, count = begin, 0
    for place in range(known.shape[1] + 1):
        is_last = place == known.shape[1]
        while i < end and (is_last or told[_ID, i] < known[_ID, place]):
            if marks[COMES, i - begin]:
                notes[ORDER, count] = known.shape[1] + i - begin
                count += 1
            i += 1
        if not is_last and not marks[GOES, place]:
            notes[ORDER, count] = place
            marks[UNMEASURED, count] = unmeasured[place]
            count += 1
    counts[KNOWN] = count


@compiled
def note_warm(
    known: Int64s,
    told: Int64s,
    begin: int,
    codes: Int64s,
    shapes: Int64s,
    kinds: Int64s,
    marks: Bools,
    counts: Int64s,
    notes: Int64s,
) -> None:
    """Note which operations that are taken have ended beyond the rank's first iteration.

    Its first operation may never come again, as a barrier at the start. So it is over once as many
    operations have brought no new kind as came until the newest; with sizes that always change,
    after a thousand. Microbatches repeat within an iteration: a kind that comes later shows that
    what came before was the first one still. Parameters as of `fold`.
    """
    for place in range(counts[KNOWN]):
        i = notes[ORDER, place] - known.shape[1] + begin
        if i < begin:
            continue
        if told[_STARTED, i] != NULL:
            counts[TIMED] = 1
        if told[_STATE, i] != COMPLETED:
            continue
        if counts[CAME] <= MOST_COLD:
            counts[CAME] += 1
            kind = (codes[told[_CODE, i]] << KIND_BITS) | shapes[told[_SIGNATURE, i]]
            if counts[CAME] <= MOST_COLD and not _is_known(kind, kinds, counts, notes):
                notes[KIND, counts[NEW_KINDS]] = kind
                counts[NEW_KINDS] += 1
                counts[CAME_NEW] = counts[CAME]
                if counts[WARM]:
                    counts[WAS_COLD] = 1
                    marks[UNMEASURED, :] = False
                    continue
            if counts[CAME] > min(2 * counts[CAME_NEW], MOST_COLD):
                counts[WARM] = 1
        if counts[WARM]:
            marks[UNMEASURED, place] = True
            if counts[WARM_FROM] < 0:
                counts[WARM_FROM] = told[_ID, i]


@inlined
def _is_known(kind: int, kinds: Int64s, counts: Int64s, notes: Int64s) -> bool:
    """Return whether a kind of operation came before."""
    found = False
    for each in kinds:
        found |= each == kind
    for place in range(counts[NEW_KINDS]):
        found |= notes[KIND, place] == kind
    return found


@compiled
def copy_rows(
    wanted: Int64s,
    known: Int64s,
    told: Int64s,
    begin: int,
    counts: Int64s,
    notes: Int64s,
    rows: Int64s,
) -> None:
    """Copy some fields of what `merge` has put in order; parameters as of `fold`."""
    for row in wanted:
        for place in range(counts[KNOWN]):
            at = notes[ORDER, place]
            behind = at - known.shape[1]
            rows[row, place] = known[row, at] if behind < 0 else told[row, behind + begin]


@compiled
def name_communicators(
    known: Int64s, codes: Int64s, counts: Int64s, notes: Int64s, rows: Int64s
) -> None:
    """Let what is told name communicators as what is known does; parameters as of `fold`."""
    for place in range(counts[KNOWN]):
        if notes[ORDER, place] >= known.shape[1]:
            rows[_CODE, place] = codes[rows[_CODE, place]]


@compiled
def name_tables(known: Int64s, table: int, counts: Int64s, notes: Int64s, rows: Int64s) -> None:
    """Note to which tables each operation refers; parameters as of `fold`."""
    for place in range(counts[KNOWN]):
        at = notes[ORDER, place]
        rows[TABLE, place] = known[TABLE, at] if at < known.shape[1] else table


@compiled
def measure(rows: Int64s, marks: Bools, counts: Int64s, notes: Int64s) -> None:
    """Note of which operations it is known by now how long they took; parameters as of `fold`.

    The recorder of gloo has no times of an end. One that waits for each operation has ended it
    before it launches the next; one that was never seen to wait for more than n at once, before it
    launches the n-th after. The mark of an operation that is to be measured is taken where that is
    done, or will never be possible.
    """
    later, known = 0, counts[KNOWN]
    for i in range(known):
        if not marks[UNMEASURED, i]:
            continue
        launched = rows[_LAUNCHED, i]
        ended = rows[_ENDED, i]
        if launched != NULL and ended == NULL:
            number = rows[_ID, i] + max(1, counts[MOST_PENDING])
            while later < known and rows[_ID, later] < number:
                later += 1
            if later < known and rows[_ID, later] == number:
                ended = rows[_LAUNCHED, later]
            elif counts[NEWEST] >= number:
                # It was never seen, and may have been launched long before what was.
                marks[UNMEASURED, i] = False
                continue
            if ended == NULL:
                continue
        marks[UNMEASURED, i] = False
        if launched != NULL:
            started = rows[_STARTED, i]
            began = started if started > 0 else launched
            place = counts[MEASURED]
            notes[WAIT_ID, place] = rows[_ID, i]
            notes[WAIT_CODE, place] = rows[_CODE, i]
            notes[WAIT_TIMEOUT, place] = rows[_TIMEOUT, i]
            notes[WAIT_US, place] = max(0, ended - began)
            counts[MEASURED] += 1


@compiled
def sum_up(counts: Int64s, notes: Int64s, sums: Int64s) -> None:
    """Count waits by communicator, and note the longest; parameters as of `fold`.

    Those that took long are left to be looked at one by one, and what would have been given up
    before is left out: the host's clock was set in between.
    """
    for i in range(counts[MEASURED]):
        waited, own_ms = notes[WAIT_US, i], notes[WAIT_TIMEOUT, i]
        if waited > READ_TWICE_US:
            counts[LONG] += 1
            continue
        if not own_ms or own_ms == NULL:
            own_ms = TIMEOUT_MS
        if (waited + US_PER_MS - 1) // US_PER_MS <= own_ms:
            code = notes[WAIT_CODE, i]
            sums[WAITED, code] += 1
            sums[LONGEST, code] = max(sums[LONGEST, code], waited)


@compiled
def choose(
    rows: Int64s, unmeasured: Bools, count: int, keep: int, held: Int64s, kept: Bools
) -> None:
    """Note what is kept: what waits, what is to be measured, and the last of each communicator.

    Parameters
    ----------
    rows, unmeasured
        Shapes (18, n) and (n,), by record id; as of `fold`.
    count
        Of how many of them, the first ones.
    keep
        How many finished operations of each communicator.
    held
        By communicator, how many were kept so far: 0.
    kept
        Shape (n,); set where one is.
    """
    for i in range(count - 1, -1, -1):
        code = rows[_CODE, i]
        if rows[_STATE, i] != COMPLETED or unmeasured[i]:
            kept[i] = True
        elif held[code] < keep:
            held[code] += 1
            kept[i] = True


@compiled
def drop_others(rows: Int64s, marks: Bools, counts: Int64s, notes: Int64s) -> None:
    """Move what is kept together; parameters as of `fold`."""
    count = 0
    for i in range(counts[KNOWN]):
        if marks[KEPT, i]:
            for row in _DECIDING:
                rows[row, count] = rows[row, i]
            notes[ORDER, count] = notes[ORDER, i]
            marks[UNMEASURED, count] = marks[UNMEASURED, i]
            count += 1
    if count < counts[KNOWN]:
        counts[FORGOT] = 1
    counts[KNOWN] = count


@compiled
def has_lost_some(rows: Int64s, sequences: Int64s, numbers: Int64s) -> bool:
    """Return whether operations are missing between others, beside coalesced launches.

    A coalesced launch has the sequence number of its members: where it is left out, one record id
    is missing, and no sequence number. So is the last operation of a communicator, or a member of
    a coalesced launch: that one of these alone is missing is not seen.

    Parameters
    ----------
    rows
        Shape (18, n), by record id.
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
        Shape (18, n).
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


def warm() -> None:
    """Compile the kernels, some seconds once after an installation, or read them from disk."""
    rows, none = np.zeros((ROWS, 1), np.int64), np.zeros(0, np.int64)
    known, marks, notes = rows[:, :0].copy(), np.zeros((MARKS, 1), np.bool_), rows[:NOTES].copy()
    ends, sums = np.zeros(1, np.int64), np.zeros((SUMS, 1), np.int64)
    # Of a batch by itself, and among others.
    for told in (rows[:, :0].copy(), np.zeros((ROWS, 2), np.int64)[:, :1]):
        count = told.shape[1]
        fold(
            known, marks[0, :0].copy(), told, 0, count, ends, 0, ends, none, False, 1, 1.0,
            np.zeros(COUNTS, np.int64), rows, marks, notes, sums,
        )  # fmt: skip
        greatest_references(told, ends)
    choose(known, marks[0, :0].copy(), 0, 1, none, marks[0, :0].copy())
    has_lost_some(known, none.reshape(2, 0), none.reshape(2, 0))
    first_to_wait(known, 0)
