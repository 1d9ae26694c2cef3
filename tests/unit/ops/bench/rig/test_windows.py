"""Published windows against rounds: what counts as lost, as counted twice, and as wrong."""

from typing import Any

import pytest

from ops.bench.rig.windows import Truth
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
            "results": [
                {
                    "src": "s", "dst": "d", "flow": 0, "sent_offset_ns": 1, "status": "OK",
                    "rtt_ns": second,
                }
            ],
        }
        for second in range(seconds)
    ]  # fmt: skip


def window(number: int, sent: int = PER_WINDOW, agent: str = "a") -> dict[str, Any]:
    """Return what a worker publishes of a window."""
    return {
        "agent_id": agent, "src": "s", "dst": "d", "flow": 0,
        "window_start_at": number * WINDOW_NS // 1000, "sent": sent, "ok": sent,
        "min_ns": number * PER_WINDOW, "max_ns": number * PER_WINDOW + PER_WINDOW - 1,
    }  # fmt: skip


@pytest.fixture
def truth() -> Truth:
    """Give rounds of 21 seconds: windows 0 to 2 are due, 3 is not."""
    made = Truth(WINDOW_NS, LATENESS_NS)
    for datum in rounds(21):
        made.observe_round(datum)
    return made


def found(truth: Truth) -> tuple[int, int, int, int]:
    """Return a verdict's numbers."""
    verdict = truth.verdict()
    return verdict.windows, verdict.published, verdict.lost, verdict.double


def test_all_there_once_is_well(truth: Truth) -> None:
    """Windows that are not due may be there or not."""
    for number in range(3):
        truth.observe_window(window(number))
    assert found(truth) == (3, 15, 0, 0)
    truth.observe_window(window(3))
    assert found(truth) == (3, 15, 0, 0)


def test_a_missing_window_and_a_missing_result_are_lost(truth: Truth) -> None:
    """All results of the one, one of the other."""
    truth.observe_window(window(0))
    truth.observe_window(window(1, sent=PER_WINDOW - 1))
    assert found(truth) == (3, 15, PER_WINDOW + 1, 0)


def test_a_window_twice_and_a_result_too_many_are_double(truth: Truth) -> None:
    """Also of a window that nobody published."""
    for number in (0, 1, 2, 2):
        truth.observe_window(window(number, sent=PER_WINDOW + (number == 0)))
    assert found(truth) == (3, 15, 0, PER_WINDOW + 1)
    truth.observe_window(window(0, agent="nobody"))
    assert found(truth) == (3, 15, 0, 2 * PER_WINDOW + 1)


def bad_windows(truth: Truth) -> tuple[int, int, int]:
    """Return a verdict's numbers of windows that are not as they must be."""
    verdict = truth.verdict()
    return verdict.missing_windows, verdict.doubled_windows, verdict.wrong_windows


def test_windows_are_missing_doubled_or_wrong(truth: Truth) -> None:
    """Each is counted once, whatever is wrong with it."""
    assert bad_windows(truth) == (3, 0, 0)
    truth.observe_window(window(0))
    truth.observe_window(window(0))
    assert bad_windows(truth) == (2, 1, 0)
    truth.observe_window(window(1) | {"max_ns": 1})
    assert bad_windows(truth) == (1, 1, 1)
    truth.observe_window(window(2) | {"ok": PER_WINDOW - 1})
    truth.observe_window(window(1, agent="nobody"))
    assert bad_windows(truth) == (0, 1, 3)


def test_a_window_is_due_by_its_own_agent(truth: Truth) -> None:
    """An agent that is behind owes nothing yet, however far the others are."""
    for datum in rounds(11, agent="b"):
        truth.observe_round(datum)
    assert found(truth)[0] == 4
    for datum in rounds(8, agent="c"):
        truth.observe_round(datum)
    assert found(truth)[0] == 4


def test_a_round_that_comes_twice_counts_once(truth: Truth) -> None:
    """Agents send again what was not acknowledged."""
    for datum in rounds(21):
        truth.observe_round(datum)
    for number in range(3):
        truth.observe_window(window(number))
    assert truth.duplicates == 21
    assert found(truth) == (3, 15, 0, 0)
