"""Tables of counters as the generators of tests make them, for the functions that take readings."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from skeleton_job.series.rates import MAX_RATE_BYTES_PER_S, RateMatrix, rate_matrix
from skeleton_job.series.readings import Readings, in_order
from skeleton_job.series.unwrapping import UNDECLARED


def readings(frame: pl.DataFrame, endpoints: Sequence[str]) -> Readings:
    """Return the readings of these endpoints.

    Columns time_ns, endpoint_id, tx_bytes and rx_bytes (null where not read), bits
    (null where not declared); rows in any order.
    """
    there = frame.drop_nulls(["tx_bytes", "rx_bytes"]).filter(
        pl.col("endpoint_id").is_in(list(endpoints))
    )
    row_of = {endpoint: row for row, endpoint in enumerate(endpoints)}
    rows = np.array([row_of[e] for e in there["endpoint_id"]], dtype=np.int64)
    bits = np.full(len(endpoints), UNDECLARED, dtype=np.int64)
    for row, width in zip(rows, there["bits"], strict=True):
        bits[row] = width or UNDECLARED
    columns = {c: there[c].to_numpy() for c in ("time_ns", "tx_bytes", "rx_bytes")}
    return in_order(endpoints, rows, **columns, bits=bits)


def rates_of(
    frame: pl.DataFrame,
    endpoints: Sequence[str],
    *,
    start_ns: int,
    end_ns: int,
    bin_ns: int,
    max_rate: float = MAX_RATE_BYTES_PER_S,
) -> RateMatrix:
    """Return the rates of these endpoints."""
    found = readings(frame, endpoints)
    return rate_matrix(found, start_ns=start_ns, end_ns=end_ns, bin_ns=bin_ns, max_rate=max_rate)


def tick_of(frame: pl.DataFrame) -> int | None:
    """Return the usual distance between readings."""
    return readings(frame, sorted(set(frame["endpoint_id"]))).tick_ns
