"""From where a restart reads: the look-back, in event time, tied to exact places of the log.

The state that single probes leave behind depends on nothing older than
`horizon_ns` before the watermark. An anchor is a place in the log together with
the clock as it stood there. Processing the log from an anchor that lies a
horizon back, starting with its clock, gives the very state of a worker that
never stopped. The anchor travels in the metadata of the committed offset.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from schemas.units import SECOND_NS
from streams.config import MAX_ROUND_SPAN_NS, REFRESH_STEP_NS, DetectionConfig
from streams.core.clock import ClockState
from streams.detectors.connectivity import RUN_NS
from streams.detectors.recent import RING_S

ANCHOR_STEP_NS: Final = 5 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Anchor:
    """Offset of the next message, and the clock before it."""

    offset: int
    clock: ClockState


def retire_ns(config: DetectionConfig) -> int:
    """Return the silence after which nothing is kept of a 5-tuple's probes.

    By then its windows are closed, its rings empty, its anomalies cleared.
    """
    return (
        max(config.idle_ns, RING_S * SECOND_NS, config.window_ns + config.lateness_ns)
        + REFRESH_STEP_NS
    )


def horizon_ns(config: DetectionConfig) -> int:
    """Return how far before the watermark results still matter.

    A 5-tuple that is kept had a result within `retire_ns`; its runs reach
    `RUN_NS` further back. A probe may be sent up to one round's span after its
    round began. This counts twice: at the anchor, and where silence is checked,
    which is on the refresh grid.
    """
    return retire_ns(config) + RUN_NS + 2 * MAX_ROUND_SPAN_NS + 2 * REFRESH_STEP_NS


class Anchors:
    """Places of the log, oldest first; the first one is always far enough back."""

    def __init__(self, horizon: int, first: Anchor) -> None:
        self._horizon_ns = horizon
        self._anchors: deque[Anchor] = deque([first])

    def note(self, offset: int, clock: ClockState) -> None:
        """Remember the place before the message at `offset`, if the last one is old enough."""
        if clock.watermark_ns is None:
            return
        last = self._anchors[-1].clock.watermark_ns
        if last is None or clock.watermark_ns - last >= ANCHOR_STEP_NS:
            self._anchors.append(Anchor(offset, clock))
            self._trim(clock.watermark_ns)

    @property
    def due_ns(self) -> int:
        """Watermark from which on the next place has to be noted."""
        last = self._anchors[-1].clock.watermark_ns
        return 0 if last is None else last + ANCHOR_STEP_NS

    def start(self, clock: ClockState) -> Anchor:
        """Return where a restart must begin to read, as the clock stands."""
        if clock.watermark_ns is not None:
            self._trim(clock.watermark_ns)
        return self._anchors[0]

    def _trim(self, watermark_ns: int) -> None:
        while len(self._anchors) > 1:
            second = self._anchors[1].clock.watermark_ns
            if second is None or second > watermark_ns - self._horizon_ns:
                break
            self._anchors.popleft()
