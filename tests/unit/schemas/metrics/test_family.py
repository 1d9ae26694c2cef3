"""Metrics as data: conventions hold, and histograms count as a list of all values would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.metrics.family import Buckets, Histogram, Kind, Metric, cumulative, metrics_of


def metric(name: str, kind: Kind = Kind.GAUGE, labels: tuple[str, ...] = ()) -> Metric:
    """Return a metric of that name."""
    return Metric(name=name, kind=kind, doc="d", action="a", labels=labels)


@pytest.mark.parametrize(
    ("name", "kind", "labels"),
    [
        ("probes", Kind.GAUGE, ()),
        ("skeletonhunter_probes", Kind.COUNTER, ()),
        ("skeletonhunter_build", Kind.INFO, ()),
        ("skeletonhunter_probes_total", Kind.COUNTER, ("result", "agent_id")),
        ("skeletonhunter_lag_seconds", Kind.GAUGE, ("pair",)),
    ],
)
def test_what_breaks_the_conventions_is_refused(
    name: str, kind: Kind, labels: tuple[str, ...]
) -> None:
    """Names without prefix or ending, and labels with as many values as a cluster has parts."""
    with pytest.raises(ValueError, match=r"skeletonhunter_"):
        metric(name, kind, labels)


def test_the_unit_stands_in_the_name() -> None:
    """As Prometheus wants it, before `_total`."""
    assert metric("skeletonhunter_lag_seconds").unit == "seconds"
    assert metric("skeletonhunter_read_bytes_total", Kind.COUNTER).unit == "bytes"
    assert metric("skeletonhunter_agents").unit == ""


def test_two_metrics_of_one_name_are_an_error() -> None:
    """The second would hide the first."""
    one = metric("skeletonhunter_agents")
    with pytest.raises(ValueError, match="one name"):
        metrics_of((one,), (metric("skeletonhunter_agents"),))


@given(values=st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 9.0])))
def test_a_histogram_says_how_many_values_are_up_to_each_bound(values: list[float]) -> None:
    """Bounds belong to their bucket; the last bucket has none; examples are the latest."""
    histogram = Histogram((1.0, 2.0))
    for number, value in enumerate(values):
        histogram.observe(value, {"number": str(number)})
    (buckets,) = histogram.family(metric("skeletonhunter_x_seconds", Kind.HISTOGRAM)).samples
    assert isinstance(buckets, Buckets)
    assert list(cumulative(buckets)) == [
        (bound, sum(v <= bound for v in values)) for bound in (1.0, 2.0, float("inf"))
    ]
    assert buckets.total == sum(values)
    if values:
        example, value = buckets.exemplars[sum(values[-1] > b for b in (1.0, 2.0))]
        assert (example, value) == ({"number": str(len(values) - 1)}, values[-1])
