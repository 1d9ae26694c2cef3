"""Readings: exact for a perfect reader, and spoiled as told."""

import numpy as np
import polars as pl
import pytest

from arena.sealed_jobs.fleet import Fleet, Host
from arena.sealed_jobs.ports import Ports
from arena.sealed_jobs.readers import Reader, draw_reader, read_counters

PERFECT = Reader(hz=10.0, offset_s=0.0, delay_s=0.0, jitter_s=0.0, turn_s=0.0)
RATE = 1e8


def readings(reader: Reader, seed: int = 0) -> pl.DataFrame:
    """Read two hosts with two RNICs that send and receive at an even rate for 20 seconds."""
    fleet = Fleet([Host(name=name, gpus=2, rails=(0, 1)) for name in "ab"])
    ports = Ports(4, 20.0, 0.01)
    whole = RATE * 22
    ports.add_ramps(
        np.arange(4),
        start=np.full(4, -1.0),
        end=np.full(4, 21.0),
        tx=np.full(4, whole),
        rx=np.full(4, whole),
    )
    return read_counters(np.random.default_rng(seed), reader, fleet, ports, 1e12)


def rates(table: pl.DataFrame) -> pl.Series:
    """Return bytes per second between the readings of each RNIC."""
    grouped = table.sort("host", "rail", "time_ns").with_columns(
        pl.col("tx_bytes", "time_ns").diff().over("host", "rail")
    )
    grouped = grouped.drop_nulls()
    return grouped["tx_bytes"] / (grouped["time_ns"] / 1e9)


def test_a_perfect_reader_shows_the_rate() -> None:
    """With headers, and acknowledgements of what is received."""
    table = readings(PERFECT)
    assert table.height == 4 * 200
    seen = rates(table).to_numpy()
    assert seen.std() < 2e-3 * seen.mean()
    assert 1.01 * RATE < seen.mean() < 1.06 * RATE


def test_unstamped_rows_bear_the_tick() -> None:
    """And stamped rows the time of reading, which is later."""
    ticks = readings(Reader(hz=10.0, stamped=False))["time_ns"]
    assert (ticks % 100_000_000 == 0).all()
    assert (readings(Reader(hz=10.0))["time_ns"] % 100_000_000 > 0).all()


def test_counters_wrap_and_are_rounded() -> None:
    """34 bits of bytes in words of four."""
    table = readings(Reader(hz=10.0, bits=34, unit=4))
    assert table["tx_bytes"].max() < 2**34  # type: ignore[operator]
    assert (table["tx_bytes"] % 4 == 0).all()


def test_counters_start_again() -> None:
    """A reset counter falls once, both ways at the same reading."""
    table = readings(Reader(hz=10.0, resets=1)).sort("host", "rail", "time_ns")
    falls = table.with_columns(pl.col("tx_bytes", "rx_bytes").diff().over("host", "rail"))
    assert falls.filter(pl.col("tx_bytes") < 0).height == 1
    assert falls.filter((pl.col("rx_bytes") < 0) & (pl.col("tx_bytes") < 0)).height == 1


def test_rows_are_lost() -> None:
    """Some at random, and whole stretches of a reader that stalls."""
    assert readings(Reader(hz=10.0, lost=0.1)).height == pytest.approx(720, abs=40)
    table = readings(Reader(hz=10.0, stalls=5.0), seed=3).sort("time_ns")
    one = table.filter((pl.col("rail") == 0) & (pl.col("host") == "a"))
    other = table.filter((pl.col("rail") == 0) & (pl.col("host") == "b"))
    gaps = [each["time_ns"].diff().drop_nulls().to_numpy().max() for each in (one, other)]
    assert max(gaps) >= 9e8


def test_drawn_readers_can_be_followed() -> None:
    """A narrow counter wraps at most every second tick."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        hz, gbps = float(rng.choice([1.0, 10.0])), float(rng.choice([100.0, 400.0]))
        reader = draw_reader(rng, hz, gbps)
        assert gbps * 1e9 / 8 / hz < 2 ** (reader.bits - 1)
