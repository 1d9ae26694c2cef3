"""Serves a process's metrics to Prometheus, and its health to who supervises it.

The only module that knows Prometheus' client, which is used to format, not to count: values are
read from the process's own counters when a scrape asks. It knows OpenMetrics with exemplars as
well as the older text format.
"""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

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
from schemas.process.health import Health
from schemas.version import VERSION

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

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
def exposed(
    listen: str, process: str, collect: Collect, health: Health, log: EventLog
) -> Iterator[str | None]:
    """Expose metrics and health while the block runs; give the address, None for `listen` "".

    Parameters
    ----------
    listen
        `[metrics] listen`.
    collect
        Returns the families; called by a thread of the server.
    health
        Answers `/healthz` and `/readyz`; every other path is a scrape.

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
        from prometheus_client import make_wsgi_app  # noqa: PLC0415
    except ImportError as error:
        raise CannotRunError(
            f"[{SECTION}] listen is set, and prometheus-client is not installed: "
            "pip install 'skeletonhunter[metrics]', or leave it empty"
        ) from error
    scrape = make_wsgi_app(registry_of(process, collect, log))
    host, port = place
    shown = f"[{host}]" if ":" in host else host
    kind = _Server6 if ":" in host else _Server
    try:
        server = make_server(host, port, _application(scrape, health), kind, _QuietHandler)
    except OSError as error:
        raise CannotRunError(
            f"[{SECTION}] listen={listen!r}: {error.strerror or error}; processes of one host "
            f"need a port each: {OPTION} or SKELETONHUNTER_{SECTION.upper()}_LISTEN"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    address = f"{shown}:{server.server_port}"
    log.info("metrics.listening", address=address)
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request: a slow scrape must not look like a process that hangs."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Log nothing: somebody asks every few seconds."""


def _application(scrape: "WSGIApplication", health: Health) -> "WSGIApplication":
    def answer(environment: "WSGIEnvironment", start: "StartResponse") -> Iterator[bytes]:
        found = health.answer(str(environment.get("PATH_INFO", "")))
        if found is None:
            yield from scrape(environment, start)
            return
        status = "200 OK" if found.well else "503 Service Unavailable"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        yield f"{found.text}\n".encode()

    return answer


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
