"""Counters as a reader sees them: on ticks, late, rounded, wrapped, reset, sometimes not at all."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from arena.sealed_jobs.fleet import Fleet, FloatArray, IntArray
from arena.sealed_jobs.ports import Ports

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How counters are read.

    Attributes
    ----------
    hz
        Ticks a second.
    by_switch
        Switches read the ports of a rail one after another; else hosts read their RNICs.
    stamped
        Rows bear the reader's time of reading; else the nominal tick.
    offset_s
        Standard deviation of the clocks' offsets.
    delay_s, jitter_s
        Mean delay of a reader after the tick, and what changes from tick to tick.
    turn_s
        Time between two ports of one reader.
    refresh_s
        Hardware updates counters at this interval; 0: at once.
    unit
        Bytes are rounded down to a multiple.
    bits
        Width of the counter; 63: it does not wrap.
    lost
        Share of rows that are missing.
    stalls
        Mean number of stalls of a reader in a capture, of one to four seconds each.
    resets
        Number of counters that start again from 0 within the capture.
    """

    hz: float
    by_switch: bool = False
    stamped: bool = True
    offset_s: float = 1e-3
    delay_s: float = 4e-3
    jitter_s: float = 1e-3
    turn_s: float = 3e-4
    refresh_s: float = 0.0
    unit: int = 1
    bits: int = 63
    lost: float = 0.0
    stalls: float = 0.0
    resets: int = 0


def draw_reader(rng: np.random.Generator, hz: float, link_gbps: float) -> Reader:
    """Draw a reader whose counters can be followed at this rate of ticks."""
    switch = bool(rng.random() < 0.35)
    narrow = rng.random() < 0.12 and link_gbps * 1e9 / 8 / hz < 2**33
    unit = int(rng.choice([1, 1, 4, 64, 1024]))
    return Reader(
        hz=hz,
        by_switch=switch,
        stamped=bool(rng.random() < 0.6),
        offset_s=float(np.exp(rng.uniform(np.log(2e-5), np.log(6e-3)))),
        delay_s=float(rng.uniform(0.5e-3, 15e-3) / np.sqrt(hz / 10)),
        jitter_s=float(rng.uniform(0.2e-3, 4e-3)),
        turn_s=float(rng.uniform(5e-5, 1e-3)) / (4 if switch else 1),
        refresh_s=float(rng.choice([0.0, 0.0, 1e-3, 1e-2, 2.5e-2])),
        unit=4 if narrow else unit,
        bits=34 if narrow else 63,
        lost=float(rng.choice([0.0, 0.001, 0.01, 0.03])),
        stalls=float(rng.choice([0.0, 0.0, 0.3])),
        resets=int(rng.integers(1, 4)) if rng.random() < 0.12 else 0,
    )


def read_counters(
    rng: np.random.Generator, reader: Reader, fleet: Fleet, ports: Ports, bytes_per_s: float
) -> pl.DataFrame:
    """Return the table of readings: time_ns, host, rail, tx_bytes, rx_bytes.

    Parameters
    ----------
    bytes_per_s
        Line rate of a port.
    """
    ticks = np.arange(int(ports.seconds * reader.hz)) / reader.hz
    read_at, stamp = _reading_times(rng, reader, fleet, ticks)
    seen_at = read_at
    if reader.refresh_s:
        phase = rng.uniform(0, reader.refresh_s, (len(fleet), 1))
        seen_at = np.floor((read_at - phase) / reader.refresh_s) * reader.refresh_s + phase
    grid = ports.times()
    sent, received = ports.carried(bytes_per_s)
    header, reply = float(rng.uniform(1.01, 1.05)), float(rng.uniform(0.0005, 0.004))
    resets = _reset_times(rng, reader, ports, len(fleet))
    columns = []
    for mine, back in ((sent, received), (received, sent)):
        values = np.empty((len(fleet), len(ticks)), np.int64)
        for rnic in range(len(fleet)):
            total = mine[rnic] * header + back[rnic] * reply
            exact = np.interp(seen_at[rnic], grid, total)
            reset_at = resets[rnic]
            after = seen_at[rnic] >= reset_at
            before_reset = float(np.interp(reset_at, grid, total))
            values[rnic] = _shown(rng, reader, exact, after, before_reset)
        columns.append(values)
    kept = _kept(rng, reader, fleet, ticks).T.reshape(-1)
    epoch_ns = 1_760_000_000_000_000_000 + int(rng.integers(10**7)) * 10**9
    time_ns = epoch_ns + np.round(stamp * 1e9).astype(np.int64)
    hosts = np.array([fleet.hosts[place].name for place in fleet.rnic_host])
    rails = np.array(fleet.rnic_rail, np.int64)
    names = pl.Series("host", hosts.tolist(), dtype=pl.String)
    rows = np.tile(np.arange(len(fleet)), len(ticks))[kept]
    return pl.DataFrame(
        {
            "time_ns": time_ns.T.reshape(-1)[kept],
            "host": names.gather(rows),
            "rail": rails[rows],
            "tx_bytes": columns[0].T.reshape(-1)[kept],
            "rx_bytes": columns[1].T.reshape(-1)[kept],
        }
    )


def _readers(reader: Reader, fleet: Fleet) -> tuple[IntArray, IntArray]:
    """Return for each RNIC which reader reads it, and as which in turn."""
    keys = fleet.rnic_rail if reader.by_switch else fleet.rnic_host
    turns: dict[int, int] = {}
    who, turn = [], []
    for key in keys:
        who.append(key)
        turn.append(turns.get(key, 0))
        turns[key] = turn[-1] + 1
    return np.array(who, np.int64), np.array(turn, np.int64)


def _reading_times(
    rng: np.random.Generator, reader: Reader, fleet: Fleet, ticks: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return true times of reading and times in the table; shape (rnics, ticks), in seconds."""
    who, turn = _readers(reader, fleet)
    count = int(who.max()) + 1
    offset = rng.normal(0, reader.offset_s, (count, 1))
    drift = rng.normal(0, 3e-6, (count, 1)) * (ticks - ticks.mean())
    delay = reader.delay_s * rng.uniform(0.5, 1.5, (count, 1))
    late = delay + rng.exponential(reader.jitter_s, (count, len(ticks)))
    each = turn[:, None] * reader.turn_s + rng.exponential(5e-5, (len(who), len(ticks)))
    late_each = np.minimum(late[who] + each, 0.45 / reader.hz)
    true = ticks + late_each - (offset + drift)[who]
    stamp = ticks + late_each if reader.stamped else np.broadcast_to(ticks, late_each.shape)
    return true, np.asarray(stamp)


def _reset_times(rng: np.random.Generator, reader: Reader, ports: Ports, rnics: int) -> list[float]:
    """Return when each counter starts again from 0; infinite: never."""
    times = [float("inf")] * rnics
    for rnic in rng.choice(rnics, min(reader.resets, rnics), replace=False):
        times[int(rnic)] = float(rng.uniform(0.05, 0.95) * ports.seconds)
    return times


def _shown(
    rng: np.random.Generator,
    reader: Reader,
    exact: FloatArray,
    after: BoolArray,
    before_reset: float,
) -> IntArray:
    """Return what a counter shows: with a start of its own, reset, rounded and wrapped."""
    first = int(rng.integers(0, 2**40))
    shown = first + np.floor(exact).astype(np.int64)
    shown[after] = np.floor(np.maximum(exact[after] - before_reset, 0)).astype(np.int64)
    shown -= shown % reader.unit
    return np.asarray(shown % (1 << reader.bits) if reader.bits < 63 else shown)


def _kept(rng: np.random.Generator, reader: Reader, fleet: Fleet, ticks: FloatArray) -> BoolArray:
    """Return which readings are in the table; shape (rnics, ticks)."""
    who, _ = _readers(reader, fleet)
    kept = rng.random((len(who), len(ticks))) >= reader.lost
    for one in range(int(who.max()) + 1):
        for _ in range(int(rng.poisson(reader.stalls))):
            start = float(rng.uniform(0, ticks[-1]))
            stalled = (ticks >= start) & (ticks < start + rng.uniform(1, 4))
            kept[np.ix_(who == one, stalled)] = False
    return np.asarray(kept)
