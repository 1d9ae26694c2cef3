"""Work completions of a completion queue, and the device's clock that stamps them.

Only differences of stamps mean anything. A stamp is a counter that wraps: one of 48 bits at 1 GHz
after three days, one of 32 bits after four seconds.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from probers.transports.rdma.library import Library


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """What a device says of its completion stamps: `mask` of the counter, its rate."""

    mask: int
    rate_khz: int

    @classmethod
    def of(cls, library: Library, context: Any) -> Self | None:
        """Return a device's clock; None where it does not stamp completions."""
        try:
            attributes = context.query_device_ex()
            mask = int(attributes.completion_timestamp_mask)
            rate_khz = int(attributes.hca_core_clock)
        except library.error:
            return None
        return cls(mask, rate_khz) if mask and rate_khz else None

    def between_ns(self, earlier: int, later: int) -> int:
        """Return how long after one stamp another was, nanoseconds; never negative.

        >>> DeviceClock(mask=2**32 - 1, rate_khz=1_000_000).between_ns(2**32 - 10, 20)
        30
        """
        return ((later - earlier) & self.mask) * 1_000_000 // self.rate_khz


POLLED_AT_ONCE: Final = 32
# Set in the work request ids of sends, not in those of receives.
SENT: Final = 1 << 63


class Completed(NamedTuple):
    """A work completion; `stamp` in ticks of the device, None where it has none."""

    wr_id: int
    ok: bool
    size: int
    source: int
    stamp: int | None


class Completions:
    """One completion queue for all queue pairs of a port.

    Parameters
    ----------
    entries : how many completions can wait
    stamped : whether the device is to stamp them
    """

    def __init__(
        self, library: Library, context: Any, channel: Any, entries: int, *, stamped: bool
    ) -> None:
        self._lib = library
        self._good = library.enums.IBV_WC_SUCCESS
        self._stamped = stamped
        if not stamped:
            self.queue = library.cq.CQ(context, entries, None, channel, 0)
            return
        wanted = library.cq.CqInitAttrEx(
            cqe=entries,
            channel=channel,
            wc_flags=library.enums.IBV_WC_EX_WITH_BYTE_LEN
            | library.enums.IBV_WC_EX_WITH_SRC_QP
            | library.enums.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
        )
        self.queue = library.cq.CQEX(context, wanted)

    def poll(self) -> list[Completed]:
        """Return some completions; none when none is left."""
        if self._stamped:
            return self._poll_stamped()
        _, found = self.queue.poll(POLLED_AT_ONCE)
        good = self._good
        return [Completed(w.wr_id, w.status == good, w.byte_len, w.src_qp, None) for w in found]

    def _poll_stamped(self) -> list[Completed]:
        queue, taken = self.queue, list[Completed]()
        if queue.start_poll(self._lib.cq.PollCqAttr()):
            return taken
        while True:
            wr_id, ok = queue.wr_id, queue.status == self._good
            size = source = 0
            if ok and not wr_id & SENT:
                size, source = queue.read_byte_len(), queue.read_src_qp()
            taken.append(Completed(wr_id, ok, size, source, queue.read_timestamp() if ok else None))
            if len(taken) == POLLED_AT_ONCE or queue.poll_next():
                break
        queue.end_poll()
        return taken
