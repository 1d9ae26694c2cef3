"""What is known of a rank's operations, and how long those took that have ended.

All that wait are known, and the last that have ended of each communicator: they say how far the
rank came, and what usually comes next. They are columns, in order of their record ids.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.histories import History, histories_of
from localizer.collectives.operation_columns import (
    COMPLETED,
    NO_OPERATIONS,
    ROW,
    ROWS,
    OperationColumns,
)
from localizer.collectives.operation_fold import (
    CAME,
    CAME_NEW,
    COUNTS,
    FORGOT,
    KIND,
    KIND_BITS,
    KNOWN,
    LONG,
    LONGEST,
    MARKS,
    MEASURED,
    MOST_COLD,
    NEW_KINDS,
    NEWEST,
    NOTES,
    PENDING,
    REFUSED,
    REMOVED,
    SUMS,
    TAKEN,
    TIMED,
    UNMEASURED,
    WAIT,
    WAIT_US,
    WAITED,
    WARM,
    WARM_FROM,
    WAS_COLD,
    choose,
    first_to_wait,
    fold,
    has_lost_some,
)
from localizer.collectives.usual_waits import READ_TWICE_US
from schemas.columns.arrays import Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import numbers_or_none
from schemas.records import CollectiveOp
from schemas.records.batches import Tables

# Until a second microbatch is over nothing is called warm. Pipelines are fed with some four for
# each of their stages, of which there are eight as a rule.
MICROBATCHES: Final = 16
LAUNCH_TIMES: Final = (ROW["launched_at"], ROW["completed_at"])
# Of finished operations up to so many times as many are held as are to be kept.
SLACK: Final = 1.25
# Beyond so many names of communicators those of which no operation is known are forgotten; and so
# many orders are known in which a rank names them. It has a few of both.
MOST_NAMES: Final = 1_024
MOST_ORDERS: Final = 16
NO_NUMBERS: Final = np.zeros(0, np.int64)


class Waits(NamedTuple):
    """Operations that have ended, and how long each took.

    Attributes
    ----------
    communicators
        Their names, by index.
    numbers : (4, n) int64
        Record id, communicator, timeout in milliseconds or `NULL`, and how long it took in
        microseconds.
    counts, longest
        By communicator, of those that did not take long: how many, and the longest in microseconds;
        what would have been given up before is left out.
    long
        How many took longer than `READ_TWICE_US`.
    """

    communicators: Sequence[str]
    numbers: Int64s
    counts: Sequence[int]
    longest: Sequence[int]
    long: int

    def __len__(self) -> int:
        count: int = self.numbers.shape[1]
        return count

    def took_long(self) -> Int64s:
        """Return the columns of `numbers` of those that took longer than `READ_TWICE_US`."""
        found: Int64s = self.numbers[:, self.numbers[WAIT_US - WAIT] > READ_TWICE_US]
        return found


NO_WAITS: Final = Waits((), np.zeros((NOTES - WAIT, 0), np.int64), (), (), 0)


class OldestWait(NamedTuple):
    """The operation that has waited longest.

    `began_at` is when it was launched or, where its GPU says so, begun, in microseconds by the
    rank's clock. `is_cold`: it is of the rank's first iteration, whatever was launched since: a
    program that does not wait launches the next one before the first has ended.
    """

    communicator: str
    timeout_ms: int | None
    began_at: int
    is_cold: bool


class Launch(NamedTuple):
    """How far an operation came; times in microseconds by the rank's clock."""

    launched_at: int | None
    completed_at: int | None


class RankOperations:
    """The operations of one rank in one attempt.

    What is counted of them stands in one array, in which kernels count it.
    """

    __slots__ = (
        "_codes", "_counted", "_counts", "_history", "_kinds", "_named", "_names", "_oldest",
        "_orders", "_rows", "_shapes", "_shapes_of", "_unmeasured",
    )  # fmt: skip

    def __init__(self) -> None:
        self._counted = np.zeros(COUNTS, np.int64)
        # The same, of which an item is read in less time.
        self._counts = self._counted.data
        self._counts[NEWEST] = self._counts[WARM_FROM] = -1
        # They name communicators by their place in `_names`.
        self._rows = NO_OPERATIONS
        self._unmeasured = np.zeros(0, np.bool_)
        self._names: list[str] = []
        self._orders: dict[tuple[str, ...], Int64s] = {}
        # The latest of them.
        self._named: tuple[str, ...] = ()
        self._codes = NO_NUMBERS
        # Of the first iteration: the kinds of its operations, and numbers of what they do and of
        # the shapes of their inputs, also by signature of the latest tables.
        self._kinds = NO_NUMBERS
        self._shapes: dict[tuple[object, ...], int] = {}
        self._shapes_of: tuple[Tables | None, Int64s] = None, NO_NUMBERS
        # Made when somebody asks.
        self._oldest: OldestWait | None = None
        self._history: History | None = None

    @property
    def pending(self) -> int:
        """How many wait."""
        return self._counts[PENDING]

    @property
    def refused(self) -> int:
        """Operations beyond the bound."""
        return self._counts[REFUSED]

    @property
    def forgot(self) -> bool:
        """Whether some that were known are no more."""
        return self._counts[FORGOT] > 0

    @property
    def newest(self) -> int:
        """Record id of the last operation that it launched; -1: none."""
        return self._counts[NEWEST]

    @property
    def warm_from(self) -> int | None:
        """Record id of the first operation beyond its first iteration; None: not that far."""
        number = self._counts[WARM_FROM]
        return None if number < 0 else number

    def __len__(self) -> int:
        """How many are known."""
        return len(self._rows)

    @property
    def whole(self) -> bool:
        """Whether all that it launched are known, so that they can be counted.

        They are not where some were forgotten, or where whoever keeps them began in the middle of
        the job or missed some. Recorders count from 0.
        """
        rows = self._rows
        if self.forgot or self.refused:
            return False
        if not len(rows):
            return True
        numbers = rows.column("record_id")
        first, last = int(numbers[0]), int(numbers[-1])
        if first > 0 or last - first + 1 == len(rows):
            return first == 0
        shape = 2, len(self._names)
        return not has_lost_some(
            rows.numbers, np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
        )

    def tables(self) -> dict[int, Tables]:
        """Return what they refer to, by identity: ranks share it, an operation keeps all of it."""
        return {id(tables): tables for tables in self._rows.tables}

    def begin_warm(self) -> None:
        """Note that the first iteration was before what is told first."""
        self._counts[WARM], self._counts[CAME] = 1, MOST_COLD + 1

    def apply(self, told: BatchOperations, keep: int, *, whole: bool) -> Waits:
        """Apply operations; return those of which it is known since how long they took.

        Parameters
        ----------
        told
            What was launched or has changed. Of an operation that is told again after its end the
            first end counts.
        keep
            How many finished operations of each communicator to keep, at least.
        whole
            Whether all that wait are told.
        """
        count = told.end - told.begin
        if not count and not (whole and self.pending):
            return NO_WAITS
        codes = self._codes_of(told.communicators) if count else NO_NUMBERS
        tables, table = self._with_table(told)
        counts, numbers = self._counts, self._rows.numbers
        shapes = self._shapes_in(told.tables) if counts[CAME] <= MOST_COLD else NO_NUMBERS
        before, names = numbers.shape[1], len(self._names)
        room = before + count
        rows = np.empty((ROWS, room), np.int64)
        notes = np.empty((NOTES, room), np.int64)
        marks = np.zeros((MARKS, room), np.bool_)
        sums = np.zeros((SUMS, names), np.int64)
        # Not at each batch anew: what is kept is copied.
        most = SLACK * keep * min(names, MOST_NAMES)
        in_order = fold(
            numbers, self._unmeasured, told.numbers, told.begin, told.end, codes, table,
            shapes, self._kinds, whole, keep, most, self._counted, rows, marks, notes, sums,
        )  # fmt: skip
        if not in_order:
            return self.apply(told.in_order(), keep, whole=whole)
        if counts[NEW_KINDS]:
            self._kinds = np.concatenate((self._kinds, notes[KIND, : counts[NEW_KINDS]]))
        if self._shapes and counts[CAME] > MOST_COLD:
            self._forget_kinds()
        known = counts[KNOWN]
        self._unmeasured = marks[UNMEASURED, :known].copy()
        if counts[TAKEN] or counts[REMOVED] or known < before:
            self._rows = OperationColumns(rows[:, :known].copy(), tables, self._names)
            if len(tables) > 1 and before + counts[TAKEN] > known:
                self._rows = self._rows.with_used_tables()
            self._oldest = self._history = None
        measured = counts[MEASURED]
        if not measured:
            return NO_WAITS
        waited, longest = sums[WAITED : LONGEST + 1].tolist()
        return Waits(self._names, notes[WAIT:, :measured], waited, longest, counts[LONG])

    def _with_table(self, told: BatchOperations) -> tuple[Sequence[Tables], int]:
        """Return the tables to which operations refer once more are told, and which is theirs."""
        held = self._rows.tables
        if not len(told):
            return held, 0
        if not len(self._rows):
            return (told.tables,), 0
        for place, one in enumerate(held):
            if one is told.tables:
                return held, place
        return [*held, told.tables], len(held)

    def _shapes_in(self, tables: Tables) -> Int64s:
        """Return by signature a number of what it does and of the shapes of its inputs.

        What comes when so many are known has one number: it may be told without ever ending.
        """
        if self._shapes_of[0] is not tables:
            shapes, numbers = self._shapes, []
            for signature in tables.signatures:
                shape = signature.operation, signature.input_sizes
                number = shapes.get(shape, MOST_COLD)
                if shape not in shapes and len(shapes) < MOST_COLD:
                    number = shapes[shape] = len(shapes)
                numbers.append(number)
            self._shapes_of = tables, np.array(numbers, np.int64)
        return self._shapes_of[1]

    def _forget_kinds(self) -> None:
        self._kinds, self._shapes_of = NO_NUMBERS, (None, NO_NUMBERS)
        self._shapes.clear()

    def forget_finished(self, keep: int) -> None:
        """Keep so many finished operations of each communicator."""
        if len(self._rows) - self.pending <= keep:
            return
        kept = np.zeros(len(self._rows), np.bool_)
        held = np.zeros(len(self._names), np.int64)
        choose(self._rows.numbers, self._unmeasured, len(kept), keep, held, kept)
        if not kept.all():
            self._rows, self._unmeasured = self._rows.take(kept), self._unmeasured[kept]
            self._rows = self._rows.with_used_tables()
            self._counts[FORGOT] = 1
            self._history = None

    def _codes_of(self, communicators: Sequence[str]) -> Int64s:
        """Return the places of some names among the rank's own."""
        names = tuple(communicators)
        if names is self._named:
            return self._codes
        if (known := self._orders.get(names)) is not None:
            self._named, self._codes = names, known
            return known
        if len(self._names) + len(names) > MOST_NAMES:
            self._forget_names()
        codes = {name: code for code, name in enumerate(self._names)}
        found = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
        self._names[:] = codes
        if len(self._orders) >= MOST_ORDERS:
            self._orders.clear()
        self._orders[names] = found
        self._named, self._codes = names, found
        return found

    def _forget_names(self) -> None:
        """Forget the names of communicators of which no operation is known, and no kind."""
        codes = self._rows.column("communicator")
        used, places = np.unique(
            np.concatenate((codes, self._kinds >> KIND_BITS)), return_inverse=True
        )
        self._names = [self._names[code] for code in used.tolist()]
        self._rows = self._rows.with_codes(places[: len(codes)], self._names)
        kinds = self._kinds & ((1 << KIND_BITS) - 1)
        self._kinds = (places[len(codes) :].astype(np.int64) << KIND_BITS) | kinds
        self._orders.clear()
        self._named = ()

    def _cold_until(self) -> int:
        """Return how many operations belong to the first iteration, as it seems."""
        return min(2 * self._counts[CAME_NEW], MOST_COLD)

    @property
    def is_early(self) -> bool:
        """Whether all that came may be microbatches of its first iteration."""
        return self.newest < MICROBATCHES * self._cold_until()

    def take_cold(self) -> bool:
        """Return once whether waits that were measured were those of its first iteration."""
        cold, self._counts[WAS_COLD] = self._counts[WAS_COLD] > 0, 0
        return cold

    def oldest_wait(self) -> OldestWait | None:
        """Return the operation that has waited longest; None: none waits, or no time is known.

        What its GPU has not begun, if that is recorded, waits for nobody yet.
        """
        if self._oldest is None and self.pending:
            began_row = ROW["started_at" if self._counts[TIMED] else "launched_at"]
            place = first_to_wait(self._rows.numbers, began_row)
            if place >= 0:
                values = self._rows.numbers[:, place].tolist()
                timeout_ms = values[ROW["timeout_ms"]]
                self._oldest = OldestWait(
                    self._names[values[ROW["communicator"]]],
                    None if timeout_ms == NULL else timeout_ms,
                    values[began_row],
                    self.warm_from is None or values[ROW["record_id"]] < self.warm_from,
                )
        return self._oldest

    def launch(self, number: int) -> Launch | None:
        """Return how far the operation of a record id came; None: nothing is known of it."""
        numbers = self._rows.column("record_id")
        place = int(np.searchsorted(numbers, number))
        if place == len(numbers) or numbers[place] != number:
            return None
        values = self._rows.numbers[:, place].tolist()
        launched_at, completed_at = (
            None if values[row] == NULL else values[row] for row in LAUNCH_TIMES
        )  # fmt: skip
        return Launch(launched_at, completed_at)

    @property
    def newest_waits(self) -> bool:
        """Whether it waits in the last operation that it launched."""
        if not self._counts[PENDING]:
            return False
        last = self._rows.numbers[:, -1]
        newest: bool = last[ROW["record_id"]] == self.newest
        return newest and last[ROW["state"]] != COMPLETED

    def waits_in(self, communicator: str) -> bool:
        """Return whether it waits in an operation of a communicator."""
        if not self.pending or communicator not in self._names:
            return False
        codes = self._rows.column("communicator")[~self._rows.finished]
        return bool((codes == self._names.index(communicator)).any())

    def waits_at(self, communicator: str, sequence: int | None) -> list[int]:
        """Return record ids of the operations of a sequence number in which it waits."""
        if not self.pending or communicator not in self._names or sequence is None:
            return []
        rows = self._rows
        waits = ~rows.finished & (rows.column("sequence") == sequence)
        waits &= rows.column("communicator") == self._names.index(communicator)
        found: list[int] = rows.column("record_id")[waits].tolist()
        return found

    def communicators(self, *, finished: bool = False) -> list[str]:
        """Return the communicators of its operations, or of those that have ended, by name."""
        codes = self._rows.column("communicator")
        if finished:
            codes = codes[self._rows.finished]
        return sorted(self._names[code] for code in set(codes.tolist()))

    def kinds(self) -> int:
        """Return how many kinds of operations it has, by communicator, name and sizes."""
        return len(self._rows.kinds())

    def latest_launch(self) -> int:
        """Return when it launched the last operation (µs by its clock); 0: not known."""
        return int(self._rows.column("launched_at").max(initial=0))

    def latest_progress(self) -> int | None:
        """Return when its GPU last began or finished an operation (µs by its clock).

        None: the recorder does not tell when one begins.
        """
        if not self._counts[TIMED]:
            return None
        columns = (self._rows.column(name) for name in ("started_at", "completed_at"))
        return max(int(column.max(initial=0)) for column in columns)

    def since(self, after: int | None, first: int) -> OperationColumns | None:
        """Return the operations that are of interest; None: all are.

        Parameters
        ----------
        after
            Of those that have ended, what was launched since (µs), and the last of each
            communicator; None: all.
        first
            Those from this record id on.
        """
        rows = self._rows
        numbers = rows.column("record_id")
        if after is None and (not len(rows) or first <= numbers[0]):
            return None
        wanted = numbers >= first
        if after is not None:
            last = np.zeros(len(rows), np.bool_)
            held = np.zeros(len(self._names), np.int64)
            choose(rows.numbers, np.zeros(len(rows), np.bool_), len(rows), 1, held, last)
            wanted &= last | (rows.column("launched_at") >= max(after, 1))
        return None if wanted.all() else rows.take(wanted)

    def records(self) -> tuple[CollectiveOp, ...]:
        """Return them as records, by record id."""
        return tuple(*histories([self]))

    @property
    def columns(self) -> OperationColumns:
        """All that are known, by record id."""
        return self._rows

    def most_bytes(self, left_out: Collection[str]) -> int:
        """Return the bytes of the largest operation, those of some communicators left out."""
        counted = np.array([name not in left_out for name in self._names], np.bool_)
        sizes = self._rows.column("n_bytes")[counted[self._rows.column("communicator")]]
        return int(sizes.max(initial=0))

    def pending_timeouts_ms(self) -> list[int | None]:
        """Return after which time each operation that waits is given up."""
        return numbers_or_none(self._rows.column("timeout_ms")[~self._rows.finished])


def histories(ranks: Sequence[RankOperations]) -> list[History]:
    """Return what is known of ranks as an analysis reads it; of what did not change, as before."""
    made = iter(histories_of([rank.columns for rank in ranks if rank._history is None]))
    found = []
    for rank in ranks:
        if rank._history is None:
            rank._history = next(made)
        found.append(rank._history)
    return found
