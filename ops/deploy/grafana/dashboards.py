"""What the dashboards show: titles, expressions and limits as plain data; pure.

Limits are those of the alerts (`ops/deploy/prometheus/rules.yml`), so that a panel is red where an
alert is on its way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# In each selector of an expression; Grafana fills in the jobs that are chosen above.
JOB: Final = 'job=~"$job"'

SECONDS: Final = "s"
SHARE: Final = "percentunit"
PER_SECOND: Final = "cps"
BYTES: Final = "bytes"
COUNT: Final = "short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """From where on a value is bad: above it, or below it."""

    value: float
    below: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, `JOB` in it stands for the chosen jobs; and what its lines are called."""

    text: str
    legend: str = ""

    @property
    def expr(self) -> str:
        """The expression as Grafana has it."""
        return self.text.replace("JOB", JOB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A number or, if it has a course in time, a graph.

    Attributes
    ----------
    doc
        What it says, and what to do when it moves.
    absent
        What is shown if Prometheus has no answer.
    """

    title: str
    doc: str
    unit: str
    queries: tuple[Query, ...]
    number: bool = False
    limit: Limit | None = None
    absent: str = "no data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels that belong together."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A page of panels."""

    name: str
    title: str
    doc: str
    rows: tuple[Row, ...]

    def queries(self) -> Iterator[tuple[Panel, Query]]:
        """Yield every expression with its panel."""
        for row in self.rows:
            for panel in row.panels:
                for query in panel.queries:
                    yield panel, query


def _open(selector: str) -> Query:
    """Return how many faults are open: 0 if there is none, no answer if no localizer says so."""
    return Query(
        f"sum(skeletonhunter_faults_open{{JOB{selector}}}) or "
        '0 * count(skeletonhunter_build_info{JOB,process="localizer"})'
    )


def _rate(metric: str, by: str = "") -> str:
    total = f"(rate({metric}{{JOB}}[$__rate_interval]))"
    return f"sum by ({by}) {total}" if by else f"sum{total}"


def _quantiles(metric: str, by: str = "") -> tuple[Query, ...]:
    labels, name = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({q}, {_rate(f'{metric}_bucket', labels)})", f"P{q * 100:g}{name}"
        )
        for q in (0.5, 0.99)
    )


def _age(timestamp: str, of: str = "max") -> Query:
    return Query(f"time() - {of}({timestamp}{{JOB}})")


COVERAGE: Final = Panel(
    title="Coverage",
    doc="Share of the 5-tuples on ping lists that agents probe. Below 0.9 `skeletonhunter doctor` "
    "names the agents.",
    unit=SHARE,
    queries=(Query("min(skeletonhunter_coverage_ratio{JOB})"),),
    number=True,
    limit=Limit(value=0.9, below=True),
)
HEARTBEAT: Final = Panel(
    title="Last heartbeat",
    doc="Since any agent was heard. Above a minute nothing watches the network.",
    unit=SECONDS,
    queries=(_age("skeletonhunter_last_heartbeat_timestamp_seconds"),),
    number=True,
    limit=Limit(value=60),
)
LAG: Final = Panel(
    title="Lag by topic",
    doc="Age of the newest record that was read, of the partition furthest behind. Verdicts are "
    "late by as much. A start reads for a minute.",
    unit=SECONDS,
    queries=(
        Query(
            "max by (instance, topic) (skeletonhunter_lag_seconds{JOB})", "{{instance}} {{topic}}"
        ),
    ),
    limit=Limit(value=30),
)
PROBES: Final = Panel(
    title="Probes by result",
    doc="Others than ok growing over all agents at once: a fault of the network.",
    unit=PER_SECOND,
    queries=(Query(_rate("skeletonhunter_probes_total", "result"), "{{result}}"),),
)
ROUND_TRIPS: Final = Panel(
    title="Round trips",
    doc="Of answered probes, without the responder's delay. A cluster's usual value is its own.",
    unit=SECONDS,
    queries=_quantiles("skeletonhunter_probe_rtt_seconds", "transport"),
)

OVERVIEW: Final = Dashboard(
    name="overview",
    title="SkeletonHunter: is it the network?",
    doc="Open faults, and whether anything would be seen if there were one.",
    rows=(
        Row(
            title="Is it the network?",
            panels=(
                Panel(
                    title="Open faults",
                    doc="`skeletonhunter tail fault.state.v1` lists them, with evidence and first "
                    "step.",
                    unit=COUNT,
                    queries=(_open(""),),
                    number=True,
                    limit=Limit(value=1),
                    absent="no localizer answers",
                ),
                Panel(
                    title="Critical faults",
                    doc="Of the open faults those that stop a job.",
                    unit=COUNT,
                    queries=(_open(',severity="critical"'),),
                    number=True,
                    limit=Limit(value=1),
                    absent="no localizer answers",
                ),
                Panel(
                    title="Pages",
                    doc="Open pages; a storm of faults is one, silenced faults have none.",
                    unit=COUNT,
                    queries=(Query("sum(skeletonhunter_pages{JOB})"),),
                    number=True,
                    limit=Limit(value=1),
                    absent="no bridge answers",
                ),
            ),
        ),
        Row(
            title="Would it be seen?",
            panels=(
                COVERAGE,
                HEARTBEAT,
                Panel(
                    title="Verdicts are behind",
                    doc="Up to when everything is decided, before now. Above a minute a worker's "
                    "partition makes no progress, or decisions are slow.",
                    unit=SECONDS,
                    queries=(_age("skeletonhunter_decided_timestamp_seconds"),),
                    number=True,
                    limit=Limit(value=60),
                ),
                Panel(
                    title="Lag",
                    doc="Of whoever is furthest behind. Too few workers, too little CPU or a slow "
                    "broker.",
                    unit=SECONDS,
                    queries=(Query("max(skeletonhunter_lag_seconds{JOB})"),),
                    number=True,
                    limit=Limit(value=30),
                ),
                Panel(
                    title="Oldest skeleton",
                    doc="Of the running job that is furthest behind: since the counters that its "
                    "skeleton was inferred from.",
                    unit=SECONDS,
                    queries=(_age("skeletonhunter_skeleton_oldest_timestamp_seconds", "min"),),
                    number=True,
                    limit=Limit(value=600),
                    absent="no skeleton yet",
                ),
                Panel(
                    title="Silent agents",
                    doc="A fault `agent_dead` or `agents_silent` says whose.",
                    unit=COUNT,
                    # Of a state that no agent is in there is no sample.
                    queries=(
                        Query(
                            'sum(skeletonhunter_agents{JOB,state="silent"}) or '
                            "0 * sum(skeletonhunter_agents{JOB})"
                        ),
                    ),
                    number=True,
                    limit=Limit(value=1),
                ),
            ),
        ),
        Row(
            title="Faults",
            panels=(
                Panel(
                    title="Open faults by kind and severity",
                    doc="The localizer's verdicts that have not resolved.",
                    unit=COUNT,
                    queries=(
                        Query(
                            "sum by (kind, severity) (skeletonhunter_faults_open{JOB})",
                            "{{kind}} ({{severity}})",
                        ),
                    ),
                ),
                Panel(
                    title="Transitions",
                    doc="Written to `fault.event.v1`. Many updates of one kind: a fault that comes "
                    "and goes.",
                    unit=PER_SECOND,
                    queries=(
                        Query(
                            _rate("skeletonhunter_fault_transitions_total", "state, kind"),
                            "{{kind}} {{state}}",
                        ),
                    ),
                ),
                PROBES,
                ROUND_TRIPS,
                Panel(
                    title="Jobs below coverage",
                    doc="Training jobs of which less than 0.9 is probed; the log's "
                    "`localizer.coverage` names some.",
                    unit=COUNT,
                    queries=(Query("sum(skeletonhunter_tasks_below_coverage{JOB})", "jobs"),),
                ),
                Panel(
                    title="Jobs by skeleton",
                    doc="no: a basic ping list, for longer than ten iterations of the job "
                    "`skeleton.v1` of the task says why.",
                    unit=COUNT,
                    queries=(
                        Query("sum by (skeleton) (skeletonhunter_tasks{JOB})", "{{skeleton}}"),
                    ),
                ),
            ),
        ),
    ),
)

PIPELINE: Final = Dashboard(
    name="pipeline",
    title="SkeletonHunter: pipeline",
    doc="Whether records become verdicts in time, and what is lost on the way.",
    rows=(
        Row(
            title="Records",
            panels=(
                Panel(
                    title="Records read",
                    doc="By topic. None while the topic grows: a process stands still or has no "
                    "partitions.",
                    unit=PER_SECOND,
                    queries=(Query(_rate("skeletonhunter_records_total", "topic"), "{{topic}}"),),
                ),
                LAG,
                Panel(
                    title="Windows and anomalies",
                    doc="Closed windows, and records of anomalies by detector and state.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_windows_total"), "windows"),
                        Query(
                            _rate("skeletonhunter_anomalies_total", "detector, state"),
                            "{{detector}} {{state}}",
                        ),
                    ),
                ),
                Panel(
                    title="Late",
                    doc="Results in no window, results that came before, and records after the "
                    "time they count for. A steady flow: wrong clocks, or two agents of one name.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_results_late_total"), "results late"),
                        Query(_rate("skeletonhunter_results_duplicate_total"), "results again"),
                        Query(_rate("skeletonhunter_records_late_total"), "records late"),
                    ),
                ),
                Panel(
                    title="Refused",
                    doc="More than bounds allow, or contradictory; the log's "
                    "`records.beyond_bounds` names the bound.",
                    unit=PER_SECOND,
                    queries=(
                        Query(
                            _rate("skeletonhunter_rounds_refused_total", "reason"),
                            "rounds: {{reason}}",
                        ),
                        Query(
                            _rate("skeletonhunter_records_refused_total", "kind"),
                            "records: {{kind}}",
                        ),
                    ),
                ),
                Panel(
                    title="Dead letters",
                    doc="`skeletonhunter tail <topic>.dlq` says why, and who wrote them.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_dead_letters_total", "topic"), "{{topic}}"),
                    ),
                ),
            ),
        ),
        Row(
            title="Verdicts",
            panels=(
                Panel(
                    title="Decisions",
                    doc="Time that each takes. Above 0.25 s in health: more 5-tuples than one "
                    "localizer holds.",
                    unit=SECONDS,
                    queries=_quantiles("skeletonhunter_decision_seconds"),
                ),
                Panel(
                    title="Verdict's delay",
                    doc="From the event time of a transition until it was written.",
                    unit=SECONDS,
                    queries=_quantiles("skeletonhunter_verdict_delay_seconds"),
                ),
                Panel(
                    title="Records that wait",
                    doc="Until workers have decided up to their time. Growing without end: a "
                    "worker's partition makes no progress.",
                    unit=COUNT,
                    queries=(Query("sum(skeletonhunter_records_waiting{JOB})", "records"),),
                ),
                Panel(
                    title="Inferences of skeletons",
                    doc="skipped grows: raise `workers` or `interval_s`. failed: the log says of "
                    "which job.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_inferences_total", "outcome"), "{{outcome}}"),
                    ),
                ),
            ),
        ),
        Row(
            title="Pages",
            panels=(
                Panel(
                    title="Posts",
                    doc="refused are given up: the bridge's log says why.",
                    unit=PER_SECOND,
                    queries=(
                        Query(
                            _rate("skeletonhunter_bridge_posts_total", "target, outcome"),
                            "{{target}} {{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    title="What waits longest",
                    doc="Above a minute pages do not arrive: the target, its key or the network.",
                    unit=SECONDS,
                    queries=(
                        Query(
                            "max by (target) (skeletonhunter_bridge_oldest_pending_seconds{JOB})",
                            "{{target}}",
                        ),
                    ),
                    limit=Limit(value=120),
                ),
            ),
        ),
        Row(
            title="Processes",
            panels=(
                Panel(
                    title="Processes by version",
                    doc="Two versions at once: an upgrade is under way, readers before writers.",
                    unit=COUNT,
                    queries=(
                        Query(
                            "count by (process, version) (skeletonhunter_build_info{JOB})",
                            "{{process}} {{version}}",
                        ),
                    ),
                ),
                Panel(
                    title="Processor",
                    doc="Cores.",
                    unit=COUNT,
                    queries=(
                        Query(_rate("process_cpu_seconds_total", "instance"), "{{instance}}"),
                    ),
                ),
                Panel(
                    title="Memory",
                    doc="Resident.",
                    unit=BYTES,
                    queries=(
                        Query(
                            "max by (instance) (process_resident_memory_bytes{JOB})", "{{instance}}"
                        ),
                    ),
                ),
                Panel(
                    title="Trouble with the broker",
                    doc="More than one session lost an hour: the broker, or the network to it.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_sessions_lost_total"), "sessions lost"),
                        Query(_rate("skeletonhunter_commit_errors_total"), "commits failed"),
                        Query(_rate("skeletonhunter_records_not_delivered_total"), "not delivered"),
                    ),
                ),
            ),
        ),
    ),
)

AGENTS: Final = Dashboard(
    name="agents",
    title="SkeletonHunter: agents",
    doc="Who probes, and what agents say of themselves in their heartbeats.",
    rows=(
        Row(
            title="Who probes",
            panels=(
                HEARTBEAT,
                COVERAGE,
                Panel(
                    title="5-tuples to probe",
                    doc="On ping lists between registered endpoints. 0 while jobs run: see the "
                    "skeleton job.",
                    unit=COUNT,
                    queries=(Query("max(skeletonhunter_flows_expected{JOB})"),),
                    number=True,
                ),
                Panel(
                    title="Worst clock",
                    doc="Largest distance of an agent's clock from the broker's. Above 1 s a "
                    "fault `agent_clock` names the host.",
                    unit=SECONDS,
                    queries=(Query("max(skeletonhunter_agent_clock_offset_max_seconds{JOB})"),),
                    number=True,
                    limit=Limit(value=1),
                    absent="not known yet",
                ),
            ),
        ),
        Row(
            title="Over time",
            panels=(
                Panel(
                    title="Agents by state",
                    doc="silent: a fault says whose. no_list: the skeleton job has not published. "
                    "displaced: two agents of one name.",
                    unit=COUNT,
                    queries=(Query("sum by (state) (skeletonhunter_agents{JOB})", "{{state}}"),),
                ),
                Panel(
                    title="Results sent and read",
                    doc="What agents handed to Kafka, and what workers read of it.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_agent_results_total"), "sent by agents"),
                        Query(_rate("skeletonhunter_probes_total"), "read by workers"),
                    ),
                ),
                PROBES,
                ROUND_TRIPS,
                Panel(
                    title="Rounds dropped",
                    doc="The broker was away for longer than an agent's queue lasts. What happened "
                    "then is not judged.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_agent_rounds_dropped_total"), "dropped"),
                        Query(_rate("skeletonhunter_agent_rounds_total"), "sent"),
                    ),
                ),
                Panel(
                    title="Discarded by agents",
                    doc="packet_malformed, packet_filtered, reply_foreign: somebody sends to the "
                    "probe port. list_refused, record_undecodable: upgrade agents.",
                    unit=PER_SECOND,
                    queries=(
                        Query(_rate("skeletonhunter_agent_discarded_total", "what"), "{{what}}"),
                    ),
                ),
            ),
        ),
    ),
)


def _gauge(metric: str) -> tuple[Query, ...]:
    """Return what any of the hang watchers says; each of them counts what it read."""
    return (Query(f"max({metric}{{JOB}})"),)


JOBS: Final = Dashboard(
    name="jobs",
    title="SkeletonHunter: training jobs",
    doc="Which training jobs hang, and whether that would be seen.",
    rows=(
        Row(
            title="Now",
            panels=(
                Panel(
                    title="Jobs that hang",
                    doc="`skeletonhunter job show TASK` says where each rank stands.",
                    unit=COUNT,
                    queries=_gauge("skeletonhunter_hangs_open"),
                    number=True,
                    limit=Limit(value=1),
                    absent="no hang watcher answers",
                ),
                Panel(
                    title="Jobs watched",
                    doc="Fewer than jobs run: their ranks record nothing, or no collector reads "
                    "them.",
                    unit=COUNT,
                    queries=_gauge("skeletonhunter_jobs_watched"),
                    number=True,
                    absent="no hang watcher answers",
                ),
                Panel(
                    title="Ranks watched",
                    doc="Of these jobs. Fewer than they have: a host without a collector.",
                    unit=COUNT,
                    queries=_gauge("skeletonhunter_ranks_watched"),
                    number=True,
                    absent="no hang watcher answers",
                ),
                Panel(
                    title="Decisions are behind",
                    doc="Up to when it is known which jobs hang, before now. Above a minute the "
                    "hang watcher lags, or the broker is away.",
                    unit=SECONDS,
                    queries=(_age("skeletonhunter_hangs_decided_timestamp_seconds"),),
                    number=True,
                    limit=Limit(value=60),
                    absent="none leads",
                ),
            ),
        ),
        Row(
            title="Over time",
            panels=(
                Panel(
                    title="Transitions by class",
                    doc="Written to `collective.hang.v1`. Many `updated`: a job that goes on "
                    "operation by operation.",
                    unit=PER_SECOND,
                    queries=(
                        Query(
                            _rate("skeletonhunter_hang_transitions_total", "state, class"),
                            "{{class}} {{state}}",
                        ),
                    ),
                ),
                Panel(
                    title="Analysis",
                    doc="Of all jobs together, once a second. Above two seconds there are more "
                    "ranks than one watcher can hold.",
                    unit=SECONDS,
                    queries=_quantiles("skeletonhunter_hangs_analysis_seconds"),
                    limit=Limit(value=2),
                ),
                Panel(
                    title="Room",
                    doc="Operations that are held of all jobs, 2 million at most. Near it the log "
                    "(`hangs.no_room`) names the jobs.",
                    unit=COUNT,
                    queries=(
                        Query("max by (instance) (skeletonhunter_hangs_held{JOB})", "{{instance}}"),
                    ),
                ),
                Panel(
                    title="Trimmed and refused",
                    doc="Jobs with little history for lack of room, and records that were not "
                    "used. Hangs there are less sure, or not told.",
                    unit=COUNT,
                    queries=(
                        Query("max(skeletonhunter_jobs_trimmed{JOB})", "jobs trimmed"),
                        Query("max(skeletonhunter_hangs_refused_total{JOB})", "records refused"),
                    ),
                ),
            ),
        ),
    ),
)

DASHBOARDS: Final = (OVERVIEW, PIPELINE, JOBS, AGENTS)
