"""Parts of the adapters that need no broker."""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from schemas.process.eventlog import EventLog
from streams.columns.rounds import OK_CODE
from streams.core.metrics import NAMES, Metrics, Tally
from streams.edge.engine import Batch
from streams.edge.source import MAX_WAITING, TICK_S, Outbox, Source


def batch(number: int) -> Batch:
    """Return an empty batch."""
    return Batch(number, {}, {}, {})


def test_announcements_that_were_lost_lose_no_batch() -> None:
    """One announcement stands for all batches up to its number, in order; repeats are harmless."""
    outbox = Outbox()
    for number in (1, 2, 3):
        outbox.put(batch(number))
    assert outbox.last() == 3
    taken = []
    while (found := outbox.take(2)) is not None:
        taken.append(found.number)
    assert taken == [1, 2]
    assert outbox.take(2) is None
    assert len(outbox) == 1
    outbox.clear()
    assert outbox.last() is None


def test_metrics_take_and_empty_a_partitions_counts() -> None:
    """Counts move over once; a name that no metric has is a programming error."""
    metrics, tally = Metrics(), Tally(Counter({"late": 2}))
    tally.outcomes.statuses[OK_CODE] = 3
    metrics.move_from(tally)
    metrics.move_from(tally)
    assert metrics.totals()["late"] == 2
    assert metrics.total.outcomes.statuses.sum() == 3
    assert set(metrics.totals()) == {*NAMES, "anomalies"}
    with pytest.raises(KeyError):
        metrics.move_from(Tally(Counter({"nonsense": 1})))


def test_polling_goes_on_while_a_batch_waits() -> None:
    """For windows it may wait for minutes: lost partitions are heard of by polling alone."""
    going, working = threading.Event(), threading.Event()
    polls = 0

    def poll() -> Batch | None:
        nonlocal polls
        polls += 1
        return batch(1) if polls == 1 else None

    def process(_batch: Batch) -> None:
        working.set()
        going.wait(60)

    def nothing(*_: object) -> dict[int, int]:
        return {}

    consumer = SimpleNamespace(
        poll=poll, joined=True, paused=False, hold=nothing, log_ends=nothing, end=nothing,
        commit=nothing,
    )  # fmt: skip
    engine = SimpleNamespace(
        open=nothing, close=nothing, process=process, tick=nothing, partitions=nothing
    )

    async def announce(number: int) -> None:
        await source.work(number)

    source = Source(
        lambda: cast(Any, (consumer, None)), cast(Any, engine), announce,
        EventLog("worker"), Metrics(),
    )  # fmt: skip

    async def watch() -> int:
        running = asyncio.ensure_future(source.run(going.is_set))
        await asyncio.to_thread(working.wait, 30)
        await asyncio.sleep(2 * TICK_S)
        before, began = polls, time.monotonic()
        # On a busy machine it may take longer than a tick; less than the batch, anyhow.
        while polls - before <= 1 and time.monotonic() - began < 20:
            await asyncio.sleep(TICK_S)
        counted = polls - before
        going.set()
        await running
        return counted

    try:
        assert asyncio.run(watch()) > 1
    finally:
        source.shut_down()


@dataclass
class Ready:
    """A consumer that has a batch whenever it is asked, and notes when it is paused."""

    joined: bool = True
    paused: bool = False
    polls: int = 0
    pauses: int = 0

    def poll(self) -> Batch | None:
        """Return a batch, none while paused."""
        self.polls += 1
        return None if self.paused else batch(self.polls)

    def hold(self, paused: bool) -> None:
        """Note a pause."""
        self.pauses += paused and not self.paused
        self.paused = paused

    def log_ends(self) -> dict[int, int]:
        """Return nothing."""
        return {}

    def end(self) -> None:
        """Do nothing."""

    def commit(self, *_: object) -> None:
        """Do nothing."""


def test_a_busy_agent_pauses_nothing() -> None:
    """A paused partition is fetched anew; only an agent that takes nothing for long pauses it."""
    consumer, taken, slow = Ready(), 0, threading.Event()

    def process(_batch: Batch) -> None:
        nonlocal taken
        taken += 1
        slow.wait(60 if taken > 3 * MAX_WAITING else 0.005)

    def nothing(*_: object) -> dict[int, int]:
        return {}

    engine = SimpleNamespace(
        open=nothing, close=nothing, process=process, tick=nothing, partitions=nothing
    )

    numbers: asyncio.Queue[int] = asyncio.Queue(MAX_WAITING)

    async def agent() -> None:
        while True:
            await source.work(await numbers.get())

    source = Source(
        lambda: cast(Any, (consumer, None)), cast(Any, engine), numbers.put,
        EventLog("worker"), Metrics(),
    )  # fmt: skip

    async def watch() -> tuple[int, int]:
        running = asyncio.ensure_future(source.run(slow.is_set))
        working = asyncio.ensure_future(agent())
        while taken < 2 * MAX_WAITING:
            await asyncio.sleep(0.001)
        busy = consumer.pauses
        while not consumer.paused:
            await asyncio.sleep(0.01)
        before, began = consumer.polls, time.monotonic()
        while consumer.polls == before and time.monotonic() - began < 10:
            await asyncio.sleep(0.1)
        polled = consumer.polls - before
        slow.set()
        await running
        working.cancel()
        return busy, polled

    try:
        pauses, polled = asyncio.run(asyncio.wait_for(watch(), 60))
    finally:
        source.shut_down()
    assert pauses == 0
    assert polled > 0


def test_a_worker_is_ready_when_its_partitions_are_rebuilt() -> None:
    """Not before it has connected, not before the group answers, and not while it rebuilds."""
    consumer = SimpleNamespace(joined=False, rebuilding=0)
    engine = SimpleNamespace(open=lambda *_: None)
    source = Source(
        lambda: cast(Any, (consumer, None)), cast(Any, engine), cast(Any, None),
        EventLog("worker"), Metrics(),
    )  # fmt: skip
    assert source.waits_for() == "connecting to Kafka"
    consumer.commit = None
    source._open()
    assert source.waits_for() == "the group has given no partitions yet"
    consumer.joined, consumer.rebuilding = True, 3
    assert source.waits_for() == "rebuilding 3 partitions"
    consumer.rebuilding = 0
    assert source.waits_for() is None
    source.shut_down()
