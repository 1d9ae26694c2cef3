"""Verdicts against faults that were put in: what is missed, doubled and false."""

import pytest

from ops.bench.resilience.verdicts import Absence, Injected, Published, Score, score
from schemas.enums import FaultLifecycle, Layer
from schemas.records import FaultEvent
from schemas.units import SECOND_NS

LINK = "link:leaf:p0-0--spine:1"
OTHER = "link:leaf:p0-0--spine:0"
OPEN, UPDATED, RESOLVED = FaultLifecycle.OPEN, FaultLifecycle.UPDATED, FaultLifecycle.RESOLVED
CUT = Injected(component_ids=(LINK,), begin_ns=100 * SECOND_NS, end_ns=120 * SECOND_NS)


def transition(
    seq: int,
    state: FaultLifecycle,
    at_s: float,
    component: str = LINK,
    *,
    fault_id: str = "f",
    onset_s: float = 100.5,
    decided: bool = True,
    kind: str = "connectivity",
) -> Published:
    """Return a transition that was published when it happened."""
    event = FaultEvent(
        cluster="lab", fault_id=fault_id, seq=seq, state=state, event_at=round(at_s * 1e6),
        onset_at=round(onset_s * 1e6), opened_at=round(onset_s * 1e6), layer=Layer.UNDERLAY,
        component_kind="LINK", component_id=component, decided=decided, fault_kind=kind,
        severity="error", confidence=1.0, summary="", bad_paths=3, good_paths=0,
        unexplained_paths=0, flaps=0, tasks=(), candidates=(), evidence=(),
    )  # fmt: skip
    return Published(event=event, at_ns=round(at_s * SECOND_NS))


def counts(found: Score) -> tuple[int, int, int]:
    """Return how much was missed, doubled, false."""
    return len(found.missed), len(found.doubled), len(found.false)


def test_one_verdict_for_one_fault_is_right() -> None:
    """It may begin undecided on another component, if it says so."""
    found = score(
        [CUT],
        [
            transition(1, OPEN, 103, OTHER, decided=False),
            transition(2, UPDATED, 104),
            transition(3, RESOLVED, 125),
        ],
    )
    assert counts(found) == (0, 0, 0)
    assert (found.open_s, found.resolve_s) == ((3.0,), (5.0,))


def test_no_verdict_and_one_without_end_are_missed() -> None:
    """Neither tells an operator what is so."""
    assert counts(score([CUT], [])) == (1, 0, 0)
    assert counts(score([CUT], [transition(1, OPEN, 103)])) == (1, 0, 0)


@pytest.mark.parametrize("fault_id", ["f", "g"])
def test_two_verdicts_of_one_fault_are_doubled(fault_id: str) -> None:
    """Under one id or under two."""
    found = score(
        [CUT],
        [
            transition(1, OPEN, 103),
            transition(2, RESOLVED, 108),
            transition(3, OPEN, 110, fault_id=fault_id),
            transition(4, RESOLVED, 125, fault_id=fault_id),
        ],
    )
    assert counts(found) == (0, 1, 0)


def test_a_fault_that_comes_back_at_its_place_is_another_fault() -> None:
    """The localizer gives it the same id."""
    again = Injected(component_ids=(LINK,), begin_ns=150 * SECOND_NS, end_ns=160 * SECOND_NS)
    found = score(
        [CUT, again],
        [
            transition(1, OPEN, 103),
            transition(2, RESOLVED, 125),
            transition(3, OPEN, 153, onset_s=151),
            transition(4, RESOLVED, 165, onset_s=151),
        ],
    )
    assert counts(found) == (0, 0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        transition(1, OPEN, 103, OTHER, fault_id="g"),
        transition(1, OPEN, 103, "agent-h1", fault_id="g"),
        transition(1, OPEN, 103, onset_s=90, fault_id="g"),
        transition(1, OPEN, 130, onset_s=130, fault_id="g"),
    ],
)
def test_a_verdict_on_something_else_or_of_another_time_is_false(wrong: Published) -> None:
    """Whatever else was said of the fault."""
    right = [transition(1, OPEN, 103), transition(2, RESOLVED, 125)]
    assert counts(score([CUT], [*right, wrong])) == (0, 0, 1)


def test_a_decided_verdict_that_moves_to_the_right_place_was_false() -> None:
    """Somebody may have acted on it."""
    found = score(
        [CUT],
        [
            transition(1, OPEN, 103, OTHER),
            transition(2, UPDATED, 105),
            transition(3, RESOLVED, 125),
        ],
    )
    assert counts(found) == (1, 0, 1)


@pytest.mark.parametrize(("returned_s", "false"), [(60.0, 0), (53.0, 1)])
def test_an_agent_that_does_not_run_may_be_called_dead(returned_s: float, false: int) -> None:
    """Not one that was back before its heartbeats could be missed, and no other."""
    absence = Absence(
        agent_id="agent-h1", begin_ns=50 * SECOND_NS, end_ns=round(returned_s * SECOND_NS)
    )
    verdicts = [
        transition(1, OPEN, 55, "agent-h1", kind="agent_dead"),
        transition(2, RESOLVED, 62, "agent-h1", kind="agent_dead"),
    ]
    found = score([], verdicts, [absence])
    assert counts(found) == (0, 0, false)
    assert len(found.dead) == 1 - false
    other = [transition(1, OPEN, 55, "agent-h2", kind="agent_dead")]
    assert counts(score([], other, [absence])) == (0, 0, 1)
