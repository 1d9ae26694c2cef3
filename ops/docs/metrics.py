"""`docs/reference/metrics.md`: what each process exposes, from the metrics' declarations."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from localizer.edge import exposed as localizer
from localizer.edge import hang_counts as hangs
from ops.bridge import exposed as bridge
from ops.web import exposed as web
from schemas.metrics.exposition import BUILD
from schemas.metrics.family import Metric
from skeleton_job.edge import exposed as skeleton
from streams.edge import exposed as worker

PROCESSES: Final[Mapping[str, tuple[str, tuple[Metric, ...]]]] = {
    "worker": ("Stream worker", worker.METRICS),
    "localizer": ("Localizer", localizer.METRICS),
    "skeleton": ("Skeleton job", skeleton.METRICS),
    "hangs": ("Hang watcher", hangs.METRICS),
    "bridge": ("Bridge", bridge.METRICS),
    "web": ("Live page", web.METRICS),
}

INTRODUCTION: Final = """\
# Metrics

<!-- Written by `python -m ops.docs` from the metrics' declarations. -->

A process exposes its metrics to Prometheus where `[metrics] listen` says (`--metrics-listen`,
`SKELETONHUNTER_METRICS_LISTEN`); by default nowhere. [Monitoring](../guide/monitoring.md) has
scrape settings and alert rules.

No label names a pair, an agent, an endpoint or a fault: the number of series does not grow with
the cluster. For these read the topics. In the OpenMetrics format counters and histograms have
exemplars: the latest `fault_id` or `agent_id` that was counted.

Agents expose nothing, as Prometheus' client would take more memory than the whole agent. The
localizer reads their heartbeats anyway, and exposes their sums. The collector of training jobs
logs what it counted once a minute (`collect.counts`).
"""


def page() -> str:
    """Return the text of the page."""
    common = set.intersection(*(set(metrics) for _, metrics in PROCESSES.values()))
    every = (BUILD, *sorted(common, key=lambda metric: metric.name))
    parts = [INTRODUCTION, "\n".join(_table("Every process", every)) + "\n"]
    parts.append(
        "And `process_cpu_seconds_total`, `process_resident_memory_bytes`, "
        "`process_start_time_seconds`,\n`process_open_fds` as every client of Prometheus has "
        "them. Names of topics are without the prefix.\n"
    )
    for title, metrics in PROCESSES.values():
        own = [metric for metric in metrics if metric not in common]
        parts.append("\n".join(_table(title, own)) + "\n")
    return "\n".join(parts)


def _table(title: str, metrics: Iterable[Metric]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| metric | type | unit | what it says | when it moves |"
    yield "|---|---|---|---|---|"
    for one in metrics:
        labels = f"{{{','.join(one.labels)}}}" if one.labels else ""
        yield (
            f"| `{one.name}{labels}` | {one.kind} | {one.unit or '–'} | {one.doc} | {one.action} |"
        )
