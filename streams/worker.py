"""Puts the worker together and runs it until it is told to stop."""

import asyncio
import sys
import time
from typing import Final

import faust
from confluent_kafka.admin import AdminClient

from schemas import topics
from schemas.kafka.clients import partitions_of
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.registry import codec_for
from schemas.metrics.exposition import exposed
from schemas.process import memory
from schemas.process.errors import CannotRunError
from schemas.process.eventlog import EventLog
from schemas.process.health import Health
from streams.config import WorkerConfig
from streams.core.metrics import Metrics
from streams.edge.consumer import RoundConsumer
from streams.edge.earlier import Background
from streams.edge.engine import PROCESS, Engine
from streams.edge.exposed import Exposed
from streams.edge.publisher import Publisher
from streams.edge.session import Restorer
from streams.edge.source import Source
from streams.edge.watchdog import Watchdog
from streams.faust_app import FAILED_EXIT_CODE, Wiring, make_app
from streams.warm import warm

COPARTITIONED: Final = (topics.PROBE_ROUND, topics.PROBE_WINDOW, topics.ANOMALY)


def check_topics(admin: AdminClient, settings: KafkaSettings) -> None:
    """Check that the topics are there and that outputs have as many partitions as rounds.

    Raises
    ------
    BrokerError
        If the broker does not answer or a topic is not as it must be.
    """
    found = partitions_of(admin, settings, COPARTITIONED)
    partitions = {t.name: len(found[settings.topic(t.name)]) for t in COPARTITIONED}
    if len(set(partitions.values())) > 1:
        shown = ", ".join(f"{settings.topic(n)}: {c}" for n, c in partitions.items())
        raise BrokerError(
            f"these topics must have the same number of partitions: {shown}; windows and "
            "anomalies stay in the partition of their rounds"
        )


def _run(worker: faust.Worker) -> int:
    """Run Faust until it ends; return the exit code."""
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except Exception:  # noqa: BLE001 - logged where it happened
        return FAILED_EXIT_CODE
    return 0


def run_worker(settings: KafkaSettings, config: WorkerConfig, metrics_listen: str = "") -> int:
    """Run a worker until SIGTERM or SIGINT; return the exit code.

    Parameters
    ----------
    metrics_listen
        Where it exposes its metrics; "": nowhere.

    Raises
    ------
    CannotRunError
        If it cannot start or go on, and a new process might.
    """
    memory.use_one_arena()
    memory.return_large_arrays()
    log, metrics, codec = EventLog(PROCESS), Metrics(), codec_for(settings)
    admin = AdminClient(settings.librdkafka())
    check_topics(admin, settings)
    # Before it holds partitions: making them anew, after an installation, takes half a minute.
    began = time.monotonic()
    warm(codec)
    log.info("kernels.ready", after_s=round(time.monotonic() - began, 2))
    engine = Engine(settings, codec, log, metrics, config.commit_s)
    background = Background()
    restorer = Restorer(settings, config.detection(), codec, log, background, engine.waiting)
    app = make_app()
    wiring = Wiring(app, log, metrics)

    def connect() -> tuple[RoundConsumer, Publisher]:
        consumer = RoundConsumer(config, restorer, engine, log, metrics)
        return consumer, Publisher(settings, session_timeout_s=config.session_timeout_s)

    source = Source(connect, engine, wiring.announce, log, metrics, start_s=config.start_s)
    watchdog = Watchdog(
        admin,
        settings.topic(topics.PROBE_ROUND.name),
        engine.partitions,
        lambda: engine.moved_at,
        lambda: engine.beat_at,
        limit_s=config.stall_s,
        log=log,
    )
    wiring.connect(source, watchdog)
    log.info("worker.starting", bootstrap=settings.bootstrap, window_s=config.window_s)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = faust.Worker(
        app, loglevel="ERROR", quiet=True, override_logging=False, redirect_stdouts=False,
        stdout=sys.stderr, loop=loop,
    )  # fmt: skip
    # It writes control characters to a terminal that is not there.
    worker.spinner = None
    health = Health(lambda: engine.lag.polled_s, source.waits_for)
    with exposed(metrics_listen, PROCESS, Exposed(metrics, engine).families, health, log):
        code = _run(worker)
    source.shut_down()
    background.shut_down()
    log.info("worker.stopped", **wiring.report())
    if isinstance(wiring.failure, CannotRunError):
        raise wiring.failure
    return code if wiring.failure is None else FAILED_EXIT_CODE
