"""The Faust app: runs the batch source and the watchdog, logs metrics, ends the process on errors.

In the worker only `streams.worker` imports Faust beside it, to run the app. The app has services,
a channel and an agent, and no consumer of its own: Faust's would be a second member of a second
group, would hold all processing whenever that group rebalances, and would need every security
setting a second time, in aiokafka's words.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable
from typing import Any, Final

import faust
from faust.app.base import BootStrategy
from mode import Service

from schemas.process.ending import ending
from schemas.process.errors import CannotRunError
from schemas.process.eventlog import EventLog
from streams.core.metrics import Metrics
from streams.edge.source import MAX_WAITING, Source
from streams.edge.watchdog import Watchdog

METRICS_EVERY_S: Final = 10.0
FAILED_EXIT_CODE: Final = 1
# A library that hangs in its shutdown must not keep a failed process alive.
SHUTDOWN_S: Final = 10.0


class _WithoutKafka(BootStrategy):
    """Starts services and agents, but neither consumer nor producer nor web server."""

    enable_kafka = False
    enable_web = False


class _StatelessApp(faust.App):
    """An app that keeps nothing on disk.

    Faust makes three folders for Tables in the current directory at each start; there are no
    Tables here.
    """

    BootStrategy = _WithoutKafka

    def _create_directories(self) -> None:
        """Make none."""


def make_app() -> faust.App:
    """Return the app without services and agents."""
    return _StatelessApp("skeletonhunter-worker", store="memory://", worker_redirect_stdouts=False)


class Wiring:
    """Joins source, engine and metrics to a Faust app."""

    def __init__(self, app: faust.App, log: EventLog, metrics: Metrics) -> None:
        self.app = app
        self._log = log
        self._metrics = metrics
        self._source: Source | None = None
        self.channel: Any = app.channel(maxsize=MAX_WAITING)
        self.failure: BaseException | None = None

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
                # Faust holds channels back until its consumer has partitions; there is none.
                wiring.app.flow_control.resume()
                watchdog.start()

            async def on_stop(self) -> None:
                watchdog.stop()
                with ending():
                    await source.stopped()

        class Reporter(Service):
            """Logs the counters."""

            @Service.timer(METRICS_EVERY_S)
            async def _report(self) -> None:
                log.info("worker.metrics", **wiring.report())

        self.app.service(BatchSource)
        self.app.service(Reporter)
        self.app.agent(self.channel, name="rounds")(self._rounds)

    def report(self) -> dict[str, int]:
        """Return what the metrics event says."""
        return self._metrics.totals()

    async def fail(self, error: BaseException) -> None:
        """End the process with a non-zero code: a retry would repeat the error.

        Of what is wrong around the process the reason is enough; the rest is ours.
        """
        self.failure = self.failure or error
        if isinstance(error, CannotRunError):
            self._log.error("worker.cannot_run", reason=str(error))
        else:
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
