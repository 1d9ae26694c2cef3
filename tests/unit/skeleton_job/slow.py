"""Rates of one endpoint after the other, the slow and obvious way: what the fast one must equal."""

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s, UInt64s
from schemas.units import SECOND_NS
from skeleton_job.series.rates import MAX_GAP_BINS
from skeleton_job.series.unwrapping import UNDECLARED, guess_bits


def rates(
    time_ns: Int64s,
    value: UInt64s,
    bits: int,
    *,
    edges_ns: Int64s,
    max_rate: float,
) -> tuple[Floats, Bools]:
    """Return bytes per second in each bin, and which bins are missing.

    Parameters
    ----------
    time_ns, value : readings in any order; of two at one time the last counts
    """
    bin_ns = int(edges_ns[1] - edges_ns[0])
    margin = MAX_GAP_BINS * bin_ns
    by_time = dict(sorted((int(t), int(v)) for t, v in zip(time_ns, value, strict=True)))
    latest = {int(t): int(v) for t, v in zip(time_ns, value, strict=True)}
    begin, end = int(edges_ns[0]) - margin, int(edges_ns[-1]) + margin
    times = [t for t in by_time if begin <= t <= end]
    values = [latest[t] for t in times]
    bins = edges_ns.size - 1
    missing = np.zeros(bins, dtype=np.bool_)
    if len(times) < 2:
        return np.zeros(bins), ~missing
    if bits == UNDECLARED:
        bits = guess_bits(np.array(values, dtype=np.uint64))
    total = [0.0]
    for i in range(1, len(times)):
        moved = values[i] - values[i - 1]
        if moved < 0:
            moved %= 2**bits
        gone = float(moved) > max_rate * ((times[i] - times[i - 1]) / SECOND_NS)
        total.append(total[-1] + (0.0 if gone else float(moved)))
        if gone or times[i] - times[i - 1] > margin:
            for b in range(bins):
                missing[b] |= edges_ns[b] < times[i] and edges_ns[b + 1] > times[i - 1]
    missing |= (edges_ns[:-1] < times[0]) | (edges_ns[1:] > times[-1])
    at = np.interp(edges_ns.astype(np.float64), np.array(times, dtype=np.float64), total)
    out: Floats = np.where(missing, 0.0, np.diff(at) * (SECOND_NS / bin_ns))
    return out, missing
