"""What a responder says it held a probe for."""

from probers.clock import Instant
from probers.packet import UNSEALED
from probers.responder import Responder
from probers.transport import PacketCounts

STEP_NS = 10_000


class TickingClock:
    """Moves on with every reading: whatever is done between two takes as long."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def now(self) -> Instant:
        """Return this moment."""
        self.now_ns += STEP_NS
        return Instant(self.now_ns, self.now_ns + 10**18)


def hold_ns(responder: Responder) -> int:
    """Return what the reply to a probe says."""
    reply = responder.answer(UNSEALED.unpack(UNSEALED.probe(1)), None)
    assert reply is not None
    return UNSEALED.unpack(reply).hold_ns


def test_the_hold_comes_to_contain_what_packing_takes() -> None:
    """The stamp is inside the reply, so it is made before; what comes after is foretold."""
    responder = Responder(TickingClock(), PacketCounts())
    held = [hold_ns(responder) for _ in range(60)]
    assert held[0] == STEP_NS
    assert sorted(held) == held
    assert held[-1] == 2 * STEP_NS


def test_one_long_packing_does_not_make_the_next_holds_too_long() -> None:
    """A responder that was not scheduled once must not state a hold that never was."""
    clock = TickingClock()
    responder = Responder(clock, PacketCounts())
    for _ in range(60):
        hold_ns(responder)
    usual = hold_ns(responder)
    clock.now_ns += 10**9
    assert hold_ns(responder) <= usual + STEP_NS
    assert hold_ns(responder) <= usual + STEP_NS
