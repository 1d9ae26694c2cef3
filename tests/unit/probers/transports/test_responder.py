"""What a responder says it held a probe for."""

import numpy as np
import pytest

from probers.packet import UNSEALED
from probers.transports.base import PacketCounts
from probers.transports.responder import Responder
from schemas.units import US_NS
from tests.unit.probers.clocks import ManualClock

SETTLE = 200


class Answering:
    """A responder whose replies leave when the test says."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self._responder = Responder(self._clock, PacketCounts())

    def hold_ns(self, leaving_ns: int) -> int:
        """Return what a reply says that leaves so long after its stamp."""
        reply = self._responder.answer(UNSEALED.unpack(UNSEALED.probe(1)), None)
        assert reply is not None
        self._clock.advance(leaving_ns)
        self._responder.left(self._clock.now().monotonic_ns)
        return UNSEALED.unpack(reply).hold_ns


@pytest.mark.parametrize("leaving_ns", [300, 10 * US_NS, 150 * US_NS])
def test_the_hold_comes_to_contain_what_leaving_takes(leaving_ns: int) -> None:
    """The stamp is inside the reply, so it is made before; what comes after is foretold."""
    answering = Answering()
    held = [answering.hold_ns(leaving_ns) for _ in range(SETTLE)]
    assert held[0] == 0
    assert sorted(held) == held
    assert held[-1] == leaving_ns


def test_one_long_leaving_does_not_make_the_next_holds_too_long() -> None:
    """A responder that was not scheduled once must not state a hold that never was."""
    answering = Answering()
    usual_ns = 20 * US_NS
    for _ in range(SETTLE):
        answering.hold_ns(usual_ns)
    answering.hold_ns(10**9)
    assert answering.hold_ns(usual_ns) <= 1.1 * usual_ns
    assert answering.hold_ns(usual_ns) == usual_ns


def test_what_is_foretold_is_rather_too_short_and_follows_both_ways() -> None:
    """Of replies that leave after a varying time, it is the lower quarter, near enough."""
    answering, random = Answering(), np.random.default_rng(7)
    for median_ns in (100 * US_NS, 400 * US_NS, 30 * US_NS):
        took = (median_ns * random.lognormal(0, 0.2, 600)).astype(int)
        held = [answering.hold_ns(int(each)) for each in took][SETTLE:]
        low_ns, high_ns = np.quantile(took, (0.05, 0.5))
        assert low_ns < np.median(held) < high_ns
        assert np.max(held) < 1.1 * np.quantile(took, 0.9)
