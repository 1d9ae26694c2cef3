"""Delivery: in order, again until it is taken, and how far is remembered."""

import threading
import time
from collections.abc import Callable

import pytest

import ops.bridge.delivery as delivery_module
from ops.bridge.delivery import StateDelivery, StreamDelivery
from ops.bridge.http import Answer, Outcome
from ops.bridge.paging.page import Notification, Page, Position
from schemas.process.eventlog import EventLog
from tests.unit.ops.bridge.made import transition

LOG = EventLog("test")
DONE, FAILED = Answer(Outcome.DELIVERED), Answer(Outcome.FAILED, "no")


def until(found: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 20
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def notification(number: int) -> Notification:
    """Return a notification."""
    return Notification(position=Position(number, 1), transition=transition("a", number))


def test_in_order_again_until_taken_then_committed() -> None:
    """A failure holds up what comes after it; what is refused is passed over."""
    taken: list[int] = []
    failures = {2: 2}
    committed: list[Position] = []

    def take_position(position: Position) -> None:
        committed.append(position)

    def post(n: Notification) -> Answer | None:
        number = n.position.at_us
        if failures.get(number, 0) > 0:
            failures[number] -= 1
            return FAILED
        if number == 3:
            return Answer(Outcome.REFUSED, "malformed")
        taken.append(number)
        return None if number == 4 else DONE

    delivery = StreamDelivery("t", LOG, post, take_position)
    delivery.put([notification(n) for n in range(1, 6)])
    assert delivery.pending == 5
    assert delivery.oldest_us == 1
    delivery.start()
    until(lambda: delivery.pending == 0)
    delivery.stop()
    assert taken == [1, 2, 4, 5]
    assert committed[-1] == Position(5, 1)
    assert delivery.outcomes == {"delivered": 3, "failed": 2, "refused": 1}


def test_a_commit_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker may be away for longer than a target."""
    monkeypatch.setattr(delivery_module, "COMMIT_AGAIN_S", 0.1)
    answers = ["away", "away", None]
    delivery = StreamDelivery("t", LOG, lambda _: DONE, lambda _: answers.pop(0))
    delivery.put([notification(1)])
    delivery.start()
    until(lambda: not answers)
    delivery.stop()
    assert answers == []


def test_it_ends_while_a_target_is_dead() -> None:
    """And commits nothing of what was not taken."""
    committed: list[Position] = []

    def take_position(position: Position) -> None:
        committed.append(position)

    tried = threading.Event()

    def post(_: Notification) -> Answer:
        tried.set()
        return FAILED

    delivery = StreamDelivery("t", LOG, post, take_position)
    delivery.put([notification(1)])
    delivery.start()
    assert tried.wait(20)
    delivery.stop()
    assert (committed, delivery.pending) == ([], 1)


def test_all_pages_are_told_at_once_and_again_and_again() -> None:
    """After a failure with what is true by then."""
    page = Page(page_id="a", labels={}, faults=(transition("a", 1),), since_us=1)
    told: list[list[str]] = []
    answers = [FAILED]

    def post(pages: list[Page]) -> Answer:
        told.append([p.page_id for p in pages])
        return answers.pop() if answers else DONE

    delivery = StateDelivery[list[Page]]("t", LOG, post, resend_s=0.2)
    delivery.start()
    delivery.put([page], 5, changed=True)
    until(lambda: len(told) >= 4)
    assert delivery.pending == 0
    delivery.stop()
    assert told[:4] == [["a"]] * 4
    assert delivery.outcomes["failed"] == 1
