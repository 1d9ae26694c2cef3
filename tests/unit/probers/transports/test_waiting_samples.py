"""What the code in C reads of counters while the agent sleeps is what `CounterFiles` reads."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from probers.host.counters import CounterFiles
from probers.transports.datagrams import native
from probers.transports.waiting import Waiter
from schemas.units import MS_NS, SECOND_NS

pytestmark = pytest.mark.skipif(native is None, reason="the C code was not compiled here")

TICK_NS: Final = 20 * MS_NS


@pytest.fixture
def waiter() -> Iterator[Waiter]:
    """Return a waiter that waits for nothing."""
    made = Waiter()
    yield made
    made.close()


def counters_of(folder: Path) -> CounterFiles:
    """Return counters of two files of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tx_bytes", "rx_bytes"):
        (folder / name).write_text("7\n")
    return CounterFiles(folder)


def next_tick(tick_ns: int = TICK_NS) -> int:
    """Return the next tick of the wall clock that is not the last of its second."""
    now_ns = time.time_ns()
    tick = now_ns - now_ns % tick_ns + tick_ns
    return tick if (tick + 3 * tick_ns) // SECOND_NS == tick // SECOND_NS else tick + 3 * tick_ns


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.integers(0, 2**64).map(lambda n: f"{n}\n".encode()) | st.binary(max_size=40),
    st.sampled_from([b"0\n", b"12", b"N/A (not available)\n"]),
)
@example(b"999999999999999999\n", b"0\n")
@example(b"1000000000000000000\n", b"0\n")
@example(b"000000000000000000000000000000012", b"0\n")
@example(b"5\n\n", b"0\n")
@example(b"", b"0\n")
def test_files_are_read_as_in_python(tmp_path: Path, waiter: Waiter, tx: bytes, rx: bytes) -> None:
    """Plain numbers are equal; whatever is not one is left to Python."""
    counters = counters_of(tmp_path / "port")
    counters.read()
    (tmp_path / "port" / "tx_bytes").write_bytes(tx)
    (tmp_path / "port" / "rx_bytes").write_bytes(rx)
    files = counters.descriptors
    assert files is not None
    now_ns = time.time_ns()
    _, ((tick_ns, (found,)),) = waiter.wait(0, (now_ns, 10**9, (files,)))
    assert tick_ns == now_ns
    wanted = counters.read()
    if found is not None:
        assert found[:2] == (wanted.tx_bytes, wanted.rx_bytes)
        assert 0 <= found[2] <= time.time_ns() - now_ns
    else:
        plain = tx.rstrip(b"\n").isdigit() and len(tx) <= 18 and tx.count(b"\n") <= 1
        assert not (plain and rx != b"N/A (not available)\n")
    counters.close()


def test_ticks_are_taken_during_a_wait_and_the_second_ends_it(
    tmp_path: Path, waiter: Waiter
) -> None:
    """Each is read once, about when it is due."""
    counters = counters_of(tmp_path)
    counters.read()
    files = counters.descriptors
    first_ns = next_tick()
    _, taken = waiter.wait(60 * SECOND_NS, (first_ns, TICK_NS, (files,)))
    ticks = [tick_ns for tick_ns, _ in taken]
    if ticks and len(ticks) == ticks[-1] // TICK_NS - first_ns // TICK_NS + 1:
        # Unless this process stood still for a tick, which ends the wait as well.
        assert ticks == list(range(first_ns, ticks[-1] + 1, TICK_NS))
    assert all(units is not None and units[:2] == (7, 7) for _, (units,) in taken)
    counters.close()


def test_a_wait_that_is_over_ends_between_two_ticks(tmp_path: Path, waiter: Waiter) -> None:
    """The next tick is the next wait's."""
    counters = counters_of(tmp_path)
    counters.read()
    far_ns = time.time_ns() + SECOND_NS // 2
    assert waiter.wait(MS_NS, (far_ns, SECOND_NS, (counters.descriptors,))) == ([], [])
    counters.close()


@pytest.mark.parametrize("off_ns", [-SECOND_NS, 10 * SECOND_NS, -(10**18)])
def test_missed_ticks_and_clocks_that_are_set_are_pythons(
    tmp_path: Path, waiter: Waiter, off_ns: int
) -> None:
    """Nothing is read, and the wait ends at once."""
    counters = counters_of(tmp_path)
    counters.read()
    begun = time.monotonic_ns()
    ticks = (max(0, time.time_ns() + off_ns), TICK_NS, (counters.descriptors,))
    assert waiter.wait(600 * SECOND_NS, ticks) == ([], [])
    assert time.monotonic_ns() - begun < 300 * SECOND_NS
    counters.close()


def test_a_source_without_files_ends_the_wait(tmp_path: Path, waiter: Waiter) -> None:
    """Python reads it, and says why it cannot; the others are read all the same."""
    counters = counters_of(tmp_path)
    counters.read()
    now_ns = time.time_ns()
    sources = (None, counters.descriptors)
    _, taken = waiter.wait(600 * SECOND_NS, (now_ns, SECOND_NS, sources))
    (_, (missing, found)) = taken[0]
    assert missing is None
    assert found is not None
    counters.close()


@pytest.mark.parametrize(
    "ticks",
    [
        7,
        (1, 2),
        (1, 0, (None,)),
        (1, 2 * SECOND_NS, (None,)),
        (-1, 1, (None,)),
        (2**62, 1, (None,)),
        (1, 1, ()),
        (1, 1, (None,) * 65),
        (1, 1, (7,)),
        (1, 1, (((), (1,)),)),
        (1, 1, (((1,) * 5, (1,)),)),
        (1, 1, (((-1,), (1,)),)),
        (1, 1, (([1], (1,)),)),
    ],
)
def test_ticks_out_of_bounds_are_refused(waiter: Waiter, ticks: Any) -> None:
    """Nothing of them is used."""
    with pytest.raises((TypeError, ValueError)):
        waiter.wait(0, ticks)
