"""When the bench takes a lab for calm, on records that the test hands it, and on its time."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ops.lab.fault_kinds import LOOPBACK_LAB
from ops.lab.kind import lab_kind
from ops.lab.suite import faults
from ops.lab.suite.faults import FaultBench
from ops.log.watch import WatchedRecord
from tests.unit.ops.demo.test_scoreboard import probe_round

CALM_S = 0.4


class Feed:
    """Stands for the topics, and for the clock: hands on what a test has put in."""

    def __init__(self) -> None:
        self.waiting: list[WatchedRecord] = []
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        """Return the time: a busy machine's own would be late."""
        return self.now_s

    def poll(self, timeout_s: float) -> Iterator[WatchedRecord]:
        """Yield what is there, after a moment."""
        self.now_s += min(timeout_s, 0.01)
        found, self.waiting = self.waiting, []
        yield from found


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Return a feed, and let calm be short."""
    monkeypatch.setattr(faults, "CALM_S", CALM_S)
    monkeypatch.setattr(faults, "CALM_TIMEOUT_S", 3.0)
    made = Feed()
    monkeypatch.setattr(faults, "time", made)
    return made


def bench(feed: Feed) -> FaultBench:
    """Return a bench that reads from the feed; of its lab only the kind is asked."""
    lab = SimpleNamespace(kind=lab_kind(LOOPBACK_LAB))
    return FaultBench(cast(Any, lab), cast(Any, feed), lambda: None)


def test_calm_is_counted_from_the_last_lost_probe(feed: Feed) -> None:
    """Time in which it was looked already counts; what is lost begins it anew."""
    mine = bench(feed)
    feed.waiting.append(probe_round(1.0, ok=3, lost=1))
    mine._until(lambda: False, 0.05)
    feed.waiting.append(probe_round(9.0, ok=4, lost=0))
    mine._until(lambda: False, CALM_S)
    began = feed.now_s
    mine.wait_calm()
    assert feed.now_s - began < CALM_S / 2
    feed.waiting.append(probe_round(9.5, ok=3, lost=1))
    mine._until(lambda: False, 0.02)
    feed.waiting.append(probe_round(19.0, ok=4, lost=0))
    began = feed.now_s
    mine.wait_calm()
    assert feed.now_s - began > CALM_S / 2


def test_a_time_in_which_nobody_looked_is_no_calm(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happened meanwhile stands in the topics unread."""
    monkeypatch.setattr(faults, "LOOK_S", 0.1)
    mine = bench(feed)
    feed.waiting.append(probe_round(1.0, ok=4, lost=0))
    mine.wait_calm()
    feed.now_s += 0.2
    began = feed.now_s
    mine.wait_calm()
    assert feed.now_s - began == pytest.approx(CALM_S, abs=0.02)


def test_a_lab_that_never_answers_is_not_calm(feed: Feed) -> None:
    """The error says what is wrong."""
    with pytest.raises(TimeoutError, match="not calm"):
        bench(feed).wait_calm()
