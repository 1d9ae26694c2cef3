"""Many counters at once are unwrapped as each by itself would be, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.units import SECOND_NS
from skeleton_job.series import rates
from skeleton_job.series.readings import in_order
from skeleton_job.series.unwrapping import UNDECLARED
from tests.unit.skeleton_job import slow

TICK_NS = SECOND_NS // 10
BEGIN_NS = 1_760_000_000 * SECOND_NS
BINS = 30
EDGES = BEGIN_NS + TICK_NS * np.arange(BINS + 1, dtype=np.int64)
MAX_RATE = 100e9


def counter(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Return times, values and the width of a counter that has every trouble there is."""
    ticks = np.arange(-6, BINS + 6)
    jitter_ns = int(rng.choice([0, 1, 300, 40_000_000]))
    times = BEGIN_NS + ticks * TICK_NS + rng.integers(0, jitter_ns + 1, ticks.size)
    width = int(rng.choice([32, 34, 63, 64, UNDECLARED]))
    moved = rng.integers(0, 2 * 10**9, ticks.size).astype(np.uint64)
    value = np.cumsum(moved) + np.uint64(rng.integers(0, 2**62))
    if rng.random() < 0.3:
        value[rng.integers(ticks.size) :] -= np.uint64(rng.integers(0, 2**33))
    value &= np.uint64(2 ** (width or int(rng.choice([32, 34, 64]))) - 1)
    kept = rng.random(ticks.size) >= float(rng.choice([0.0, 0.1, 0.6, 0.99]))
    times, value = times[kept], value[kept]
    if rng.random() < 0.3 and times.size:
        # Some are read twice at one time.
        again = rng.integers(0, times.size, 3)
        times, value = np.append(times, times[again]), np.append(value, value[again] + 1)
    return times, value, width


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 2 * rates.ROWS + 1), mixed=st.booleans())
def test_rates_are_those_of_a_slow_obvious_way(seed: int, count: int, *, mixed: bool) -> None:
    """Lost, doubled, wrapped, reset and late readings, in any order of the table."""
    rng = np.random.default_rng(seed)
    made = [(*counter(rng), rng.integers(0, 2**40)) for _ in range(count)]
    row = np.repeat(np.arange(count), [times.size for times, *_ in made])
    times, tx = (np.concatenate([m[k] for m in made]) for k in (0, 1))
    rx = np.concatenate([value + np.uint64(more) for _, value, _, more in made])
    order = rng.permutation(row.size) if mixed else np.arange(row.size)
    bits = np.array([width for _, _, width, _ in made], dtype=np.int64)
    names = [f"e{i}" for i in range(count)]
    found = rates.rate_matrix(
        in_order(
            names, row[order], time_ns=times[order], tx_bytes=tx[order], rx_bytes=rx[order],
            bits=bits,
        ),
        start_ns=int(EDGES[0]), end_ns=int(EDGES[-1]), bin_ns=TICK_NS, max_rate=MAX_RATE,
    )  # fmt: skip
    for i in range(count):
        mine = order[row[order] == i]
        sent, got = (
            slow.rates(times[mine], column[mine], int(bits[i]), edges_ns=EDGES, max_rate=MAX_RATE)
            for column in (tx, rx)
        )
        missing = sent[1] | got[1]
        np.testing.assert_array_equal(found.missing[i], missing)
        np.testing.assert_array_equal(found.tx[i], np.where(missing, 0.0, sent[0]))
        np.testing.assert_array_equal(found.rx[i], np.where(missing, 0.0, got[0]))


def test_a_result_does_not_depend_on_who_shares_the_table() -> None:
    """An endpoint with three readings beside one with three hundred."""
    rng = np.random.default_rng(5)
    made = [counter(rng) for _ in range(40)]
    names = [f"e{i}" for i in range(len(made))]
    row = np.repeat(np.arange(len(made)), [times.size for times, *_ in made])
    times, value = (np.concatenate([m[k] for m in made]) for k in (0, 1))
    bits = np.array([m[2] for m in made], dtype=np.int64)
    every = in_order(names, row, time_ns=times, tx_bytes=value, rx_bytes=value, bits=bits)
    ends = {"start_ns": int(EDGES[0]), "end_ns": int(EDGES[-1]), "bin_ns": TICK_NS}
    together = rates.rate_matrix(every, **ends)
    for i, name in enumerate(names):
        alone = rates.rate_matrix(every.of([name]), **ends)
        np.testing.assert_array_equal(alone.tx[0], together.tx[i])
        assert alone.reasons[0] == together.reasons[i]
