"""Events of hosts and their agents, apart from the network."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from schemas.columns.arrays import Bools, Int64s


class HostTrouble(Enum):
    """What can happen to an agent or to its host."""

    CRASH = "the agent's process is gone: no rounds, no heartbeats, no answers"
    LEAVE = "the agent signs off, as in maintenance, and comes back"
    STALL = "the process does not run for a moment"
    BUSY = "CPU starvation: its own delays grow"
    CLOCK = "the host's clock is off"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """Something that happens to a host; `value_ns` is a delay (BUSY) or an offset (CLOCK)."""

    host: int
    trouble: HostTrouble
    begin_ns: int
    end_ns: int | None = None
    value_ns: int = 0

    def at(self, time_ns: int) -> bool:
        """Say whether it is so at a time."""
        return self.begin_ns <= time_ns and (self.end_ns is None or time_ns < self.end_ns)


SILENT = (HostTrouble.CRASH, HostTrouble.LEAVE, HostTrouble.STALL)


class Hosts:
    """All that happens to the hosts of a scenario."""

    def __init__(self, count: int, events: Sequence[HostEvent]) -> None:
        self.count = count
        self.events = tuple(events)

    def value_ns(self, trouble: HostTrouble, time_ns: int) -> Int64s:
        """Return the sum of a trouble's values at a time, shape (hosts,)."""
        out = np.zeros(self.count, np.int64)
        for event in self.events:
            if event.trouble is trouble and event.at(time_ns):
                out[event.host] += event.value_ns
        return out

    def silent_pairs(self, hosts: Int64s, at_ns: Int64s) -> Bools:
        """Return whether each of these hosts was silent at its time; shapes (n,)."""
        out = np.zeros(len(hosts), np.bool_)
        for event in self.events:
            if event.trouble not in SILENT:
                continue
            during = (hosts == event.host) & (at_ns >= event.begin_ns)
            out |= during if event.end_ns is None else during & (at_ns < event.end_ns)
        return out
