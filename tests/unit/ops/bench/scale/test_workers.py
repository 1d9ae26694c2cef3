"""The workers' bench: what counts as lost, as counted twice, and as caught up."""

from typing import Any

import pytest

from ops.bench.scale.workers_life import PLAN, Truth, settled_after
from schemas.units import SECOND_NS

WINDOW_NS = 5 * SECOND_NS
LATENESS_NS = 2 * SECOND_NS
PER_WINDOW = 5


def rounds(seconds: int, agent: str = "a") -> list[dict[str, Any]]:
    """Return a round each second with one 5-tuple."""
    return [
        {
            "agent_id": agent, "incarnation": 1, "round_seq": second,
            "started_at": second * 10**6,
            "results": [{"src": "s", "dst": "d", "flow": 0, "sent_offset_ns": 1}],
        }
        for second in range(seconds)
    ]  # fmt: skip


def window(number: int, sent: int = PER_WINDOW, agent: str = "a") -> dict[str, Any]:
    """Return what a worker publishes of a window."""
    return {
        "agent_id": agent, "src": "s", "dst": "d", "flow": 0,
        "window_start_at": number * WINDOW_NS // 1000, "sent": sent,
    }  # fmt: skip


@pytest.fixture
def truth() -> Truth:
    """Give twenty seconds of rounds: windows 0 and 1 are due, 2 is (at 19 s), 3 is not."""
    made = Truth(WINDOW_NS, LATENESS_NS)
    for datum in rounds(20):
        made.round(datum, partition=0)
    return made


def found(truth: Truth) -> tuple[int, int, int, int]:
    """Return a verdict's numbers."""
    verdict = truth.verdict()
    return verdict.windows, verdict.published, verdict.lost, verdict.double


def test_all_there_once_is_well(truth: Truth) -> None:
    """Windows that are not due may be there or not."""
    for number in range(3):
        truth.window(window(number))
    assert found(truth) == (3, 15, 0, 0)
    truth.window(window(3))
    assert found(truth) == (3, 15, 0, 0)


def test_a_missing_window_and_a_missing_result_are_lost(truth: Truth) -> None:
    """All results of the one, one of the other."""
    truth.window(window(0))
    truth.window(window(1, sent=PER_WINDOW - 1))
    assert found(truth) == (3, 15, PER_WINDOW + 1, 0)


def test_a_window_twice_and_a_result_too_many_are_double(truth: Truth) -> None:
    """Also of a window that nobody published."""
    for number in (0, 1, 2, 2):
        truth.window(window(number, sent=PER_WINDOW + (number == 0)))
    assert found(truth) == (3, 15, 0, PER_WINDOW + 1)
    truth.window(window(0, agent="nobody"))
    assert found(truth) == (3, 15, 0, 2 * PER_WINDOW + 1)


def test_a_round_that_comes_twice_counts_once(truth: Truth) -> None:
    """Agents send again what was not acknowledged."""
    for datum in rounds(20):
        truth.round(datum, partition=0)
    for number in range(3):
        truth.window(window(number))
    assert truth.duplicates == 20
    assert found(truth) == (3, 15, 0, 0)


def test_caught_up_is_for_good() -> None:
    """A lag that rises again was not over; one that ends high has not caught up."""
    assert settled_after([(0.0, 1.0), (1.0, 1.5)], 2.0) == 0.0
    assert settled_after([(0.0, 1.0), (3.0, 4.0), (4.0, 1.0), (5.0, 2.0), (6.0, 0.0)], 2.0) == 6.0
    assert settled_after([(0.0, 1.0), (3.0, 4.0)], 2.0) is None
    assert settled_after([], 2.0) is None


def test_the_plan_has_workers_left() -> None:
    """Nobody is asked to leave or killed who is not there."""
    workers = 1
    for step in PLAN:
        workers += 1 if step == "join" else -1
        assert 1 <= workers <= 4
