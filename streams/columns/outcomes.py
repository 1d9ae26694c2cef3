"""What became of probes, counted over all 5-tuples: for the metrics of the process, nothing else.

A count by 5-tuple is what windows are for. Here the labels are few: what became of a probe, and
how it travelled.
"""

from typing import Final, NamedTuple

import numpy as np

from schemas.columns.arrays import Int64s
from schemas.columns.compiled import inlined
from schemas.enums import ProbeStatus
from schemas.units import US_NS
from streams.columns.quantities import ROUND_TRIP
from streams.columns.rounds import TRANSPORT_CODES, TRANSPORTS, RoundColumns

STATUSES: Final = tuple(status.value for status in ProbeStatus)
# Upper bounds of the buckets, inclusive as Prometheus' are. From a RoCE fabric's round trip
# (16 us) to the longest timeout of an agent, with two or three bounds in each decade: enough to
# see a median move by half. Beyond the last one is a bucket without bound.
BOUNDS_NS: Final = tuple(
    number * US_NS
    for number in (
        5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
        200_000, 500_000, 1_000_000,
    )
)  # fmt: skip
_BOUNDS: Final = np.array(BOUNDS_NS, np.int64)
# One in so many results has its round trip counted, in each round another: a histogram of some
# shows what one of all shows, and all cost the kernel 16 ns a result, a twentieth of its time.
SAMPLED: Final = 8


class OutcomeArrays(NamedTuple):
    """Counts of results, by the code of their status and of their transport.

    Attributes
    ----------
    statuses : (statuses,) int64
    round_trips : (transports, buckets) int64; of one in `SAMPLED` results, if it was answered; the
        last bucket has no bound
    sum_ns : (transports,) int64; their round trips together
    """

    statuses: Int64s
    round_trips: Int64s
    sum_ns: Int64s


def no_outcomes() -> OutcomeArrays:
    """Return arrays in which nothing is counted."""
    return OutcomeArrays(
        np.zeros(len(STATUSES), np.int64),
        np.zeros((len(TRANSPORTS), len(BOUNDS_NS) + 1), np.int64),
        np.zeros(len(TRANSPORTS), np.int64),
    )


def move_outcomes(source: OutcomeArrays, target: OutcomeArrays) -> None:
    """Add what is counted to the target, and empty the source."""
    for of, to in zip(source, target, strict=True):
        np.add(to, of, out=to)
        of[...] = 0


def count_outcomes(outcomes: OutcomeArrays, columns: RoundColumns, seq: int) -> None:
    """Count the results of a round that no kernel took; `seq` is its number."""
    answered = columns.ok & (np.arange(columns.count) % SAMPLED == seq % SAMPLED)
    rtt_ns = columns.values[ROUND_TRIP][answered]
    transport = np.array([TRANSPORT_CODES[t] for t in columns.transport], np.int64)[answered]
    np.add.at(outcomes.statuses, columns.status, 1)
    np.add.at(outcomes.round_trips, (transport, np.searchsorted(_BOUNDS, rtt_ns)), 1)
    np.add.at(outcomes.sum_ns, transport, rtt_ns)


@inlined
def bucket_of(rtt_ns: int) -> int:
    """Return the bucket of a round trip."""
    bucket = 0
    while bucket < len(_BOUNDS) and rtt_ns > _BOUNDS[bucket]:
        bucket += 1
    return bucket
