"""The Faust app: runs the batch source and the watchdog, logs metrics, ends the process on errors.

In the worker only `streams.worker` imports Faust beside it, to run the app. The app has a consumer
group of its own in each process: with one member it never waits for another worker's rebalance,
during which Faust would hold all processing. It reads `endpoint.v1` from the start, for counts and
log lines only: nothing of it may touch the outputs, which are functions of the rounds alone.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Awaitable
from typing import Any, Final

import faust
from confluent_kafka.admin import AdminClient
from mode import Service

from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from streams.config import WorkerConfig
from streams.core.metrics import Metrics
from streams.edge.source import MAX_WAITING, Source
from streams.edge.watchdog import Watchdog

METRICS_EVERY_S: Final = 10.0
# Faust's own: fixed, since nothing that matters depends on this group.
QUIET_SESSION_S: Final = 10.0
QUIET_HEARTBEAT_S: Final = 3.0
FAILED_EXIT_CODE: Final = 1
# A library that hangs in its shutdown must not keep a failed process alive.
SHUTDOWN_S: Final = 10.0


def quiet_group(settings: KafkaSettings, config: WorkerConfig) -> str:
    """Return a group name for Faust's consumer that no other process has."""
    return f"{settings.topic(config.group)}-quiet-{uuid.uuid4().hex[:12]}"


def credentials(settings: KafkaSettings) -> Any:
    """Return Faust's credentials for the settings, None for plain text."""
    found = settings.aiokafka()
    context = found.get("ssl_context")
    if "sasl_mechanism" in found:
        return faust.SASLCredentials(
            username=found["sasl_plain_username"],
            password=found["sasl_plain_password"],
            mechanism=found["sasl_mechanism"],
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context=context)


class _StatelessApp(faust.App):
    """An app that keeps nothing on disk.

    Faust makes three folders for Tables in the current directory at each start;
    there are no Tables here, and each process has a name of its own, so that they
    would pile up.
    """

    def _create_directories(self) -> None:
        """Make none."""


def make_app(settings: KafkaSettings, group: str) -> faust.App:
    """Return the app without services and agents."""
    return _StatelessApp(
        group,
        broker=[f"kafka://{address.strip()}" for address in settings.bootstrap.split(",")],
        broker_credentials=credentials(settings),
        broker_session_timeout=QUIET_SESSION_S,
        broker_heartbeat_interval=QUIET_HEARTBEAT_S,
        broker_commit_interval=5.0,
        consumer_auto_offset_reset="earliest",
        store="memory://",
        # Topics are made by `ops`; a Table would need changelogs, and loses events on restart.
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        stream_wait_empty=False,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )


class Wiring:
    """Joins source, engine and metrics to a Faust app."""

    def __init__(
        self,
        app: faust.App,
        settings: KafkaSettings,
        codec: Codec,
        log: EventLog,
        metrics: Metrics,
    ) -> None:
        self.app = app
        self._settings = settings
        self._codec = codec
        self._log = log
        self._metrics = metrics
        self._endpoints: set[str] = set()
        self._source: Source | None = None
        self.channel: Any = app.channel(maxsize=MAX_WAITING)
        self.failed = False

    def announce(self, number: int) -> Awaitable[Any]:
        """Send a batch's number through the channel."""
        sent: Awaitable[Any] = self.channel.send(value=number)
        return sent

    def connect(self, source: Source, watchdog: Watchdog) -> None:
        """Register the services and agents."""
        self._source = source
        wiring, log = self, self._log

        class BatchSource(Service):
            """Runs the source as long as the app runs."""

            @Service.task
            async def _run(self) -> None:
                try:
                    await source.run(lambda: bool(self.should_stop))
                except asyncio.CancelledError:
                    raise
                except Exception as error:  # noqa: BLE001 - ends the process, with its trace
                    await wiring.fail(error)

            async def on_start(self) -> None:
                watchdog.start()

            async def on_stop(self) -> None:
                watchdog.stop()
                await source.stopped()

        class Reporter(Service):
            """Logs the counters."""

            @Service.timer(METRICS_EVERY_S)
            async def _report(self) -> None:
                log.info("worker.metrics", **wiring.report())

        self.app.service(BatchSource)
        self.app.service(Reporter)
        self.app.agent(self.channel, name="rounds")(self._rounds)
        endpoint_topic = self.app.topic(
            self._settings.topic(topics.ENDPOINT.name),
            key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw",
            allow_empty=True,
        )  # fmt: skip
        self.app.agent(endpoint_topic, name="endpoints")(self._registrations)

    def report(self) -> dict[str, int]:
        """Return what the metrics event says."""
        return {**self._metrics.totals(), "endpoints": len(self._endpoints)}

    async def fail(self, error: BaseException) -> None:
        """End the process with a non-zero code: the error is ours, a retry would repeat it."""
        self.failed = True
        logging.getLogger("skeletonhunter.worker").error("worker.failed", exc_info=error)
        asyncio.get_running_loop().call_later(SHUTDOWN_S, os._exit, FAILED_EXIT_CODE)
        await self.app.crash(error)

    async def _rounds(self, stream: Any) -> None:
        """Take batches; an exception must not reach Faust, which would go on without them."""
        if self._source is None:
            raise RuntimeError("not connected")
        async for number in stream:
            try:
                await self._source.work(number)
            except Exception as error:  # noqa: BLE001 - ends the process, with its trace
                await self.fail(error)

    async def _registrations(self, stream: Any) -> None:
        """Count who registers and leaves."""
        async for event in stream.events():
            endpoint_id = (event.key or b"").decode(errors="replace")
            if event.value is None:
                self._endpoints.discard(endpoint_id)
                self._metrics.add("endpoints_left")
                self._log.info("endpoint.left", endpoint_id=endpoint_id)
                continue
            try:
                self._codec.decode_datum(topics.ENDPOINT, event.value)
            except DecodeError as error:
                # Its dead letter is written by those who act upon endpoints.
                self._log.warning("endpoint.undecodable", reason=str(error))
                continue
            self._endpoints.add(endpoint_id)
            self._metrics.add("endpoints_registered")


def forget_group(admin: AdminClient, group: str) -> None:
    """Remove the quiet group from the broker; only tidiness, so errors do not matter."""
    for future in admin.delete_consumer_groups([group], request_timeout=5).values():
        if future.exception() is not None:
            return
