"""What is known of a rank's operations, and how long those took that have ended.

All that wait are known, and the last that have ended of each communicator: they say how far the
rank came, and what usually comes next. They are columns, in order of their record ids.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from localizer.collectives.histories import History, histories_of
from localizer.collectives.operation_columns import (
    COMPLETED,
    NO_OPERATIONS,
    ROW,
    OperationColumns,
)
from localizer.collectives.operation_fold import (
    COUNTS,
    LOST,
    NEWEST,
    PENDING,
    REFUSED,
    REMOVED,
    TAKEN,
    choose,
    drop_unmentioned,
    first_to_wait,
    has_lost_some,
    match,
    measure,
)
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import numbers_or_none
from schemas.records import CollectiveOp
from schemas.records.batches import Tables

# An iteration has some hundred operations of a rank.
MOST_COLD: Final = 1_000
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


class Waits(NamedTuple):
    """Operations that have ended, and how long each took, shape (n,), microseconds."""

    operations: OperationColumns
    waited: Int64s


NO_WAITS: Final = Waits(NO_OPERATIONS, np.zeros(0, np.int64))


class OldestWait(NamedTuple):
    """The operation that has waited longest.

    `began_at` is when it was launched or, where its GPU says so, begun, in microseconds by the
    rank's clock.
    """

    communicator: str
    timeout_ms: int | None
    began_at: int


class Launch(NamedTuple):
    """How far an operation came; times in microseconds by the rank's clock."""

    ended: bool
    launched_at: int | None
    completed_at: int | None


class RankOperations:
    """The operations of one rank in one attempt.

    Attributes
    ----------
    pending
        How many wait.
    refused
        Operations beyond the bound.
    forgot
        Whether some that were known are no more.
    newest
        Record id of the last operation that it launched.
    warm_from
        Record id of the first operation beyond its first iteration; None: not that far.
    """

    def __init__(self) -> None:
        self.pending = self.refused = 0
        self.forgot = False
        self.newest = -1
        self.warm_from: int | None = None
        # They name communicators by their place in `_names`.
        self._rows = NO_OPERATIONS
        self._unmeasured = np.zeros(0, np.bool_)
        self._names: list[str] = []
        self._orders: dict[tuple[str, ...], Int64s] = {}
        self._most_pending = 0
        # Whether its recorder says when its GPU began an operation.
        self._timed = False
        # Of the first iteration, in which connections are made: the kinds of its operations, how
        # many came, how many when the newest kind came, whether it seems to be over, and whether it
        # turned out that it was not.
        self._kinds: set[tuple[object, ...]] = set()
        self._came = self._came_new = 0
        self._warm = self._was_cold = False
        # Made when somebody asks.
        self._oldest: OldestWait | None = None
        self._history: History | None = None

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
        held: list[Tables] = self._rows.tables.tolist()
        return dict(zip(map(id, held), held, strict=True))

    def begin_warm(self) -> None:
        """Note that the first iteration was before what is told first."""
        self._warm, self._came = True, MOST_COLD + 1

    def apply(self, told: OperationColumns, keep: int, *, whole: bool) -> Waits:
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
        if not len(told) and not (whole and self.pending):
            return NO_WAITS
        numbers = told.column("record_id")
        if (numbers[1:] < numbers[:-1]).any():
            told = told.take(np.argsort(numbers, kind="stable"))
        known = self._rows
        removed, taken = np.zeros(len(known), np.bool_), np.zeros(len(told), np.bool_)
        counts = np.zeros(COUNTS, np.int64)
        counts[PENDING], counts[NEWEST] = self.pending, self.newest
        if whole:
            drop_unmentioned(known.numbers, told.numbers, removed, counts)
        match(known.numbers, told.numbers, removed, taken, counts)
        totals: list[int] = counts.tolist()
        self.pending, self.newest = totals[PENDING], totals[NEWEST]
        self.refused += totals[REFUSED]
        self.forgot |= totals[LOST] > 0
        if totals[REMOVED]:
            self._rows, self._unmeasured = known.take(~removed), self._unmeasured[~removed]
            self._oldest = self._history = None
        if totals[TAKEN]:
            self._add(told if totals[TAKEN] == len(told) else told.take(taken))
        return self._measured(keep)

    def _add(self, new: OperationColumns) -> None:
        """Add operations, of which none is known."""
        self._oldest = self._history = None
        self._most_pending = max(self._most_pending, self.pending)
        self._timed = self._timed or bool((new.column("started_at") != NULL).any())
        codes = self._codes_of(new.communicators)[new.column("communicator")]
        new = new.with_codes(codes, self._names)
        warm = self._are_warm(new)
        before = self._rows
        self._rows = before.followed_by(new)
        self._unmeasured = np.concatenate([self._unmeasured, warm])
        if len(before) and new.column("record_id")[0] < before.column("record_id")[-1]:
            order = np.argsort(self._rows.column("record_id"), kind="stable")
            self._rows, self._unmeasured = self._rows.take(order), self._unmeasured[order]

    def _measured(self, keep: int) -> Waits:
        """Return what can be measured, and keep what is to be kept."""
        found = NO_WAITS
        measured = np.zeros((2, len(self._rows)), np.int64)
        at_once = max(1, self._most_pending)
        count = measure(self._rows.numbers, self._unmeasured, at_once, self.newest, measured)
        if count:
            found = Waits(self._rows.take(measured[0, :count]), measured[1, :count])
        # Not at each batch anew: what is kept is copied.
        if len(self._rows) - self.pending > SLACK * keep * min(len(self._names), MOST_NAMES):
            self.forget_finished(keep)
        return found

    def forget_finished(self, keep: int) -> None:
        """Keep so many finished operations of each communicator."""
        if len(self._rows) - self.pending <= keep:
            return
        kept = np.zeros(len(self._rows), np.bool_)
        held = np.zeros(len(self._names), np.int64)
        choose(self._rows.numbers, self._unmeasured, keep, held, kept)
        if not kept.all():
            self._rows, self._unmeasured = self._rows.take(kept), self._unmeasured[kept]
            self.forgot = True
            self._history = None

    def _codes_of(self, communicators: Sequence[str]) -> Int64s:
        """Return the places of some names among the rank's own."""
        names = tuple(communicators)
        if (known := self._orders.get(names)) is not None:
            return known
        if len(self._names) + len(names) > MOST_NAMES:
            self._forget_names()
        codes = {name: code for code, name in enumerate(self._names)}
        found = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
        self._names[:] = codes
        if len(self._orders) >= MOST_ORDERS:
            self._orders.clear()
        self._orders[names] = found
        return found

    def _forget_names(self) -> None:
        """Forget the names of communicators of which no operation is known."""
        used, codes = np.unique(self._rows.column("communicator"), return_inverse=True)
        self._names = [self._names[code] for code in used.tolist()]
        self._rows = self._rows.with_codes(codes, self._names)
        self._orders.clear()

    def _are_warm(self, new: OperationColumns) -> Bools:
        """Return which operations have ended beyond the rank's first iteration.

        Its first operation may never come again, as a barrier at the start. So it is over once as
        many operations have brought no new kind as came until the newest; with sizes that always
        change, after a thousand. Microbatches repeat within an iteration: a kind that comes later
        shows that what came before was the first one still.
        """
        warm = new.finished
        if self._came <= MOST_COLD:
            places = np.flatnonzero(warm)
            if self._kinds.issuperset(map(new.kind, new.one_of_each_kind(places))):
                cold = 0 if self._warm else self._cold_until() - self._came
                self._came += len(places)
                self._warm |= self._came > self._cold_until()
                warm[places[: max(0, cold)]] = False
            else:
                self._note_kinds(new, places.tolist(), warm)
            if self._came > MOST_COLD:
                self._kinds.clear()
        if self.warm_from is None and warm.any():
            self.warm_from = int(new.column("record_id")[warm][0])
        return warm

    def _note_kinds(self, new: OperationColumns, places: list[int], warm: Bools) -> None:
        """Take operations that have ended one by one, and note which are warm."""
        for place in places:
            self._came += 1
            kind = new.kind(place)
            if kind not in self._kinds and self._came <= MOST_COLD:
                self._kinds.add(kind)
                self._came_new = self._came
                if self._warm:
                    self._was_cold = True
                    self._unmeasured[:] = False
                    warm[: place + 1] = False
                    continue
            self._warm |= self._came > self._cold_until()
            warm[place] = self._warm
            if self._warm and self.warm_from is None:
                self.warm_from = int(new.column("record_id")[place])

    def _cold_until(self) -> int:
        """Return how many operations belong to the first iteration, as it seems."""
        return min(2 * self._came_new, MOST_COLD)

    @property
    def is_early(self) -> bool:
        """Whether all that came may be microbatches of its first iteration."""
        return self.newest < MICROBATCHES * self._cold_until()

    def take_cold(self) -> bool:
        """Return once whether waits that were measured were those of its first iteration."""
        cold, self._was_cold = self._was_cold, False
        return cold

    def oldest_wait(self) -> OldestWait | None:
        """Return the operation that has waited longest; None: none waits, or no time is known.

        What its GPU has not begun, if that is recorded, waits for nobody yet.
        """
        if self._oldest is None and self.pending:
            began_row = ROW["started_at" if self._timed else "launched_at"]
            place = first_to_wait(self._rows.numbers, began_row)
            if place >= 0:
                values = self._rows.numbers[:, place].tolist()
                timeout_ms = values[ROW["timeout_ms"]]
                self._oldest = OldestWait(
                    self._names[values[ROW["communicator"]]],
                    None if timeout_ms == NULL else timeout_ms,
                    values[began_row],
                )
        return self._oldest

    def launch(self, number: int) -> Launch | None:
        """Return how far the operation of a record id came; None: nothing is known of it."""
        numbers = self._rows.column("record_id")
        # The last one is asked for at each batch.
        place = len(numbers) - 1
        if not len(numbers) or numbers[place] != number:
            place = int(np.searchsorted(numbers, number))
            if place == len(numbers) or numbers[place] != number:
                return None
        values = self._rows.numbers[:, place].tolist()
        launched_at, completed_at = (
            None if values[row] == NULL else values[row] for row in LAUNCH_TIMES
        )  # fmt: skip
        return Launch(values[ROW["state"]] == COMPLETED, launched_at, completed_at)

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
        return len({self._rows.kind(place) for place in self._rows.one_of_each_kind()})

    def latest_launch(self) -> int:
        """Return when it launched the last operation (µs by its clock); 0: not known."""
        return int(self._rows.column("launched_at").max(initial=0))

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
            choose(rows.numbers, np.zeros(len(rows), np.bool_), 1, held, last)
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
