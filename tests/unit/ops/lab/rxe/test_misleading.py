"""Registrations with a wrong Q_Key: which are answered, and what stands at the end."""

from dataclasses import replace

from ops.lab.rxe.misleading import KeyCorruption
from tests.unit.probers.makers import endpoint

FIRST = replace(endpoint("a"), qkey=5)
LATER = replace(FIRST, port=19, qkey=9)


def test_each_true_registration_is_answered_and_no_lie_ever() -> None:
    """An endpoint that has had two queue pairs: its old registration is on the topic, too."""
    lies = KeyCorruption()
    told = [lies.answer(FIRST), lies.answer(LATER)]
    assert told == [replace(FIRST, qkey=4), replace(LATER, qkey=8)]
    assert [lies.answer(lie) for lie in told] == [None, None]
    assert lies.true == LATER
    # Its agent registers again: so does the lie.
    assert lies.answer(LATER) == told[1]


def test_what_has_left_or_has_no_queue_pair_is_left_alone() -> None:
    """There is nothing to lie about."""
    lies = KeyCorruption()
    assert lies.answer(replace(FIRST, qkey=None)) is None
    assert lies.answer(FIRST) is not None
    assert lies.answer(None) is None
    assert lies.true is None
