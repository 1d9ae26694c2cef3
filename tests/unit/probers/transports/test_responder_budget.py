"""A responder is no amplifier: bounded in number and in size."""

import pytest

from probers.packet import UNSEALED
from probers.transports.base import PacketCounts
from probers.transports.responder import MAX_REPLIES_HZ, REPLY_BURST, Responder
from tests.unit.probers.clocks import ManualClock


def answers(responder: Responder, count: int) -> int:
    """Probe so often at once; return how many were answered."""
    probe = UNSEALED.unpack(UNSEALED.probe(1))
    return sum(responder.answer(probe, None) is not None for _ in range(count))


def test_a_flood_is_answered_up_to_the_budget_and_the_rest_is_counted() -> None:
    """The burst at once, then the rate: whoever forges senders gets no more out of an agent."""
    clock, counts = ManualClock(), PacketCounts()
    responder = Responder(clock, counts)
    assert answers(responder, REPLY_BURST + 100) == REPLY_BURST
    assert counts.unanswered == 100
    clock.advance(10**8)
    assert answers(responder, 10_000) == MAX_REPLIES_HZ / 10
    clock.advance(3_600 * 10**9)
    assert answers(responder, 10_000) == REPLY_BURST
    assert counts.answered == 2 * REPLY_BURST + MAX_REPLIES_HZ / 10


@pytest.mark.parametrize("size", [50, 51, 512, 8_972])
@pytest.mark.parametrize("follows", [False, True])
def test_what_goes_back_is_no_larger_than_what_came(size: int, follows: bool) -> None:
    """One reply of the probe's size; with the follow-up, each packet is no larger."""
    responder = Responder(ManualClock(), PacketCounts())
    probe = UNSEALED.probe(9, size)
    reply = responder.answer(UNSEALED.unpack(probe), None, follows=follows)
    assert reply is not None
    assert len(reply) == len(probe)
    assert len(UNSEALED.follow_up(9, hold_ns=1)) <= len(probe)
