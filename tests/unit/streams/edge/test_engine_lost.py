"""A partition that is another's already is not worked on any more."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import Message

from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from streams.core.metrics import Metrics
from streams.core.published import PublishedReader
from streams.edge.earlier import EarlierWindows, nothing
from streams.edge.engine import Engine
from streams.edge.errors import SessionLostError
from streams.edge.publisher import Receipt
from streams.edge.session import Session
from tests.unit.streams.worlds import BEGIN, IDENTITY, machine

# Longer than anything here takes.
LONG_S = 20


def test_a_machine_that_waits_for_windows_ends_when_its_partition_is_lost() -> None:
    """The batch that it is in the middle of would be published beside the new owner's."""
    codec, over, waits = Codec(), threading.Event(), threading.Event()
    held = machine()

    def read(_start: int, _check: Callable[[], None]) -> Iterator[list[Message]]:
        waits.set()
        over.wait(LONG_S)
        yield from ()

    earlier = EarlierWindows(
        held, PublishedReader(codec, IDENTITY.cluster, print, lambda key: key), read, 0,
        beat=nothing, log=EventLog("worker"),
    )  # fmt: skip
    reading = threading.Thread(target=earlier.run)
    reading.start()

    def process_batch(_messages: list[Message]) -> list[Any]:
        # As one whose round ends a block.
        earlier.wait()
        return []

    feed = SimpleNamespace(process=process_batch)
    session = Session(
        partition=0, epoch=1, machine=held, feed=cast(Any, feed), settled=BEGIN,
        earlier=earlier, committed=0,
    )  # fmt: skip
    settings = KafkaSettings(bootstrap="127.0.0.1:1")
    engine = Engine(settings, codec, EventLog("worker"), Metrics(), commit_s=0)
    publisher = SimpleNamespace(receipt=Receipt, wait=lambda _: None, abandon=lambda: None)
    engine.open(cast(Any, publisher), lambda _offsets, _wait: None)
    engine.take_over([session])
    heard: list[Exception] = []

    def work() -> None:
        batch = SimpleNamespace(epochs={0: 1}, starts={0: 0}, messages={0: []})
        try:
            engine.process(cast(Any, batch))
        except Exception as error:  # noqa: BLE001 - looked at below
            heard.append(error)

    working = threading.Thread(target=work)
    working.start()
    assert waits.wait(LONG_S)
    losing = threading.Thread(target=engine.release, args=([0],), kwargs={"commit": False})
    losing.start()
    losing.join(LONG_S / 4)
    stuck = losing.is_alive()
    over.set()
    for thread in (losing, working, reading):
        thread.join()
    assert not stuck
    assert [type(error) for error in heard] == [SessionLostError]
