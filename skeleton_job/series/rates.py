"""From byte counters to byte rates on a common grid of bins.

Counters are cumulative, wrap, reset, stand still and go missing. Rates are computed from cumulated
bytes, interpolated at the bin edges: a single difference of a counter means little (on real ports
under training, a busy counter stood still in a third of the polls).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats
from schemas.units import SECOND_NS
from skeleton_job.series.readings import Readings
from skeleton_job.series.unwrapping import UNDECLARED, Table, cumulated, guess_bits

# 800 Gbit/s, the fastest RNIC port: more bytes between two readings are a reset or garbage.
MAX_RATE_BYTES_PER_S: Final = 100e9
# If two readings are more than this many bins apart, the bins between them are missing: when the
# bytes moved is unknown.
MAX_GAP_BINS: Final = 3
# A series with a smaller share of its bins is not used.
MIN_COVERAGE: Final = 0.5
# Endpoints processed together: their tables stay in the processor's cache.
ROWS: Final = 16


@dataclass(frozen=True, slots=True)
class RateMatrix:
    """Byte rates of `endpoints` on a common grid of bins.

    Attributes
    ----------
    tx, rx : (n_endpoints, n_bins) float64
        Bytes per second; 0 where missing.
    missing : (n_endpoints, n_bins) bool
        Where tx or rx is unknown.
    reasons : per endpoint, None or why its series cannot be used
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
        """Mean rate of each endpoint, tx and rx together, bytes per second, (n_endpoints,)."""
        total = np.where(self.missing, 0.0, self.tx + self.rx).sum(axis=1)
        out: Floats = total / np.maximum((~self.missing).sum(axis=1), 1)
        return out

    @property
    def usable(self) -> Bools:
        """Which endpoints have a series, (n_endpoints,)."""
        return np.array([r is None for r in self.reasons], dtype=np.bool_)


def rate_matrix(
    readings: Readings,
    *,
    start_ns: int,
    end_ns: int,
    bin_ns: int,
    max_rate: float = MAX_RATE_BYTES_PER_S,
) -> RateMatrix:
    """Return the rates of the endpoints of readings between two times.

    Parameters
    ----------
    start_ns, end_ns, bin_ns
        The grid: whole bins from start_ns, in nanoseconds.
    max_rate
        Bytes per second; a higher rate between two readings is a reset.

    Raises
    ------
    ValueError
        If the grid has no bin.
    """
    n_bins = (end_ns - start_ns) // bin_ns
    if n_bins < 1:
        raise ValueError(f"from {start_ns} to {end_ns} there is no bin of {bin_ns} ns")
    # A margin at both ends lets the edges be interpolated.
    margin = MAX_GAP_BINS * bin_ns
    edges = start_ns + bin_ns * np.arange(n_bins + 1, dtype=np.int64)
    inside = readings.between(start_ns - margin, end_ns + margin)
    count = inside.end - inside.begin
    shape = (len(readings.endpoints), int(n_bins))
    tx, rx = np.zeros(shape), np.zeros(shape)
    missing = np.ones(shape, dtype=np.bool_)
    there = np.flatnonzero(count)
    for begin in range(0, there.size, ROWS):
        rows = there[begin : begin + ROWS]
        table = Table(inside.padded(inside.time_ns, rows), count[rows], edges)
        gone = np.zeros((rows.size, shape[1]), dtype=np.bool_)
        for out, column in ((tx, inside.tx_bytes), (rx, inside.rx_bytes)):
            value = inside.padded(column, rows)
            bits = inside.bits[rows]
            for row in np.flatnonzero(bits == UNDECLARED):
                bits[row] = guess_bits(value[row])
            at_edges, holes = cumulated(table, value, bits, max_gap_ns=margin, max_rate=max_rate)
            out[rows] = np.diff(at_edges) * (SECOND_NS / bin_ns)
            gone |= holes
        if gone.any():
            tx[rows] = np.where(gone, 0.0, tx[rows])
            rx[rows] = np.where(gone, 0.0, rx[rows])
        missing[rows] = gone
    gone_share = missing.mean(axis=1)
    return RateMatrix(
        endpoints=readings.endpoints,
        start_ns=int(start_ns),
        bin_ns=int(bin_ns),
        tx=tx,
        rx=rx,
        missing=missing,
        reasons=tuple(_reason(bool(n), share) for n, share in zip(count, gone_share, strict=True)),
    )


def _reason(read: bool, gone: float) -> str | None:
    """Return why the series of an endpoint cannot be used, None if it can.

    Parameters
    ----------
    read : whether there is any reading
    gone : share of the samples that are missing
    """
    if not read:
        return "no counter was read"
    if 1.0 - gone >= MIN_COVERAGE:
        return None
    return f"only {1.0 - gone:.0%} of the samples are there, {MIN_COVERAGE:.0%} are needed"


def rows_of(matrix: RateMatrix, endpoints: Sequence[str]) -> RateMatrix:
    """Return the matrix of these endpoints, in this order."""
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
