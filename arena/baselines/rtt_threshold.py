"""A fixed threshold on the round trip and on loss: the simplest method.

A 5-tuple is bad if it lost more than 2 % of its probes, or if a tenth of its
answers took longer than 40 µs: twice what a RoCE fabric is expected to take (SIGCOMM
2025, section 2). The RNIC at which most bad 5-tuples end is to blame; those are
explained, and so on. It knows no paths.
"""

from collections import Counter
from typing import Final

import numpy as np

from arena.baselines.crossing import SLOW_NS, slow_probes, symptom
from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation
from localizer.network.topology import Topology
from schemas.enums import ComponentKind

# The service level that yuuki/rpingmesh, an open R-Pingmesh, ships with.
LEAST_LOSS: Final = 0.02


class RttThreshold:
    """Fixed thresholds; blames RNICs."""

    name = "RTT threshold"

    def __init__(self, slow_ns: int = SLOW_NS, least_loss: float = LEAST_LOSS) -> None:
        self._slow_ns = slow_ns
        self._least_loss = least_loss

    def observe(self, window: Window) -> list[Accusation]:
        """Accuse the RNICs at which bad 5-tuples end."""
        slow = slow_probes(window, self._slow_ns)
        bad = (window.lost > self._least_loss * window.sent) | (slow > 0)
        topology = window.network.topology
        ends = {
            n: {_rnic(topology, end) for end in window.flows[n][:2]}
            for n in np.flatnonzero(bad).tolist()
        }
        found = []
        while ends:
            at = Counter(rnic for both in ends.values() for rnic in both)
            worst = min(at, key=lambda rnic: (-at[rnic], rnic))
            mine = [n for n, both in ends.items() if worst in both]
            ends = {n: both for n, both in ends.items() if worst not in both}
            columns = (window.sent, window.lost, slow)
            sent, lost, late = (int(column[mine].sum()) for column in columns)
            found.append(
                Accusation(
                    component_id=worst, kind=symptom(sent, lost, late), score=float(len(mine))
                )
            )
        return found


def _rnic(topology: Topology, endpoint_id: str) -> str:
    """Return the RNIC that carries an endpoint; the endpoint where the records do not say."""
    parts = topology.holders(endpoint_id).parts
    return next((p for p in parts if topology.kind(p) is ComponentKind.RNIC), endpoint_id)
