"""A machine is let go with its partition: it is most of a worker's memory."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from weakref import ref

import pytest

from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from streams.core.feed import Feed
from streams.core.machine import PartitionMachine
from streams.core.metrics import Metrics
from streams.edge.engine import Engine
from streams.edge.errors import SessionLostError
from streams.edge.publisher import Receipt
from streams.edge.session import Session
from tests.unit.streams.worlds import BEGIN, IDENTITY, machine


class Held(PartitionMachine):
    """A machine that a test can see go."""


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """Leave the collector to the other tests as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def session_of(held: PartitionMachine) -> Session:
    """Return a session at the beginning of an empty partition."""
    return Session(
        partition=0, epoch=1, machine=held, feed=Feed(held, Codec()), settled=BEGIN,
        committed=0,
    )  # fmt: skip


def opened() -> Engine:
    """Return an engine without a broker."""
    settings = KafkaSettings(bootstrap="127.0.0.1:1")
    engine = Engine(settings, Codec(), EventLog("worker"), Metrics(), commit_s=0)
    engine.open(cast(Any, publisher()), lambda _offsets, _wait: None)
    return engine


def publisher() -> SimpleNamespace:
    """Return what takes nothing."""
    return SimpleNamespace(receipt=Receipt, wait=lambda _: None, abandon=lambda: None)


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_given_away_leaves_no_machine(commit: bool) -> None:
    """Each rebalance would leave one otherwise, some hundred bytes for each 5-tuple and slot."""
    engine = opened()
    held: PartitionMachine | None = Held(machine().config, IDENTITY)
    assert held is not None
    seen = ref(held)
    engine.take_over([session_of(held)])
    held = None
    engine.release([0], commit=commit)
    assert seen() is None


def test_a_lost_session_leaves_no_machine() -> None:
    """What is dropped where a batch fails goes before the next session is built beside it."""
    engine = opened()
    held: PartitionMachine | None = Held(machine().config, IDENTITY)
    assert held is not None
    seen = ref(held)
    engine.take_over([session_of(held)])
    held = None
    batch = SimpleNamespace(epochs={0: 1}, starts={0: 7}, messages={0: []})
    with pytest.raises(Exception, match="expected 0"):
        engine.process(cast(Any, batch))
    engine.close()
    engine.open(cast(Any, publisher()), lambda _offsets, _wait: None)
    assert seen() is None


def test_partitions_with_room_for_many_that_are_gone_are_rebuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that a flood made large is small again without a new process."""
    engine = opened()
    held = Held(machine().config, IDENTITY)
    engine.take_over([session_of(held)])
    engine.tick({})
    monkeypatch.setattr(Held, "roomy", property(lambda _: True))
    with pytest.raises(SessionLostError, match=r"partitions \[0\] are rebuilt"):
        engine.tick({})
