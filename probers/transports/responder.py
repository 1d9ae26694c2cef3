"""Answers probes: one reply of the same size for each valid probe, within a rate limit."""

from typing import Final

from probers.clock import Clock, TokenBucket
from probers.packet import UNSEALED, Packet, Packets
from probers.transports.base import PacketCounts
from probers.transports.rtt import STEP_TOLERANCE_NS

# R-Pingmesh's busiest RNIC sees below 150 probes/s; a thousand peers at once are
# still answered, a flood is not reflected.
MAX_REPLIES_HZ: Final = 20_000.0
REPLY_BURST: Final = 4_096
# The time from stamping a reply to its departure is estimated, since the stamp is inside the reply.
# The estimate follows the lower quartile of that time: a hold stated too long makes a round trip
# look shorter than the network. Steps up and down in the ratio of one to three keep it there.
LEAVING_STEP_NS: Final = 500
UP_SHARE: Final = 16
DOWN_SHARE: Final = 5
# A datagram does not wait longer in a socket's queue; a larger age is a clock set.
MAX_WAIT_NS: Final = 10 * 10**9


class Responder:
    """Builds replies and stamps them.

    t2 is the kernel's stamp if it is plausible. Both t2 and t3 are of the wall clock, and setting
    the clock between them must not change the hold. So t3 is t2 plus the time that has passed on
    the monotonic clock, plus the estimated time until the reply departs. The sender reports each
    departure by `left`.
    """

    def __init__(self, clock: Clock, counts: PacketCounts, packets: Packets = UNSEALED) -> None:
        self._clock = clock
        self._packets = packets
        self._counts = counts
        self._budget = TokenBucket(MAX_REPLIES_HZ, REPLY_BURST)
        self._offset_ns: int | None = None
        self._packed_ns = 0
        self._leaving_ns = 0

    def answer(
        self,
        probe: Packet,
        kernel_ns: int | None,
        *,
        by_kernel: bool = True,
        follows: bool = False,
    ) -> bytes | None:
        """Return the reply; None where the budget is used up.

        `kernel_ns` is when the probe came, nanoseconds since the epoch, as the kernel says or,
        not `by_kernel`, the program; `follows`: a follow-up will state the hold more exactly.
        """
        taken = self._clock.now()
        if not self._budget.take_token(taken.monotonic_ns):
            self._counts.unanswered += 1
            return None
        stepped = (
            self._offset_ns is not None
            and abs(taken.offset_ns - self._offset_ns) > STEP_TOLERANCE_NS
        )
        self._offset_ns = taken.offset_ns
        waited_ns = 0 if kernel_ns is None else taken.realtime_ns - kernel_ns
        kernel = kernel_ns is not None and not stepped and 0 <= waited_ns <= MAX_WAIT_NS
        if not kernel:
            waited_ns = 0
        self._counts.answered += 1
        self._packed_ns = self._clock.now().monotonic_ns
        held_ns = waited_ns + self._packed_ns - taken.monotonic_ns + self._leaving_ns
        t2_ns = taken.realtime_ns - waited_ns
        return self._packets.reply(
            probe,
            t2_ns=t2_ns,
            t3_ns=t2_ns + held_ns,
            t2_kernel=kernel and by_kernel,
            follows=follows,
        )

    def left(self, monotonic_ns: int) -> None:
        """Update the estimate: the latest reply departed at that time."""
        took_ns, usual_ns = monotonic_ns - self._packed_ns, self._leaving_ns
        if took_ns > usual_ns:
            self._leaving_ns = min(took_ns, usual_ns + usual_ns // UP_SHARE + LEAVING_STEP_NS)
        else:
            self._leaving_ns = max(took_ns, usual_ns - usual_ns // DOWN_SHARE - LEAVING_STEP_NS)
