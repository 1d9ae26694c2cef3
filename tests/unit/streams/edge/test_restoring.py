"""Several partitions rebuilt two at a time: all of them, or none."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from confluent_kafka import TopicPartition

from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from streams.config import DetectionConfig
from streams.edge.errors import SessionLostError
from streams.edge.lookback import LogReader
from streams.edge.restoring import restore_all
from streams.edge.session import Restorer, Session

# Nobody listens there; nothing is asked.
NOWHERE = KafkaSettings(bootstrap="127.0.0.1:1")


@dataclass(slots=True)
class Rebuilt:
    """As much of a session as counts here."""

    partition: int
    committed: tuple[int, str | None]
    given_up: bool = False
    reading: bool = False

    def give_up(self) -> None:
        """Note that it was given up."""
        self.given_up = True


@dataclass(frozen=True, slots=True)
class Rebuilding(Restorer):
    """A restorer whose sessions are made by the test."""

    make: Callable[[LogReader, int], None] = lambda _reader, _partition: None
    made: list[Rebuilt] = field(default_factory=list)
    read: Callable[[Session], None] = lambda _session: None

    def restore(
        self, reader: LogReader, partition: int, epoch: int, committed: tuple[int, str | None]
    ) -> Session:
        """Return what stands for a session."""
        assert epoch == 3
        self.make(reader, partition)
        rebuilt = Rebuilt(partition, committed)
        self.made.append(rebuilt)
        return cast(Session, rebuilt)

    def read_earlier(self, session: Session) -> None:
        """Note that what can come later may come."""
        self.read(session)
        cast(Rebuilt, session).reading = True


def rebuilding(make: Callable[[LogReader, int], None]) -> Rebuilding:
    """Return a restorer that does this for each partition."""
    return Rebuilding(NOWHERE, DetectionConfig(), Codec(), EventLog("test"), make=make)


def places(count: int) -> list[TopicPartition]:
    """Return the partitions' committed offsets."""
    return [TopicPartition("t", n, -1001 if n else 70, metadata=f"m{n}") for n in range(count)]


def beat() -> None:
    """Go on."""


def test_two_are_rebuilt_at_a_time_and_come_in_order() -> None:
    """The first waits for the second: one after the other would stand still."""
    both = threading.Barrier(2)

    def make(_reader: LogReader, partition: int) -> None:
        both.wait(timeout=20)
        time.sleep(0.05 * (partition == 0))

    found = restore_all(rebuilding(make), places(4), 3, beat)
    assert [s.partition for s in found] == [0, 1, 2, 3]
    assert [cast(Rebuilt, s).committed for s in found] == [
        (70, "m0"), (-1001, "m1"), (-1001, "m2"), (-1001, "m3"),
    ]  # fmt: skip


def test_when_one_cannot_be_none_is() -> None:
    """The error is the one that says why; what was rebuilt is given up, the rest not begun."""
    done = threading.Event()

    def make(reader: LogReader, partition: int) -> None:
        if partition == 0:
            done.set()
        elif partition == 1:
            assert done.wait(20)
            raise SessionLostError("no answer")
        else:
            while True:
                reader.beat()
                time.sleep(0.01)

    restorer = rebuilding(make)
    with pytest.raises(SessionLostError, match="no answer"):
        restore_all(restorer, places(5), 3, beat)
    assert [(s.partition, s.given_up) for s in restorer.made] == [(0, True)]


def test_what_can_come_later_does_not_hold_up_what_is_rebuilt() -> None:
    """The windows of the long-term test are read when all partitions are rebuilt."""
    restorer = rebuilding(lambda _reader, _partition: None)

    def read(_session: Session) -> None:
        assert len(restorer.made) == 3

    found = restore_all(replace(restorer, read=read), places(3), 3, beat)
    assert [cast(Rebuilt, s).reading for s in found] == [True] * 3


def test_when_a_decision_waits_in_vain_for_what_comes_later_all_are_given_up() -> None:
    """As when one could not be rebuilt."""
    restorer = rebuilding(lambda _reader, _partition: None)

    def read(session: Session) -> None:
        if session.partition == 1:
            raise SessionLostError("no answer")

    with pytest.raises(SessionLostError, match="no answer"):
        restore_all(replace(restorer, read=read), places(3), 3, beat)
    assert [s.given_up for s in restorer.made] == [True] * 3


def test_an_unexpected_error_is_raised_as_it_is() -> None:
    """A bug is no lost session."""

    def make(_reader: LogReader, partition: int) -> None:
        if partition:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        restore_all(rebuilding(make), places(2), 3, beat)


def test_a_worker_that_is_to_stop_begins_none() -> None:
    """What the beat raises ends it."""

    def stop() -> None:
        raise SessionLostError("the worker is to stop")

    restorer = rebuilding(lambda _reader, _partition: None)
    with pytest.raises(SessionLostError, match="is to stop"):
        restore_all(restorer, places(3), 3, stop)
    assert restorer.made == []
