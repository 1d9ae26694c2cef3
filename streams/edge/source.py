"""The batch source: librdkafka consumes rounds, a Faust channel announces them, with back-pressure.

Faust's own consumer takes some 10,000 messages a second, this way some hundred thousand. Batches
wait in an outbox, which is emptied when partitions are given up; only their numbers travel through
the channel. The Faust agent then takes each batch by its number.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

from schemas.kafka.errors import BrokerError
from schemas.process.eventlog import EventLog
from streams.core.metrics import Metrics
from streams.edge.consumer import RoundConsumer
from streams.edge.engine import Batch, Engine
from streams.edge.errors import SessionLostError
from streams.edge.publisher import Publisher

# Batches on their way to the agent; beyond, no more are taken from the client.
MAX_WAITING: Final = 8
# And when it stays so for this long, partitions are paused, so that polling can go on. Not at
# once: the client throws away what it holds ready of a paused partition, and would fetch the
# same again a moment later.
PAUSE_AFTER_S: Final = 1.0
TICK_S: Final = 0.25
# A batch that nobody took is announced again after this long.
ANNOUNCE_AGAIN_S: Final = 1.0
RETRY_S: Final = 1.0

Announce = Callable[[int], Awaitable[Any]]
Connect = Callable[[], tuple[RoundConsumer, Publisher]]


class Outbox:
    """Batches between the source and the agent, in order."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, batch: Batch) -> None:
        """Add a batch."""
        self._batches.append(batch)

    def take(self, number: int) -> Batch | None:
        """Return and remove the next batch up to that number."""
        if self._batches and self._batches[0].number <= number:
            return self._batches.popleft()
        return None

    def last(self) -> int | None:
        """Return the number of the last batch waiting."""
        return self._batches[-1].number if self._batches else None

    def clear(self) -> None:
        """Drop all: their partitions were given up."""
        self._batches.clear()


class Source:
    """Runs the consumer in a thread of its own; independent of Faust."""

    def __init__(
        self,
        connect: Connect,
        engine: Engine,
        announce: Announce,
        log: EventLog,
        metrics: Metrics,
        *,
        start_s: float = 300.0,
    ) -> None:
        self._start_s = start_s
        self._connect = connect
        self._engine = engine
        self._announce = announce
        self._log = log
        self._metrics = metrics
        self.outbox = Outbox()
        self._consumer: RoundConsumer | None = None
        # The only thread that touches the consumer, see `streams.edge.consumer`.
        self._consuming = ThreadPoolExecutor(1, thread_name_prefix="consume")
        self._working = ThreadPoolExecutor(1, thread_name_prefix="detect")
        self._broken: Exception | None = None
        self._works = False
        self._room = asyncio.Event()
        self._announcing: asyncio.Future[Any] | None = None
        self._ready = False
        self._done = asyncio.Event()

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Take batches until stopped; on trouble take the partitions anew.

        Raises
        ------
        BrokerError
            If the group does not answer, or Kafka refuses something: to go on is of no use.
        """
        try:
            await self._run(stopping)
        finally:
            self._done.set()

    async def stopped(self) -> None:
        """End what takes long; wait until `run` has given all partitions back."""
        self._engine.stop()
        await self._done.wait()

    async def _run(self, stopping: Callable[[], bool]) -> None:
        while not stopping():
            try:
                await self._in_thread(self._open)
                await self._take(stopping)
            except SessionLostError as error:
                if stopping():
                    break
                self._metrics.add("sessions_lost")
                self._log.warning("session.lost", reason=str(error))
                await self._in_thread(self._close)
                await asyncio.sleep(RETRY_S)
        await self._in_thread(partial(self._close, ending=True))

    async def work(self, number: int) -> None:
        """Process the batches up to that number; the agent calls it for each announcement.

        Raises
        ------
        Exception
            On a programming error: nothing of the batch is committed.
        """
        while (batch := self.outbox.take(number)) is not None:
            self._room.set()
            self._works = True
            try:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._working, self._engine.process, batch)
            except SessionLostError as error:
                self._broken = error
            finally:
                self._works = False

    def waits_for(self) -> str | None:
        """Return why the worker is not ready; None: it holds its partitions, rebuilt. Any thread.

        One that the group gave no partitions, because others have them all, is ready.
        """
        consumer = self._consumer
        if consumer is None:
            return "connecting to Kafka"
        if not consumer.joined:
            return "the group has given no partitions yet"
        if consumer.rebuilding:
            return f"rebuilding {consumer.rebuilding} partitions"
        return None

    def shut_down(self) -> None:
        """End the threads."""
        self._consuming.shutdown()
        self._working.shutdown()

    def _open(self) -> None:
        self._broken = None
        self.outbox.clear()
        self._consumer, publisher = self._connect()
        self._engine.open(publisher, self._consumer.commit)

    def _close(self, *, ending: bool = False) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            if self._broken is not None:
                # Outputs in doubt must not be followed by a commit.
                self._engine.close()
            (consumer.end if ending else consumer.close)()
        self._engine.close()
        self.outbox.clear()

    async def _take(self, stopping: Callable[[], bool]) -> None:
        consumer = self._consumer
        if consumer is None:
            raise SessionLostError("no consumer")
        announced_at = ticked_at = 0.0
        opened_at = time.monotonic()
        while not stopping():
            batch = await self._in_thread(consumer.poll)
            if self._broken is not None:
                raise self._broken
            now = time.monotonic()
            if batch is not None:
                self.outbox.put(batch)
            waiting = self.outbox.last()
            if waiting is not None and (batch or now - announced_at > ANNOUNCE_AGAIN_S):
                announced_at = now
                self._announce_soon(waiting)
            consumer.hold(await self._stays_full(paused=consumer.paused))
            if consumer.joined and not self._ready:
                self._ready = True
                self._log.info("worker.ready", partitions=list(self._engine.partitions()))
            if not consumer.joined and now - opened_at > self._start_s:
                raise BrokerError(consumer.why_not_joined(self._start_s))
            # Not behind a batch, which may wait for windows: polling goes on, or nobody hears
            # that partitions were lost.
            if not self.outbox and not self._works and now - ticked_at >= TICK_S:
                ticked_at = now
                ends = await self._in_thread(consumer.log_ends)
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._working, self._engine.tick, ends)

    async def _stays_full(self, *, paused: bool) -> bool:
        """Return whether the outbox is full, after having given the agent time to take a batch."""
        if len(self.outbox) < MAX_WAITING:
            return False
        self._room.clear()
        if not paused:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), PAUSE_AFTER_S)
        return len(self.outbox) >= MAX_WAITING

    def _announce_soon(self, number: int) -> None:
        """Announce without waiting: the channel is full while the agent works on a batch."""
        if self._announcing is None or self._announcing.done():
            self._announcing = asyncio.ensure_future(self._announce(number))

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._consuming, call)
