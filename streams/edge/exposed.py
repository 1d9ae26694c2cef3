"""The worker's metrics for Prometheus, read from its counters at each scrape."""

import time
from collections.abc import Iterator
from typing import Final

from schemas import topics
from schemas.metrics.common import LOG_METRICS, log_families
from schemas.metrics.family import Buckets, Family, Kind, Metric, Sample, by_label, metrics_of, one
from schemas.units import SECOND_NS
from streams.columns.outcomes import BOUNDS_NS, SAMPLED, STATUSES
from streams.columns.rounds import TRANSPORTS
from streams.core.metrics import REFUSALS, Metrics
from streams.edge.engine import Engine

PROBES: Final = Metric(
    name="skeletonhunter_probes_total",
    kind=Kind.COUNTER,
    doc="Probes by what became of them (status of `probe.round.v1`, in small letters), each once",
    action="Other results than `ok` grow over all agents at once: a fault of the network, see "
    "`fault.state.v1`. None grows: agents do not probe, see `skeletonhunter_agents`.",
    labels=("result",),
)
ROUND_TRIP: Final = Metric(
    name="skeletonhunter_probe_rtt_seconds",
    kind=Kind.HISTOGRAM,
    doc=f"Round trips of answered probes, without the responder's delay; of one in {SAMPLED}, in "
    "each round others",
    action="The median moves while no fault is open: `probe.window.v1` says which 5-tuples. A "
    "cluster's usual value is its own.",
    labels=("transport",),
)
LATE: Final = Metric(
    name="skeletonhunter_results_late_total",
    kind=Kind.COUNTER,
    doc="Results that came after their window was closed, and are in none",
    action="More than one in a thousand: agents queue rounds (`rounds_dropped`), or their clocks "
    "jump. Raise `allowed_lateness_s` only if that is meant.",
)
DUPLICATE: Final = Metric(
    name="skeletonhunter_results_duplicate_total",
    kind=Kind.COUNTER,
    doc="Results of rounds that had come before, and are not counted again",
    action="A few after an agent's broker was away are its retries. A steady flow: two agents of "
    "one name.",
)
REFUSED: Final = Metric(
    name="skeletonhunter_rounds_refused_total",
    kind=Kind.COUNTER,
    doc="Rounds sent to the dead letters: undecodable, of a foreign cluster, invalid, clock_ahead "
    "(more than a minute), or beyond_limits (`max_agents`, `max_flows`)",
    action="`skeletonhunter tail probe.round.v1.dlq` names the agents and the reason.",
    labels=("reason",),
)
WINDOWS: Final = Metric(
    name="skeletonhunter_windows_total",
    kind=Kind.COUNTER,
    doc="Closed windows published to `probe.window.v1`",
    action="No growth while probes are counted: clocks of agents stand still; see the heartbeats' "
    "`clock_offset_ns`.",
)
ANOMALIES: Final = Metric(
    name="skeletonhunter_anomalies_total",
    kind=Kind.COUNTER,
    doc="Records of `anomaly.v1` by detector and state (onset, ongoing, cleared), without marks "
    "of progress; its example is the agent of the latest one",
    action="Onsets grow and no fault opens: one 5-tuple alone, or its agent's host; see "
    "`anomaly.v1` of the agent in the example.",
    labels=("detector", "state"),
)
OPEN: Final = Metric(
    name="skeletonhunter_anomalies_open",
    kind=Kind.GAUGE,
    doc="Anomalies that this worker's partitions hold open",
    action="Thousands: a fault of something that many paths share.",
)
PARTITIONS: Final = Metric(
    name="skeletonhunter_partitions",
    kind=Kind.GAUGE,
    doc="Partitions of `probe.round.v1` that this worker holds",
    action="The sum over workers is less than the topic's: a worker is being replaced, or cannot "
    "join. 0 for minutes: more workers than partitions.",
)
SESSIONS_LOST: Final = Metric(
    name="skeletonhunter_sessions_lost_total",
    kind=Kind.COUNTER,
    doc="Times that the worker gave up its partitions because the group or the broker did not "
    "answer, and took them anew",
    action="More than one an hour: the broker or the network to it; the log's `session.lost` says "
    "what happened.",
)
COMMIT_ERRORS: Final = Metric(
    name="skeletonhunter_commit_errors_total",
    kind=Kind.COUNTER,
    doc="Commits that failed and are tried again",
    action="As `skeletonhunter_sessions_lost_total`.",
)
METRICS: Final = metrics_of(
    LOG_METRICS,
    (PROBES, ROUND_TRIP, LATE, DUPLICATE, REFUSED, WINDOWS, ANOMALIES, OPEN, PARTITIONS,
     SESSIONS_LOST, COMMIT_ERRORS),
)  # fmt: skip

_ROUNDS: Final = topics.PROBE_ROUND.name


class Exposed:
    """Reads the worker's counters; called by the thread that answers a scrape.

    Counters are read while others count: each value by itself is right.
    """

    def __init__(self, metrics: Metrics, engine: Engine) -> None:
        self._metrics = metrics
        self._engine = engine

    def families(self) -> Iterator[Family]:
        """Yield the families of `METRICS`."""
        totals = self._metrics.totals()
        refused: dict[str, int] = {reason: totals[reason] for reason in REFUSALS}
        letters = sum(refused.values())
        yield from log_families(
            {_ROUNDS: totals["rounds"] + letters},
            {_ROUNDS: letters},
            self._engine.lag,
            time.time_ns(),
        )
        yield from self._results()
        yield one(LATE, totals["late"])
        yield one(DUPLICATE, totals["duplicate"])
        yield by_label(REFUSED, refused)
        yield one(WINDOWS, totals["windows"])
        yield self._anomalies()
        yield one(OPEN, self._engine.open_anomalies)
        yield one(PARTITIONS, len(self._engine.partitions()))
        yield one(SESSIONS_LOST, totals["sessions_lost"])
        yield one(COMMIT_ERRORS, totals["commit_errors"])

    def _results(self) -> Iterator[Family]:
        outcomes = self._metrics.total.outcomes
        by_status = zip(STATUSES, outcomes.statuses.tolist(), strict=True)
        yield by_label(PROBES, {status.lower(): n for status, n in by_status})
        bounds = [bound / SECOND_NS for bound in BOUNDS_NS]
        yield Family(
            ROUND_TRIP,
            [
                Buckets(bounds, counts, sum_ns / SECOND_NS, (transport.lower(),))
                for transport, counts, sum_ns in zip(
                    TRANSPORTS, outcomes.round_trips.tolist(), outcomes.sum_ns.tolist(), strict=True
                )
            ],
        )

    def _anomalies(self) -> Family:
        # Copies: the thread that detects adds what is new.
        latest = dict(self._metrics.total.latest)
        return Family(
            ANOMALIES,
            [
                Sample(
                    count,
                    (sort.detector, sort.state.lower()),
                    {"agent_id": latest[sort]} if sort in latest else None,
                )
                for sort, count in sorted(dict(self._metrics.total.anomalies).items())
            ],
        )
