"""A metric as data: its name, its meaning, what to do when it moves, and its values at a scrape.

Names and units follow Prometheus' conventions (https://prometheus.io/docs/practices/naming/):
base units, `_total` on what only grows.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

PREFIX: Final = "skeletonhunter_"
TOTAL: Final = "_total"
INFO: Final = "_info"
UNITS: Final = ("seconds", "ratio", "bytes")
# Of these a cluster has thousands to billions of values, and each value is a series of its own.
UNBOUNDED_LABELS: Final = frozenset(
    {"agent", "agent_id", "component", "component_id", "dst", "endpoint", "endpoint_id", "fault_id",
     "flow", "host", "host_id", "pair", "path", "path_id", "rnic", "src"}
)  # fmt: skip
# OpenMetrics 1.0: names and values of an exemplar's labels together.
MAX_EXEMPLAR_CHARS: Final = 128


class Kind(StrEnum):
    """Type of a metric, as Prometheus calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric of a process.

    Attributes
    ----------
    name
        As a query names it.
    doc
        What it says.
    action
        What to do when it moves.
    labels
        Names of its labels. Their values are few, whatever the size of the cluster.

    Raises
    ------
    ValueError
        If name or labels break the conventions.
    """

    name: str
    kind: Kind
    doc: str
    action: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the conventions."""
        ending = {Kind.COUNTER: TOTAL, Kind.INFO: INFO}.get(self.kind, "")
        if not self.name.startswith(PREFIX) or not self.name.endswith(ending):
            raise ValueError(f"{self.name}: the name must be {PREFIX}…{ending}")
        if unbounded := UNBOUNDED_LABELS.intersection(self.labels):
            raise ValueError(f"{self.name}: too many values of {', '.join(sorted(unbounded))}")

    @property
    def unit(self) -> str:
        """Base unit, "" for a number of things."""
        stem = self.name.removesuffix(TOTAL)
        return next((unit for unit in UNITS if stem.endswith(f"_{unit}")), "")


# An example of what was counted last: labels that may be anything, as a link to logs and topics.
Exemplar = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """A value; of an info metric the labels are the value."""

    value: float
    labels: tuple[str, ...] = ()
    exemplar: Exemplar | None = None


@dataclass(frozen=True, slots=True)
class Buckets:
    """The values of a histogram.

    Attributes
    ----------
    bounds
        Upper bounds, inclusive, in the metric's unit.
    counts
        Of each bucket by itself; the last one has no bound.
    exemplars
        By bucket.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float
    labels: tuple[str, ...] = ()
    exemplars: Mapping[int, tuple[Exemplar, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its values at one scrape."""

    metric: Metric
    samples: Sequence[Sample | Buckets]


# Called by the thread that answers a scrape, at any time.
Collect = Callable[[], Iterable[Family]]


def one(metric: Metric, value: float | None, exemplar: Exemplar | None = None) -> Family:
    """Return a family of one value without labels; of none where it is not known."""
    return Family(metric, [] if value is None else [Sample(value, (), exemplar)])


def by_label(metric: Metric, values: Mapping[str, float]) -> Family:
    """Return a family with one label."""
    return Family(metric, [Sample(value, (label,)) for label, value in sorted(values.items())])


class Histogram:
    """Counts values by bucket, and keeps the latest example of each.

    One thread observes, another may read: what is read is at most one value behind.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0
        self._exemplars: dict[int, tuple[Exemplar, float]] = {}

    def observe(self, value: float, exemplar: Exemplar | None = None) -> None:
        """Count a value."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._total += value
        if exemplar is not None:
            self._exemplars[bucket] = exemplar, value

    def family(self, metric: Metric) -> Family:
        """Return what was counted."""
        buckets = Buckets(self._bounds, list(self._counts), self._total, (), dict(self._exemplars))
        return Family(metric, [buckets])


def metrics_of(*groups: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return the metrics of a process by name.

    Raises
    ------
    ValueError
        If two have the same name.
    """
    found = sorted((m for group in groups for m in group), key=lambda metric: metric.name)
    if len({metric.name for metric in found}) < len(found):
        raise ValueError(f"two metrics of one name among {[m.name for m in found]}")
    return tuple(found)


def cumulative(buckets: Buckets) -> Iterator[tuple[float, int]]:
    """Yield the bound of each bucket and the values up to it, infinity last."""
    below = 0
    for bound, count in zip((*buckets.bounds, float("inf")), buckets.counts, strict=True):
        below += count
        yield bound, below
