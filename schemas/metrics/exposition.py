"""Serves a process's metrics to Prometheus; the only module that knows its client.

The client is used to format and to serve, not to count: values are read from the process's own
counters when a scrape asks. It knows OpenMetrics with exemplars as well as the older text format.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from schemas.metrics.family import (
    INFO,
    MAX_EXEMPLAR_CHARS,
    TOTAL,
    Buckets,
    Collect,
    Exemplar,
    Family,
    Kind,
    Metric,
    Sample,
    cumulative,
)
from schemas.metrics.settings import OPTION, SECTION, parse_listen
from schemas.process.errors import CannotRunError
from schemas.process.eventlog import EventLog
from schemas.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import metrics_core as client
    from prometheus_client.samples import Exemplar as ClientExemplar

BUILD: Final = Metric(
    name="skeletonhunter_build_info",
    kind=Kind.INFO,
    doc="Version of the program, and which process it is",
    action="Two versions at once: an upgrade is under way, readers before writers.",
    labels=("process", "version"),
)


@contextmanager
def exposed(listen: str, process: str, collect: Collect, log: EventLog) -> Iterator[str | None]:
    """Expose metrics while the block runs; give the address, None for `listen` "".

    Parameters
    ----------
    listen
        `[metrics] listen`.
    collect
        Returns the families; called by a thread of the server.

    Raises
    ------
    ConfigError
        If `listen` is no address.
    CannotRunError
        If nothing can listen there, or Prometheus' client is not installed.
    """
    place = parse_listen(listen)
    if place is None:
        yield None
        return
    try:
        # Not before somebody wants metrics: it takes 24 MB.
        from prometheus_client import start_http_server  # noqa: PLC0415
    except ImportError as error:
        raise CannotRunError(
            f"[{SECTION}] listen is set, and prometheus-client is not installed: "
            "pip install 'skeletonhunter[metrics]', or leave it empty"
        ) from error
    registry = registry_of(process, collect, log)
    host, port = place
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise CannotRunError(
            f"[{SECTION}] listen={listen!r}: {error.strerror or error}; processes of one host "
            f"need a port each: {OPTION} or SKELETONHUNTER_{SECTION.upper()}_LISTEN"
        ) from error
    shown = f"[{host}]" if ":" in host else host
    address = f"{shown}:{server.server_port}"
    log.info("metrics.listening", address=address)
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def registry_of(process: str, collect: Collect, log: EventLog) -> "CollectorRegistry":
    """Return the registry of a process: its metrics, and CPU and memory as the system says."""
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415
    from prometheus_client.registry import Collector  # noqa: PLC0415

    class _Collector(Collector):
        def collect(self) -> Iterator["client.Metric"]:
            yield _client_family(Family(BUILD, [Sample(1.0, (process, VERSION))]))
            try:
                yield from map(_client_family, collect())
            except Exception as error:
                # The scrape fails, and Prometheus knows by `up`; the process goes on.
                log.error("metrics.failed", reason=repr(error))
                raise

        def describe(self) -> Sequence["client.Metric"]:
            """Return nothing, so that registering does not collect."""
            return ()

    registry = CollectorRegistry()
    registry.register(_Collector())
    ProcessCollector(registry=registry)
    return registry


def _client_family(family: Family) -> "client.Metric":
    """Return a family as the client has it."""
    from prometheus_client import metrics_core as client  # noqa: PLC0415

    metric = family.metric
    name, labels = metric.name.removesuffix(TOTAL), metric.labels
    made: client.Metric
    if metric.kind is Kind.INFO:
        made = info = client.InfoMetricFamily(metric.name.removesuffix(INFO), metric.doc)
        for sample in family.samples:
            info.add_metric((), dict(zip(labels, sample.labels, strict=True)))
    elif metric.kind is Kind.HISTOGRAM:
        made = histogram = client.HistogramMetricFamily(
            name, metric.doc, labels=labels, unit=metric.unit
        )
        for buckets in family.samples:
            if isinstance(buckets, Buckets):
                histogram.add_metric(buckets.labels, _client_buckets(buckets), buckets.total)
    else:
        counts = metric.kind is Kind.COUNTER
        of = client.CounterMetricFamily if counts else client.GaugeMetricFamily
        made = plain = of(name, metric.doc, labels=labels, unit=metric.unit)
        for sample in family.samples:
            if isinstance(sample, Sample) and isinstance(plain, client.CounterMetricFamily):
                example = _client_exemplar(sample.exemplar, 1.0)
                plain.add_metric(sample.labels, sample.value, exemplar=example)
            elif isinstance(sample, Sample):
                plain.add_metric(sample.labels, sample.value)
    return made


def _client_buckets(
    buckets: Buckets,
) -> list[tuple[str, float] | tuple[str, float, "ClientExemplar"]]:
    found: list[tuple[str, float] | tuple[str, float, ClientExemplar]] = []
    for number, (bound, below) in enumerate(cumulative(buckets)):
        exemplar = _client_exemplar(*buckets.exemplars.get(number, (None, 0.0)))
        row = "+Inf" if bound == float("inf") else repr(float(bound)), float(below)
        found.append(row if exemplar is None else (*row, exemplar))
    return found


def _client_exemplar(labels: Exemplar | None, value: float) -> "ClientExemplar | None":
    """Return an exemplar; None where OpenMetrics would refuse it for its length."""
    from prometheus_client.samples import Exemplar as ClientExemplar  # noqa: PLC0415

    if labels is None or sum(len(k) + len(v) for k, v in labels.items()) > MAX_EXEMPLAR_CHARS:
        return None
    return ClientExemplar(dict(labels), value)
