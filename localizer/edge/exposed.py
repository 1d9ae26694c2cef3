"""The localizer's metrics for Prometheus, and what agents count, read at each scrape.

Agents have no room for Prometheus' client. Their heartbeats say what they count, and the localizer
reads all of them anyway: so it exposes the sums over agents.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from localizer.edge.counts import Counts, FaultSort
from localizer.facts.agent_counts import DISCARDED
from schemas.metrics.common import LEADER, LOG_METRICS, log_families
from schemas.metrics.family import Family, Kind, Metric, Sample, by_label, metrics_of, one
from schemas.units import SECOND_NS

DECIDED: Final = Metric(
    name="skeletonhunter_decided_timestamp_seconds",
    kind=Kind.GAUGE,
    doc="Time up to which everything is decided, seconds since the epoch",
    action="Falls behind the clock by half a minute: a worker's partition makes no progress "
    "(`skeletonhunter_lag_seconds` of the workers), or decisions are slow.",
)
DECISIONS: Final = Metric(
    name="skeletonhunter_decision_seconds",
    kind=Kind.HISTOGRAM,
    doc="Time that it took to decide what had become due",
    action="Above 0.25 s in health: more 5-tuples than one localizer can hold "
    "(docs/guide/sizing.md). Seconds during a large fault are normal.",
)
DELAY: Final = Metric(
    name="skeletonhunter_verdict_delay_seconds",
    kind=Kind.HISTOGRAM,
    doc="From the event time of a transition until it was written; its example is the fault",
    action="Above some seconds: the lag of workers, slow decisions, or a slow broker.",
)
TRANSITIONS: Final = Metric(
    name="skeletonhunter_fault_transitions_total",
    kind=Kind.COUNTER,
    doc="Transitions written to `fault.event.v1`; its example is the latest fault",
    action="Many `updated` of one kind: a fault that comes and goes; see `flaps` of its record.",
    labels=("state", "kind", "severity"),
)
FAULTS: Final = Metric(
    name="skeletonhunter_faults_open",
    kind=Kind.GAUGE,
    doc="Open faults",
    action="`skeletonhunter tail fault.state.v1` lists them, with evidence and first step.",
    labels=("kind", "severity"),
)
WAITING: Final = Metric(
    name="skeletonhunter_records_waiting",
    kind=Kind.GAUGE,
    doc="Records that wait until the workers have decided up to their time",
    action="Grows without end: a worker's partition makes no progress.",
)
LATE: Final = Metric(
    name="skeletonhunter_records_late_total",
    kind=Kind.COUNTER,
    doc="Records that came after the time for which they count was decided; applied at once",
    action="Grows steadily: a slow writer of states or heartbeats, or a broker whose clock is off.",
)
REFUSED: Final = Metric(
    name="skeletonhunter_records_refused_total",
    kind=Kind.COUNTER,
    doc="Records that were not used because there is too much of a kind, or because they "
    "contradict others",
    action="Raise the bound that the log's `records.beyond_bounds` names, or find who writes so "
    "much. contradictory_components: correct `topology.v1`.",
    labels=("kind",),
)
ADDRESSES: Final = Metric(
    name="skeletonhunter_unknown_addresses_total",
    kind=Kind.COUNTER,
    doc="Hops of traces whose address no component has",
    action="`topology.v1` lacks addresses of switches: paths through them are not known.",
)
WITHOUT_WAY: Final = Metric(
    name="skeletonhunter_pairs_without_way",
    kind=Kind.GAUGE,
    doc="Pairs on ping lists that no flow table ever had a way for, and that never answered",
    action="A wrong skeleton, or an overlay that was never set up; the log names some of them.",
)
COVERAGE: Final = Metric(
    name="skeletonhunter_coverage_ratio",
    kind=Kind.GAUGE,
    doc="Share of the 5-tuples on ping lists that agents say they probe, counted each minute",
    action="Below 0.9 for minutes: agents are silent, have an old list, or wait for targets; "
    "`skeletonhunter doctor` names them.",
)
EXPECTED: Final = Metric(
    name="skeletonhunter_flows_expected",
    kind=Kind.GAUGE,
    doc="5-tuples on ping lists between registered endpoints",
    action="0 while jobs run: no ping lists; see the skeleton job.",
)
TASKS_BELOW: Final = Metric(
    name="skeletonhunter_tasks_below_coverage",
    kind=Kind.GAUGE,
    doc="Training jobs of which less than 0.9 is probed",
    action="The log's `localizer.coverage` names some of them.",
)
AGENTS: Final = Metric(
    name="skeletonhunter_agents",
    kind=Kind.GAUGE,
    doc="Agents by what their last heartbeat says of probing (starting, probing, waiting, "
    "no_list, empty_list, displaced), or silent",
    action="silent: a fault `agent_dead` or `agents_silent` says whose. no_list: the skeleton job "
    "has not published. displaced: two agents of one name.",
    labels=("state",),
)
HEARD: Final = Metric(
    name="skeletonhunter_last_heartbeat_timestamp_seconds",
    kind=Kind.GAUGE,
    doc="When the newest heartbeat of any agent reached the broker, seconds since the epoch",
    action="Older than a minute: no agent reaches Kafka at all, or the localizer reads nothing. "
    "Nothing watches the network meanwhile.",
)
CLOCK: Final = Metric(
    name="skeletonhunter_agent_clock_offset_max_seconds",
    kind=Kind.GAUGE,
    doc="Largest distance of an agent's clock from the broker's",
    action="Above 1 s a fault `agent_clock` names the host: repair its NTP.",
)
AGENT_ROUNDS: Final = Metric(
    name="skeletonhunter_agent_rounds_total",
    kind=Kind.COUNTER,
    doc="Probing rounds that all agents handed to Kafka",
    action="More than the workers read: records are lost, or workers lag.",
)
AGENT_RESULTS: Final = Metric(
    name="skeletonhunter_agent_results_total",
    kind=Kind.COUNTER,
    doc="Results that all agents handed to Kafka",
    action="Compare its rate with that of `skeletonhunter_probes_total`.",
)
AGENT_DROPPED: Final = Metric(
    name="skeletonhunter_agent_rounds_dropped_total",
    kind=Kind.COUNTER,
    doc="Rounds that agents dropped because their queue was full",
    action="The broker was away for longer than an agent's queue lasts. What happened in that "
    "time is not judged.",
)
AGENT_DISCARDED: Final = Metric(
    name="skeletonhunter_agent_discarded_total",
    kind=Kind.COUNTER,
    doc="What agents got and could not use",
    action="packet_malformed, packet_filtered, reply_foreign: somebody sends to the probe port. "
    "list_refused, record_undecodable: upgrade agents. reply_late: raise the agents' timeout.",
    labels=("what",),
)
METRICS: Final = metrics_of(
    LOG_METRICS,
    (LEADER, DECIDED, DECISIONS, DELAY, TRANSITIONS, FAULTS, WAITING, LATE, REFUSED, ADDRESSES,
     WITHOUT_WAY, COVERAGE, EXPECTED, TASKS_BELOW, AGENTS, HEARD, CLOCK, AGENT_ROUNDS,
     AGENT_RESULTS, AGENT_DROPPED, AGENT_DISCARDED),
)  # fmt: skip


class Exposed:
    """Reads the localizer's counts; called by the thread that answers a scrape."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def families(self) -> Iterator[Family]:
        """Yield the families of `METRICS`."""
        counts = self._counts
        yield from log_families(counts.records, counts.dead_letters, counts.lag, time.time_ns())
        yield one(LEADER, float(counts.leads))
        decided_ns = counts.decided_ns
        yield one(DECIDED, None if decided_ns is None else decided_ns / SECOND_NS)
        yield counts.decisions.family(DECISIONS)
        yield counts.delays.family(DELAY)
        yield from self._faults()
        yield from self._status()
        yield from self._coverage()
        yield from self._agents()

    def _faults(self) -> Iterator[Family]:
        # Copies: the loop adds what is new.
        latest = dict(self._counts.latest)
        transitions = sorted(dict(self._counts.transitions).items())
        yield Family(
            TRANSITIONS,
            [
                Sample(
                    count,
                    (sort.state.lower(), sort.kind, sort.severity),
                    {"fault_id": latest[sort]} if sort in latest else None,
                )
                for sort, count in transitions
            ],
        )
        faults = Counter(dict(self._counts.open).values())
        # A sort that was open goes back to 0; it does not disappear.
        known = {FaultSort(sort.kind, sort.severity) for sort, _ in transitions}
        faults.update(dict.fromkeys(known - faults.keys(), 0))
        yield Family(FAULTS, [Sample(count, sort) for sort, count in sorted(faults.items())])

    def _status(self) -> Iterator[Family]:
        status = self._counts.status
        if status is None:
            yield from (Family(m, []) for m in (WAITING, LATE, REFUSED, ADDRESSES, WITHOUT_WAY))
            yield from (Family(m, []) for m in (AGENTS, CLOCK))
            return
        yield one(WAITING, status.waiting)
        yield one(LATE, status.late)
        yield by_label(REFUSED, status.refused)
        yield one(ADDRESSES, status.unknown_addresses)
        yield one(WITHOUT_WAY, status.pairs_without_way)
        yield by_label(AGENTS, status.agents)
        yield one(CLOCK, status.clock_offset_s)

    def _coverage(self) -> Iterator[Family]:
        coverage = self._counts.coverage
        every = None if coverage is None else coverage.every
        yield one(COVERAGE, None if every is None else every.share)
        yield one(EXPECTED, None if every is None else every.expected)
        yield one(TASKS_BELOW, None if coverage is None else len(coverage.below))

    def _agents(self) -> Iterator[Family]:
        totals = dict(self._counts.agents.totals)
        yield one(HEARD, self._counts.heard_s)
        yield one(AGENT_ROUNDS, totals["rounds"])
        yield one(AGENT_RESULTS, totals["results"])
        yield one(AGENT_DROPPED, totals["rounds_dropped"])
        yield by_label(AGENT_DISCARDED, {name: totals[name] for name in DISCARDED.values()})
