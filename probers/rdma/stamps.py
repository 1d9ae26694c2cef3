"""A device's own clock: its ticks to nanoseconds. Pure, but for asking the device.

Only differences mean anything, and a stamp is a counter of some bits that wraps: on
48 bits at 1 GHz after three days, on 32 bits after four seconds.
"""

from dataclasses import dataclass
from typing import Any, Self

from probers.rdma.library import Library


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
