"""Byte counters to byte rates: what the inference sees of the network.

Counters are cumulative, wrap, reset, stand still and go missing. Everything is
computed on cumulated bytes, interpolated at common bin edges: a single
difference of a counter means little (on real ports under training a busy
counter stood still in a third of the polls).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Bools = NDArray[np.bool_]

S_NS: Final = 10**9
# 800 Gbit/s: the fastest RNIC port there is. More bytes than that between two
# readings are no traffic but a reset or garbage.
MAX_RATE_BYTES_PER_S: Final = 100e9
# Between two readings further apart than this many bins, what happened when is
# not known: the bins between them are missing rather than smeared.
MAX_GAP_BINS: Final = 3
# A series with less than this share of its bins says nothing.
MIN_COVERAGE: Final = 0.5
# The tick is looked for in the readings of so many endpoints.
TICK_ENDPOINTS: Final = 64
# Widths of real counters in bytes: 64 bits, and 32 bits of 4-byte words.
COUNTER_BITS: Final = (64, 34, 32)


@dataclass(frozen=True, slots=True)
class RateMatrix:
    """Byte rates of `endpoints` on a common grid of bins.

    Attributes
    ----------
    tx, rx : (n_endpoints, n_bins) float64
        Bytes per second; 0 where missing.
    missing : (n_endpoints, n_bins) bool
        Where tx or rx is not known.
    reasons : per endpoint, None or why its series cannot be used.
    """

    endpoints: tuple[str, ...]
    start_ns: int
    bin_ns: int
    tx: Floats
    rx: Floats
    missing: Bools
    reasons: tuple[str | None, ...]

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return int(self.tx.shape[1])

    @property
    def level(self) -> Floats:
        """Mean rate of each endpoint, both ways together, bytes per second, (n_endpoints,)."""
        total = np.where(self.missing, 0.0, self.tx + self.rx).sum(axis=1)
        out: Floats = total / np.maximum((~self.missing).sum(axis=1), 1)
        return out

    @property
    def usable(self) -> Bools:
        """Which endpoints have a series, (n_endpoints,)."""
        return np.array([r is None for r in self.reasons], dtype=np.bool_)


def increments(
    time_ns: Ints, value: Unsigned, bits: int, max_rate: float = MAX_RATE_BYTES_PER_S
) -> tuple[Floats, Bools]:
    """Return the bytes between successive readings and whether they are known.

    A decrease is a wrap at 2^bits where that gives a rate that a port can have;
    otherwise the counter was reset, and what it lost is not known.

    Parameters
    ----------
    time_ns : (m,) int64, increasing
    value : (m,) uint64
    bits : width of the counter in bytes
    max_rate : bytes per second

    Returns
    -------
    bytes : (m - 1,) float64, 0 where not known
    known : (m - 1,) bool
    """
    span_s = np.diff(time_ns) / S_NS
    bound = max_rate * span_s
    step = np.diff(value)  # uint64: modulo 2^64 by itself
    if bits < 64:
        step = np.where(value[1:] < value[:-1], step & np.uint64(2**bits - 1), step)
    moved = step.astype(np.float64)
    known = moved <= bound
    return np.where(known, moved, 0.0), known


def guess_bits(value: Unsigned) -> int:
    """Return the width of a counter that nobody declared.

    The narrowest that holds the largest reading, if a decrease came from its
    upper half, as a wrap does; 64 otherwise.
    """
    if value.size < 2 or not np.any(value[1:] < value[:-1]):
        return 64
    largest = int(value.max())
    for bits in sorted(COUNTER_BITS):
        if 2 ** (bits - 1) <= largest < 2**bits:
            return bits
    return 64


def cumulated(
    time_ns: Ints,
    value: Unsigned,
    bits: int,
    edges_ns: Ints,
    *,
    max_gap_ns: int,
    max_rate: float = MAX_RATE_BYTES_PER_S,
) -> tuple[Floats, Bools]:
    """Return bytes cumulated at the bin edges, and which bins are missing.

    Returns
    -------
    at_edges : (n_bins + 1,) float64, bytes since the first reading
    missing : (n_bins,) bool
        Bins not wholly between readings, or touched by a gap or a reset.
    """
    n_bins = edges_ns.size - 1
    if time_ns.size < 2:
        return np.zeros(n_bins + 1), np.ones(n_bins, dtype=np.bool_)
    moved, known = increments(time_ns, value, bits, max_rate)
    total = np.concatenate([[0.0], np.cumsum(moved)])
    at_edges = np.interp(edges_ns.astype(np.float64), time_ns.astype(np.float64), total)
    bad = ~known | (np.diff(time_ns) > max_gap_ns)
    begin = np.searchsorted(edges_ns, time_ns[:-1][bad], side="right") - 1
    end = np.searchsorted(edges_ns, time_ns[1:][bad], side="left")
    marks = np.zeros(n_bins + 1, dtype=np.int64)
    np.add.at(marks, np.clip(begin, 0, n_bins), 1)
    np.add.at(marks, np.clip(end, 0, n_bins), -1)
    missing = np.cumsum(marks)[:-1] > 0
    missing |= (edges_ns[:-1] < time_ns[0]) | (edges_ns[1:] > time_ns[-1])
    return at_edges, missing


def common_tick_ns(frame: pl.DataFrame) -> int | None:
    """Return the usual distance between an endpoint's readings, None without any.

    Rounded to a millisecond, since readings jitter around their tick.
    """
    some = frame["endpoint_id"].unique().sort().head(TICK_ENDPOINTS)
    step = (
        frame.filter(pl.col("endpoint_id").is_in(some.to_list()))
        .sort("time_ns")
        .select(pl.col("time_ns").diff().over("endpoint_id").alias("step"))
        .filter(pl.col("step") > 0)
        .get_column("step")
        .median()
    )
    if not isinstance(step, int | float):
        return None
    return max(1, round(float(step) / 1e6)) * 1_000_000


def rate_matrix(
    frame: pl.DataFrame,
    endpoints: Sequence[str],
    *,
    start_ns: int,
    end_ns: int,
    bin_ns: int,
    max_rate: float = MAX_RATE_BYTES_PER_S,
) -> RateMatrix:
    """Return the rates of `endpoints` between two times.

    Parameters
    ----------
    frame
        Columns time_ns (int64), endpoint_id (str), tx_bytes and rx_bytes
        (uint64, null where not read), bits (int64, null where not declared);
        rows in any order.
    endpoints
        Rows of the result, in this order.
    start_ns, end_ns, bin_ns
        The grid: whole bins from start_ns.
    max_rate
        Bytes per second; more between two readings is a reset.

    Raises
    ------
    ValueError
        If the grid has no bin.
    """
    n_bins = (end_ns - start_ns) // bin_ns
    if n_bins < 1:
        raise ValueError(f"from {start_ns} to {end_ns} there is no bin of {bin_ns} ns")
    # One bin more at both ends lets the edges be interpolated.
    margin = MAX_GAP_BINS * bin_ns
    edges = start_ns + bin_ns * np.arange(n_bins + 1, dtype=np.int64)
    wanted = (
        frame.filter(pl.col("time_ns").is_between(start_ns - margin, end_ns + margin))
        .drop_nulls(["tx_bytes", "rx_bytes"])
        .sort("endpoint_id", "time_ns", maintain_order=True)
    )
    parts = {
        str(key[0]): part for key, part in wanted.partition_by("endpoint_id", as_dict=True).items()
    }
    shape = (len(endpoints), int(n_bins))
    tx, rx = np.zeros(shape), np.zeros(shape)
    missing = np.ones(shape, dtype=np.bool_)
    reasons: list[str | None] = []
    for row, endpoint in enumerate(endpoints):
        part = parts.get(endpoint)
        if part is None:
            reasons.append("no counter was read")
            continue
        time_ns = part["time_ns"].to_numpy().astype(np.int64)
        # Of two readings at one time the last counts.
        last = np.diff(time_ns, append=time_ns[-1] + 1) > 0
        time_ns = time_ns[last]
        bits = part["bits"][-1]
        gone = np.zeros(shape[1], dtype=np.bool_)
        for out, column in ((tx, "tx_bytes"), (rx, "rx_bytes")):
            value = part[column].to_numpy().astype(np.uint64)[last]
            width = int(bits) if bits is not None else guess_bits(value)
            at_edges, holes = cumulated(
                time_ns, value, width, edges, max_gap_ns=margin, max_rate=max_rate
            )
            out[row] = np.diff(at_edges) * (S_NS / bin_ns)
            gone |= holes
        tx[row, gone] = 0.0
        rx[row, gone] = 0.0
        missing[row] = gone
        share = 1.0 - float(gone.mean())
        reasons.append(
            None
            if share >= MIN_COVERAGE
            else f"only {share:.0%} of the samples are there, {MIN_COVERAGE:.0%} are needed"
        )
    return RateMatrix(
        endpoints=tuple(endpoints),
        start_ns=int(start_ns),
        bin_ns=int(bin_ns),
        tx=tx,
        rx=rx,
        missing=missing,
        reasons=tuple(reasons),
    )


def rows_of(matrix: RateMatrix, endpoints: Sequence[str]) -> RateMatrix:
    """Return the rows of these endpoints, in this order."""
    if tuple(endpoints) == matrix.endpoints:
        return matrix
    at = {endpoint: row for row, endpoint in enumerate(matrix.endpoints)}
    rows = np.array([at[e] for e in endpoints], dtype=np.int64)
    return RateMatrix(
        endpoints=tuple(endpoints),
        start_ns=matrix.start_ns,
        bin_ns=matrix.bin_ns,
        tx=matrix.tx[rows],
        rx=matrix.rx[rows],
        missing=matrix.missing[rows],
        reasons=tuple(matrix.reasons[row] for row in rows),
    )
