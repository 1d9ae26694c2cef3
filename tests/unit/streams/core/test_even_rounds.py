"""Even rounds: which are, and that counting them together is counting them one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.columns.interpreter import NULL
from schemas.units import SECOND_NS
from streams.columns.quantities import COUNT
from streams.columns.round_kernel import ITEMS, Item
from streams.columns.rounds import MISSING, OK_CODE
from streams.columns.slots import MOST
from streams.core.even_rounds import count_even, gather_even, is_even
from streams.core.partition_arrays import RecentArrays, SlotArrays
from streams.detectors.late_answers import LATE_NS
from streams.detectors.recent import HOST_DELAYS, LATEST, SLOTS

ROWS, FIRST, RESULTS, KEPT = 60, 7, 40, 5
WINDOWS = 2
PROBER, RESPONDER = (Item.VALUES + quantity for _, quantity in HOST_DELAYS)


class State:
    """A partition's arrays, and a round that is even in them."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)

        def counts(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
            return rng.integers(0, 9, shape).astype(np.uint16)

        self.recent = RecentArrays(
            last_ns=rng.integers(0, 10**9, ROWS),
            transport=np.zeros(ROWS, np.int8),
            cut_off=np.zeros(ROWS, np.int8),
            watched=np.zeros(ROWS, np.int8),
            last_round=np.zeros(ROWS, np.int64),
            probes=np.zeros(ROWS, np.int32),
            losses=np.zeros(ROWS, np.int32),
            prober=rng.integers(0, 3, ROWS).astype(np.int32),
            responder=rng.integers(0, 3, ROWS).astype(np.int32),
            sampled=counts(SLOTS, ROWS),
            sent=counts(SLOTS, ROWS),
            lost=counts(SLOTS, ROWS),
            late=counts(SLOTS, 3),
            turn=np.full(ROWS, rng.integers(0, LATEST), np.int8),
            latest=rng.integers(0, 99, (LATEST, ROWS)).astype(np.int32),
        )
        self.slots = SlotArrays(
            counts=np.full((WINDOWS, ROWS), rng.integers(0, KEPT), np.int32),
            values=np.zeros((WINDOWS, COUNT, KEPT, ROWS), np.int32),
            spilled=np.zeros(WINDOWS, np.int64),
            spill_rows=np.zeros((WINDOWS, 8), np.int64),
            spill=np.zeros((WINDOWS, COUNT, 8), np.int64),
        )
        self.rows = np.arange(FIRST, FIRST + RESULTS, dtype=np.int32)
        self.items = rng.integers(-5, 2 * LATE_NS, (ITEMS, RESULTS))
        self.items[Item.TRANSPORT] = rng.integers(0, 3, RESULTS)
        self.items[Item.STATUS] = OK_CODE
        for quantity in (PROBER, RESPONDER):
            self.items[quantity, rng.random(RESULTS) < 0.2] = NULL

    @property
    def even(self) -> bool:
        """Whether the round is even, in the second window."""
        return is_even(RESULTS, 1, self.items, self.rows, self.recent, self.slots)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), second=st.integers(0, 200))
def test_what_is_counted_together_is_what_is_counted_one_by_one(seed: int, second: int) -> None:
    """The slow twin goes through the results; nothing else changes."""
    found, twin = State(seed), State(seed)
    assert found.even
    active_ns = second * SECOND_NS + 3
    count_even(RESULTS, active_ns, found.items, found.rows, found.recent)
    gather_even(RESULTS, 1, found.items, found.rows, found.slots)
    recent, slots, ring = twin.recent, twin.slots, second % SLOTS
    for place, row in enumerate(twin.rows.tolist()):
        item = twin.items[:, place].tolist()
        rtt_ns = max(item[Item.VALUES], 0)
        recent.sent[ring, row] += 1
        recent.sampled[ring, row] += 1
        recent.last_ns[row] = active_ns
        recent.transport[row] = item[Item.TRANSPORT]
        recent.latest[recent.turn[row], row] = rtt_ns
        recent.turn[row] = (recent.turn[row] + 1) % LATEST
        recent.late[ring, recent.prober[row]] += item[PROBER] >= LATE_NS
        recent.late[ring, recent.responder[row]] += item[RESPONDER] >= LATE_NS
        values = slots.values[1, :, slots.counts[1, row], row]
        values[:] = [rtt_ns, *(max(value, MISSING) for value in item[Item.VALUES + 1 :])]
        slots.counts[1, row] += 1
        # For the histogram of round trips, which is made afterwards.
        twin.items[Item.VALUES, place] = rtt_ns
    for wanted, made in ((recent, found.recent), (slots, found.slots)):
        for one, other in zip(wanted, made, strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(twin.items, found.items)


def test_what_is_not_even() -> None:
    """A single result or 5-tuple that stands apart."""
    place, row = 11, FIRST + 11

    def changed(name: str) -> State:
        state = State(1)
        {
            "lost": lambda: state.items.__setitem__((Item.STATUS, place), OK_CODE + 1),
            "no round trip": lambda: state.items.__setitem__((Item.VALUES, place), NULL),
            "too large": lambda: state.items.__setitem__((PROBER, place), MOST + 1),
            "watched": lambda: state.recent.watched.__setitem__(row, 1),
            "cut off": lambda: state.recent.cut_off.__setitem__(row, 1),
            "turn": lambda: state.recent.turn.__setitem__(row, LATEST),
            "count": lambda: state.slots.counts.__setitem__((1, row), KEPT + 1),
            "no slot": lambda: state.slots.counts.__setitem__(1, KEPT),
            "elsewhere": lambda: state.rows.__setitem__(place, row + 1),
        }[name]()
        return state

    for name in ("lost", "no round trip", "too large", "watched", "cut off", "turn", "count",
                 "no slot", "elsewhere"):  # fmt: skip
        assert not changed(name).even, name
