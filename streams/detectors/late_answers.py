"""Answers that a host's software held up: how many of the last seconds, by host.

A probe whose answer its prober or its responder holds up beyond the agent's timeout is lost, though
the network passed it. Such delays have a tail: where some exceed the timeout, others come just
below it. So answers that were late, but not too late, tell losses of a starved host from those of
the network. Like `streams.detectors.recent` a function of the results that arrived.
"""

from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s
from schemas.process.names import shared
from schemas.units import MS_NS
from streams.columns.table import Table

# From here on an answer is late: a quarter of the agents' default timeout. The software of a
# healthy host takes microseconds, that of a busy one milliseconds.
LATE_NS: Final = 125 * MS_NS
# Seconds over which late answers are counted. The present second is not over, and is left out.
LATE_SPAN_S: Final = 20


class Side(Enum):
    """Whose delay it was: of the agent that probed, or of the endpoint that answered."""

    PROBER = "prober"
    RESPONDER = "responder"

    # Hash by identity: the hash of `Enum` is a Python call.
    __hash__ = object.__hash__


HostKey = tuple[Side, str]


class LateAnswers:
    """Late answers by second, of each prober and of each responder of a partition.

    Attributes
    ----------
    hosts
        Numbers of agents and endpoints.
    ring : (slots, hosts) uint16
        Late answers by second of arrival; `streams.detectors.recent` moves it on.
    """

    def __init__(self, slots: int) -> None:
        self.hosts: Table[HostKey] = Table({})
        self.ring: NDArray[np.uint16] = np.zeros((slots, self.hosts.capacity), np.uint16)

    def number(self, side: Side, name: str) -> int:
        """Return the number of a host; a new one has no late answers."""
        known = self.hosts.find((side, name))
        if known is not None:
            return known
        number = self.hosts.row((side, shared(name)))
        if self.hosts.capacity > self.ring.shape[1]:
            ring = np.zeros((len(self.ring), self.hosts.capacity), np.uint16)
            ring[:, : self.ring.shape[1]] = self.ring
            self.ring = ring
        self.ring[:, number] = 0
        return number

    def count(self, slot: int, numbers: Int64s) -> None:
        """Count a late answer of each of these hosts, which may repeat."""
        np.add.at(self.ring[slot], numbers, 1)

    def late(self, slots: list[int], number: int) -> int:
        """Return the late answers of a host in some seconds."""
        return int(self.ring[slots, number].sum())

    def keep_only(self, used: Int64s) -> None:
        """Forget all hosts but these."""
        for number in np.setdiff1d(self.hosts.rows(), used).tolist():
            self.hosts.remove(self.hosts.key(number))
