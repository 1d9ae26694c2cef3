"""From where a restart reads: the look-back, in active time, tied to exact places of the log.

The state that single probes leave behind depends on nothing that arrived earlier than
`probes_horizon_ns` ago, and usually neither do the clocks of agents; those of agents that are
silent, or were, depend on their rounds before (`streams.core.clock.AgentClocks.needed_ns`), up to
`agents_horizon_ns` ago. An anchor is a place in the log together with the clock as it stood there.
Processing the log from an anchor that lies so far back, starting with its clock, gives the very
state of a worker that never stopped. The anchor travels in the metadata of the committed offset.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from schemas.units import SECOND_NS
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.core.clock import ClockState, forget_agent_ns, max_open_ns, settling_ns
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

    By then its windows are closed, its rings empty, its anomalies cleared. The time for which a
    window may be open begins when the one before is closed, up to a closing delay after its first
    results.
    """
    open_ns = config.lateness_ns + config.closing_spread_ns + max_open_ns(config)
    return max(config.idle_ns, RING_S * SECOND_NS, open_ns) + REFRESH_STEP_NS


def probes_horizon_ns(config: DetectionConfig) -> int:
    """Return how long ago, in active time, results arrived that still matter.

    A 5-tuple that is kept had a result within `retire_ns`; its runs reach `RUN_NS` further back, a
    copy of a round that is not known any more `RING_S`. Silence is checked on the refresh grid.
    """
    return retire_ns(config) + max(RUN_NS, RING_S * SECOND_NS) + 2 * REFRESH_STEP_NS


def agents_horizon_ns(config: DetectionConfig) -> int:
    """Return how long ago, in active time, rounds arrived that still matter to agents' clocks.

    An agent that is known sent a round within `forget_agent_ns`. What its clock was then follows
    from its rounds of `settling_ns` before.
    """
    return max(forget_agent_ns(config) + settling_ns(config), probes_horizon_ns(config))


class Anchors:
    """Places of the log, oldest first; the first one is far enough back for every agent."""

    def __init__(self, config: DetectionConfig, first: Anchor) -> None:
        self._probes_ns = probes_horizon_ns(config)
        self._agents_ns = agents_horizon_ns(config)
        self._anchors: deque[Anchor] = deque([first])

    def note(self, offset: int, clock: ClockState) -> None:
        """Remember the place before the message at `offset`, if the last one is old enough."""
        if clock.arrival_ns is not None and clock.active_ns >= self.due_ns:
            self._anchors.append(Anchor(offset, clock))
            self._trim(clock)

    @property
    def due_ns(self) -> int:
        """Active time from which on the next place has to be noted."""
        last = self._anchors[-1].clock
        return 0 if last.arrival_ns is None else last.active_ns + ANCHOR_STEP_NS

    def start(self, clock: ClockState, needed_ns: int | None) -> Anchor:
        """Return where a restart must begin to read, as the clock stands.

        Parameters
        ----------
        needed_ns
            Active time from which on agents' clocks need rounds; None: no more than probes do.
        """
        if clock.arrival_ns is not None:
            self._trim(clock)
        latest_ns = clock.active_ns - self._probes_ns
        if needed_ns is not None:
            # The round that set the clock at an anchor came before it.
            latest_ns = min(latest_ns, needed_ns - 1)
        for anchor in reversed(self._anchors):
            if anchor.clock.arrival_ns is not None and anchor.clock.active_ns <= latest_ns:
                return anchor
        return self._anchors[0]

    def _trim(self, clock: ClockState) -> None:
        while len(self._anchors) > 1:
            second = self._anchors[1].clock
            if second.arrival_ns is None or second.active_ns > clock.active_ns - self._agents_ns:
                break
            self._anchors.popleft()
