"""What a prober measures with each result, and what a closed window says of it.

One table for all: the columns of rounds, the kernels, the slots of open windows, the records of
closed windows and the features of detectors follow it. CONTRIBUTING has the recipe for a new
quantity.
"""

from typing import Final, NamedTuple

# Least value first, as in the columns.
PERCENTS: Final = (25, 50, 75, 90, 99)
# Stands for null in a column of a closed window.
NONE: Final = -1


class Quantity(NamedTuple):
    """A number of each result, in nanoseconds; negative where it was not measured.

    Attributes
    ----------
    field
        Nullable field of a result of `probe.round.v1`.
    statistics
        Nullable fields of `probe.window.v1`: of the round trip all that the kernels compute, of
        every other quantity its median.
    observed
        Whether detectors get the median (`streams.detectors.base.FeatureBatch.medians_ns`). It
        is then read from published windows, too.
    """

    field: str
    statistics: tuple[str, ...]
    observed: bool = False


QUANTITIES: Final = (
    # The first one is the round trip, which is missing where a probe was lost.
    Quantity(
        "rtt_ns",
        (
            "p25_ns", "p50_ns", "p75_ns", "p90_ns", "p99_ns", "min_ns", "mean_ns", "std_ns",
            "max_ns",
        ),
    ),
    Quantity("prober_delay_ns", ("host_delay_p50_ns",), observed=True),
    Quantity("responder_delay_ns", ("responder_delay_p50_ns",)),
)  # fmt: skip
COUNT: Final = len(QUANTITIES)
ROUND_TRIP: Final = 0

# Of the round trip.
STATISTICS: Final = QUANTITIES[ROUND_TRIP].statistics
# Columns of a closed window; the medians of the others follow the round trip's.
COLUMNS: Final = tuple(name for quantity in QUANTITIES for name in quantity.statistics)
# The median of quantity n, the round trip aside, is in column MEDIANS + n.
MEDIANS: Final = len(STATISTICS) - 1
# Features that the detectors observe, in the paper's order.
FEATURES: Final = ("p25_ns", "p50_ns", "p75_ns", "min_ns", "mean_ns", "std_ns", "max_ns")
# Medians that they observe beside them.
OBSERVED: Final = tuple(
    name for quantity in QUANTITIES if quantity.observed for name in quantity.statistics
)
