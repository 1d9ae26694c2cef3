"""What the worker exposes: all that it declares, from its own counters."""

from types import SimpleNamespace
from typing import Any, cast

from schemas.enums import AnomalyState
from schemas.metrics.family import Buckets, Sample
from schemas.process.lag import LogLag
from streams.columns.rounds import OK_CODE, TRANSPORT_CODES
from streams.core.metrics import AnomalySort, Metrics, Tally
from streams.edge.engine import Engine
from streams.edge.exposed import ANOMALIES, METRICS, PROBES, ROUND_TRIP, Exposed


def counted() -> dict[Any, Any]:
    """Return what is exposed after some counts, by metric."""
    metrics, tally = Metrics(), Tally()
    tally.counts.update(rounds=3, results=5, invalid=1)
    tally.outcomes.statuses[OK_CODE] = 4
    tally.outcomes.round_trips[TRANSPORT_CODES["UDP"], 3] = 4
    tally.outcomes.sum_ns[TRANSPORT_CODES["UDP"]] = 200_000
    sort = AnomalySort("sequential", AnomalyState.ONSET.value)
    tally.anomalies[sort] += 2
    tally.latest[sort] = "agent-h1"
    metrics.move_from(tally)
    engine = cast(
        Engine, SimpleNamespace(lag=LogLag(), open_anomalies=1, partitions=lambda: {0: 7, 2: 9})
    )
    return {family.metric: family.samples for family in Exposed(metrics, engine).families()}


def test_all_that_is_declared_and_nothing_else() -> None:
    """The page of the documentation is written from the declarations."""
    assert set(counted()) == set(METRICS)


def test_records_are_those_accepted_and_those_refused() -> None:
    """A round is counted once, whatever becomes of it."""
    found = {metric.name: samples for metric, samples in counted().items()}
    assert found["skeletonhunter_records_total"] == [Sample(4, ("probe.round.v1",))]
    assert found["skeletonhunter_dead_letters_total"] == [Sample(1, ("probe.round.v1",))]
    assert Sample(1, ("invalid",)) in found["skeletonhunter_rounds_refused_total"]
    assert found["skeletonhunter_partitions"] == [Sample(2)]


def test_results_and_anomalies_with_an_example() -> None:
    """Round trips in seconds; the example is the agent of the latest anomaly."""
    found = counted()
    assert Sample(4, ("ok",)) in found[PROBES]
    (udp,) = [b for b in found[ROUND_TRIP] if b.labels == ("udp",)]
    assert isinstance(udp, Buckets)
    assert (udp.bounds[3], udp.counts[3], udp.total) == (50e-6, 4, 200e-6)
    assert found[ANOMALIES] == [Sample(2, ("sequential", "onset"), {"agent_id": "agent-h1"})]
