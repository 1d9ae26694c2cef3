"""Operations of a rank as columns, beside a twin that takes them one by one."""

from collections import Counter
from itertools import pairwise
from typing import Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.collectives import rank_operations
from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.groups import is_finished
from localizer.collectives.operation_columns import OperationColumns, records_of
from localizer.collectives.operation_fold import MOST_COLD, TIMED
from localizer.collectives.rank_operations import SLACK, RankOperations
from schemas.enums import CollectiveState
from schemas.records import CollectiveOp

US = st.none() | st.integers(0, 60)
GROUPS: Final = ("dp", "tp", "world")
STATES = st.sampled_from([CollectiveState.COMPLETED, CollectiveState.STARTED])


Times = tuple[int | None, int | None, int | None]


def operation(
    number: int, group: str, state: CollectiveState, times: Times, size: int = 1
) -> CollectiveOp:
    """Return an operation of a rank; times are those of its launch, beginning and end."""
    launched, started, completed = times
    return CollectiveOp(
        communicator=group, operation="all_reduce", sequence=number, is_p2p=number % 7 == 0,
        record_id=number, op_id=None, sender=None, receiver=None, input_sizes=((size,),),
        output_sizes=(), input_dtypes=("F32",), output_dtypes=(), n_bytes=4 * size,
        launched_at=launched, started_at=started, completed_at=completed,
        missing_reason=None if completed else f"reason {number % 3}", state=state,
        retired=None if number % 2 else state is CollectiveState.COMPLETED, timeout_ms=number,
        stack=("f",) * (number % 3),
    )  # fmt: skip


OPERATIONS = st.builds(
    operation,
    st.integers(0, 24),
    st.sampled_from(GROUPS),
    STATES,
    st.tuples(US, US, US),
    st.integers(1, 3),
)
# What a rank tells at one time, and whether that is all that waits.
BATCHES = st.lists(st.tuples(st.lists(OPERATIONS, max_size=12), st.booleans()), max_size=6)


def _alike(one: CollectiveOp, other: CollectiveOp) -> bool:
    """Return whether an operation stands where it stood."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("state", "launched_at", "started_at", "retired")
    )


class SlowTwin:
    """The same, operation by operation."""

    def __init__(self) -> None:
        self.known: dict[int, CollectiveOp] = {}
        self.unmeasured: set[int] = set()
        self.names: set[str] = set()
        self.kinds: set[tuple[object, ...]] = set()
        self.refused = self.most_pending = self.came = self.came_new = 0
        self.warm = self.cold = self.forgot = False
        self.newest = -1
        self.warm_from: int | None = None

    @property
    def pending(self) -> list[CollectiveOp]:
        """Those that wait."""
        return [o for o in self.known.values() if not is_finished(o)]

    def apply(
        self, told: list[CollectiveOp], keep: int, *, whole: bool
    ) -> list[tuple[int, str, int | None, int]]:
        """Apply operations; return which were measured, and how long they took."""
        if not told and not (whole and self.pending):
            return []
        if whole:
            mentioned = {o.record_id for o in told}
            for gone in [o.record_id for o in self.pending if o.record_id not in mentioned]:
                del self.known[gone]
                self.forgot = True
        ended = []
        taken: dict[int, CollectiveOp] = {}
        for one in sorted(told, key=lambda o: o.record_id):
            before = self.known.get(one.record_id)
            if before is not None and is_finished(before):
                continue
            if before is not None and one.record_id not in taken and _alike(before, one):
                continue
            if before is None and not is_finished(one) and len(self.pending) >= MOST_PENDING:
                self.refused += 1
                continue
            self.known[one.record_id] = taken[one.record_id] = one
            self.newest = max(self.newest, one.record_id)
        # A name is known once something of its batch is told, taken or not.
        self.names |= {o.communicator for o in told}
        self.most_pending = max(self.most_pending, len(self.pending))
        for number, one in sorted(taken.items()):
            if is_finished(one):
                ended.append(number)
                if self._is_warm(one):
                    self.unmeasured.add(number)
        found = self._measured()
        if len(self.known) - len(self.pending) > SLACK * keep * len(self.names):
            self.forget(keep)
        return found

    def _is_warm(self, one: CollectiveOp) -> bool:
        self.came += 1
        kind = one.communicator, one.operation, one.input_sizes
        if kind not in self.kinds and self.came <= MOST_COLD:
            self.kinds.add(kind)
            self.came_new = self.came
            if self.warm:
                self.cold = True
                self.unmeasured.clear()
                return False
        self.warm |= self.came > min(2 * self.came_new, MOST_COLD)
        if self.warm and self.warm_from is None:
            self.warm_from = one.record_id
        return self.warm

    def _measured(self) -> list[tuple[int, str, int | None, int]]:
        found = []
        for number in sorted(self.unmeasured):
            one = self.known[number]
            end = one.completed_at
            if one.launched_at is not None and end is None:
                later = number + max(1, self.most_pending)
                following = self.known.get(later)
                if following is None and self.newest >= later:
                    self.unmeasured.remove(number)
                    continue
                end = None if following is None else following.launched_at
                if end is None:
                    continue
            self.unmeasured.remove(number)
            if one.launched_at is not None and end is not None:
                took = max(0, end - (one.started_at or one.launched_at))
                found.append((number, one.communicator, one.timeout_ms, took))
        return found

    def forget(self, keep: int) -> None:
        """Keep the last of each communicator, what waits, and what is to be measured."""
        held: Counter[str] = Counter()
        for number in sorted(self.known, reverse=True):
            one = self.known[number]
            if not is_finished(one) or number in self.unmeasured:
                continue
            if held[one.communicator] >= keep:
                del self.known[number]
                self.forgot = True
            held[one.communicator] += 1


MOST_PENDING: Final = 4_096


def told_of(state: RankOperations, told: list[CollectiveOp], keep: int, *, whole: bool) -> object:
    """Apply operations as columns; return what was measured."""
    found = state.apply(BatchOperations.of_records(told), keep, whole=whole)
    return [
        (number, found.communicators[code], timeout_ms, waited)
        for number, code, timeout_ms, waited in found.numbers.T.tolist()
    ]


@settings(max_examples=300)
@given(batches=BATCHES, keep=st.integers(1, 4))
def test_columns_say_what_the_twin_says(
    batches: list[tuple[list[CollectiveOp], bool]], keep: int
) -> None:
    """In any order, again, with and without times, and where the recorder lost some."""
    state, twin = RankOperations(), SlowTwin()
    for told, whole in batches:
        assert told_of(state, told, keep, whole=whole) == twin.apply(told, keep, whole=whole)
        assert state.records() == tuple(twin.known[n] for n in sorted(twin.known))
        assert (state.pending, state.newest) == (len(twin.pending), twin.newest)
        assert (state.forgot, state.warm_from) == (twin.forgot, twin.warm_from)
        from_first = sorted(twin.known) == list(range(len(twin.known)))
        assert state.whole == (from_first and not twin.forgot and not twin.refused)
        waiting = [o for o in twin.pending if o.launched_at is not None]
        oldest = state.oldest_wait()
        if oldest is not None and not state._counts[TIMED]:
            first = min(waiting, key=lambda o: (o.launched_at, o.record_id))
            cold = twin.warm_from is None or first.record_id < twin.warm_from
            assert oldest == (first.communicator, first.timeout_ms, first.launched_at, cold)
        elif not state._counts[TIMED]:
            assert not waiting
        times = (t for o in twin.known.values() for t in (o.started_at, o.completed_at))
        latest = max((t for t in times if t is not None), default=0)
        assert state.latest_progress() == (latest if state._counts[TIMED] else None)
    assert state.take_cold() == twin.cold
    assert not state.take_cold()


@given(
    batches=st.lists(st.lists(OPERATIONS, max_size=12), max_size=4),
    cuts=st.lists(st.integers(0, 48), max_size=4),
)
def test_it_does_not_matter_how_operations_were_batched(
    batches: list[list[CollectiveOp]], cuts: list[int]
) -> None:
    """Of those that come in order; nothing is forgotten."""
    every = sorted(
        {o.record_id: o for batch in batches for o in batch}.values(), key=lambda o: o.record_id
    )
    every = [o._replace(state=CollectiveState.COMPLETED) for o in every]
    one, many = RankOperations(), RankOperations()
    found = told_of(one, every, 100, whole=False)
    parts = []
    places = [0, *sorted(min(cut, len(every)) for cut in cuts), len(every)]
    for begin, end in pairwise(places):
        part = told_of(many, every[begin:end], 100, whole=False)
        assert isinstance(part, list)
        parts += part
    cold = one.take_cold(), many.take_cold()
    assert one.records() == many.records()
    assert (one.warm_from, cold[0]) == (many.warm_from, cold[1])
    if not cold[0]:
        assert sorted(parts) == found


@given(batches=st.lists(st.lists(OPERATIONS, max_size=8), max_size=4))
def test_records_of_many_ranks_are_those_of_each(batches: list[list[CollectiveOp]]) -> None:
    """Columns name communicators in their own order each; records come back as they were."""
    parts = [OperationColumns.of_records(batch) for batch in batches]
    assert records_of(parts) == [part.records() for part in parts] == batches


def test_of_names_that_are_always_new_only_some_are_kept() -> None:
    """A rank that names another communicator in each batch fills no memory."""
    state = RankOperations()
    for number in range(3 * rank_operations.MOST_NAMES):
        told = operation(
            number, f"group{number}", CollectiveState.COMPLETED, (number, None, number)
        )
        state.apply(BatchOperations.of_records([told]), 1, whole=False)
        if number % 100 == 0:
            state.forget_finished(0)
    assert len(state._names) <= rank_operations.MOST_NAMES
    assert len(state._orders) <= rank_operations.MOST_ORDERS
    assert {o.communicator for o in state.records()} <= set(state._names)
    assert state.communicators() == sorted({o.communicator for o in state.records()})


def test_of_those_that_wait_only_so_many_are_known() -> None:
    """The oldest; what is beyond is counted, and known once it ends."""
    state = RankOperations()
    waiting = [
        operation(n, "dp", CollectiveState.STARTED, (n, None, None))
        for n in range(MOST_PENDING + 10)
    ]
    state.apply(BatchOperations.of_records(waiting), 4, whole=False)
    assert (state.pending, state.refused, state.newest) == (MOST_PENDING, 10, MOST_PENDING - 1)
    last = waiting[-1]._replace(state=CollectiveState.COMPLETED)
    state.apply(BatchOperations.of_records([last]), 4, whole=False)
    assert (state.pending, state.newest) == (MOST_PENDING, last.record_id)
    assert state.oldest_wait() == ("dp", 0, 0, True)
    assert np.all(np.diff([o.record_id for o in state.records()]) > 0)


def test_shapes_of_operations_that_never_end_fill_no_memory() -> None:
    """Each batch has new ones; the first iteration does not end either."""
    state = RankOperations()
    waiting = operation(0, "dp", CollectiveState.STARTED, (0, None, None))
    for first in range(0, 3 * MOST_COLD, 100):
        told = [waiting._replace(input_sizes=((first + n,),)) for n in range(100)]
        state.apply(BatchOperations.of_records(told), 4, whole=False)
    assert len(state._shapes) <= MOST_COLD
    state.begin_warm()
    state.apply(BatchOperations.of_records([waiting]), 4, whole=False)
    assert not state._shapes


def test_what_is_left_of_the_first_iteration_is_cold() -> None:
    """A program that does not wait has launched the next iterations before the first ends."""
    state = RankOperations()
    done, waits = CollectiveState.COMPLETED, CollectiveState.STARTED
    kinds = ["tp", "dp"]
    told = [operation(n, kinds[n % 2], done, (n, None, n + 1)) for n in range(12)]
    state.apply(BatchOperations.of_records(told[:1]), 20, whole=False)
    state.apply(BatchOperations.of_records(told[2:]), 20, whole=False)
    assert state.warm_from is not None
    late = operation(1, "dp", waits, (1, None, None))
    state.apply(BatchOperations.of_records([late]), 20, whole=False)
    oldest = state.oldest_wait()
    assert oldest is not None
    assert oldest.is_cold
    state.apply(BatchOperations.of_records([told[1]]), 20, whole=False)
    state.apply(
        BatchOperations.of_records([operation(12, "tp", waits, (12, None, None))]), 20, whole=False
    )
    oldest = state.oldest_wait()
    assert oldest is not None
    assert not oldest.is_cold
