"""Windows that are read beside the work: they come whole, or whoever waits for them hears why."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Message

from schemas import topics
from schemas.codec import Codec
from schemas.process.eventlog import EventLog
from streams.config import DetectionConfig
from streams.core.machine import PartitionMachine
from streams.core.published import PublishedReader, WindowColumns, columns_of
from streams.detectors.lognormal import TrendDetector
from streams.edge import earlier
from streams.edge.earlier import Background, Beat, EarlierWindows
from streams.edge.errors import SessionLostError
from tests.unit.streams.columns.rounds_read import raw_message
from tests.unit.streams.worlds import IDENTITY, World, machine, run, windows_of

CODEC = Codec()
WINDOWS = windows_of(run(machine(), list(World().rounds(200))))


def messages() -> list[Message]:
    """Return what stands in the topic."""
    return [
        raw_message(CODEC.encode(topics.PROBE_WINDOW, window), offset)
        for offset, window in enumerate(WINDOWS)
    ]


def make(read: earlier.Read, beat: Beat = earlier.nothing) -> tuple[EarlierWindows, "Took"]:
    """Return windows that are read so, and the machine that takes them."""
    took = Took()
    reader = PublishedReader(CODEC, IDENTITY.cluster, print, lambda key: key)
    return EarlierWindows(took, reader, read, 0, beat=beat, log=EventLog("test")), took


class Took(PartitionMachine):
    """A machine that counts the windows it is given."""

    def __init__(self) -> None:
        super().__init__(DetectionConfig(), IDENTITY)
        self.keys: list[int] = []

    def add_earlier(self, part: WindowColumns) -> None:
        """Count."""
        self.keys += part.numbers.tolist()
        super().add_earlier(part)


def test_windows_are_read_once_although_the_broker_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It goes on behind the last message that it had."""
    monkeypatch.setattr(earlier, "RETRY_S", 0.01)
    starts: list[int] = []

    def read(start: int, _check: Callable[[], None]) -> Iterator[list[Message]]:
        starts.append(start)
        yield messages()[start : start + 7]
        if len(starts) == 1:
            raise SessionLostError("away")
        yield messages()[start + 7 :]

    windows, took = make(read)
    Background().start(windows)
    windows.wait()
    assert starts == [0, 7]
    assert len(took.keys) == len(WINDOWS)
    assert windows.ready()


def test_who_waits_is_asked_again_and_again_and_hears_of_the_end() -> None:
    """While it waits the worker is alive, and may be told to stop."""
    going, asked = threading.Event(), 0

    def beat() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise SessionLostError("the worker is to stop")

    def read(_start: int, check: Callable[[], None]) -> Iterator[list[Message]]:
        while not going.is_set():
            check()
            time.sleep(0.01)
        yield messages()

    windows, took = make(read, beat)
    background = Background()
    background.start(windows)
    with pytest.raises(SessionLostError, match="to stop"):
        windows.wait()
    background.shut_down()
    assert took.keys == []
    with pytest.raises(SessionLostError, match="given up"):
        windows.ready()


def test_what_goes_wrong_is_heard_where_the_windows_are_wanted() -> None:
    """A fault of the program does not end in a thread that nobody looks at."""

    def read(_start: int, _check: Callable[[], None]) -> Iterator[list[Message]]:
        yield messages()
        raise ZeroDivisionError

    windows, _ = make(read)
    windows.run()
    with pytest.raises(ZeroDivisionError):
        windows.wait()


def test_who_waits_hears_that_the_broker_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic may be gone for good; who waits holds up everything, and nobody watches it."""
    monkeypatch.setattr(earlier, "RETRY_S", 0.01)
    monkeypatch.setattr(earlier, "PATIENCE_S", 0.1)

    def read(start: int, _check: Callable[[], None]) -> Iterator[list[Message]]:
        if start == 0:
            yield messages()[:7]
        raise SessionLostError("no such topic")

    windows, _ = make(read)
    background = Background()
    background.start(windows)
    try:
        with pytest.raises(SessionLostError, match="no such topic"):
            windows.wait()
    finally:
        background.shut_down()


def test_without_the_long_term_test_nothing_is_kept_for_it() -> None:
    """It is off: nobody would ever forget the rows."""
    off = machine(DetectionConfig(trend_ns=0))
    off.add_earlier(columns_of(WINDOWS[:1]))
    (trend,) = [d for d in off.detection.detectors if isinstance(d, TrendDetector)]
    assert len(trend) == 0
