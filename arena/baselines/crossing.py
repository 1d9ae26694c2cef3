"""Which components each 5-tuple of a window crosses, and which 5-tuples are bad.

007, deTector, NetBouncer and Flock were published for loss. To compare them on slow paths too, a
probe that took longer than `SLOW_NS` counts as lost if its 5-tuple is slow. A 5-tuple is slow if a
tenth of its answers took longer; single stragglers, which hosts cause, do not count.
"""

from typing import Final

import numpy as np

from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation
from localizer.network.topology import Topology
from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.enums import ComponentKind

# Twice the 20 µs below which a RoCE fabric's round trips are expected (SIGCOMM 2025, section 2).
SLOW_NS: Final = 40_000
# R-Pingmesh (SIGCOMM 2024) takes an RNIC for bad when a tenth of its probes time out.
LEAST_SLOW: Final = 0.1
# Share of the probes of bad 5-tuples from which it is a cut and not loss.
CUT_SHARE: Final = 0.6
# Of components that nothing tells apart, links come first: votes were published for links.
ORDER: Final = {
    ComponentKind.LINK: 0,
    ComponentKind.RNIC: 1,
    ComponentKind.SWITCH: 2,
    ComponentKind.VSWITCH: 3,
}
TIE: Final = 1e-9


def slow_probes(window: Window, slow_ns: int = SLOW_NS) -> Int64s:
    """Return how many answers of each slow 5-tuple came late, shape (n,)."""
    late = np.concatenate([np.zeros(1, np.int64), np.cumsum(window.rtt_ns > slow_ns)])
    counts = late[window.starts[1:]] - late[window.starts[:-1]]
    found: Int64s = np.where(counts >= LEAST_SLOW * np.diff(window.starts), counts, 0)
    return found


class Crossing:
    """Traced 5-tuples of a window and the components they cross, both numbered.

    Attributes
    ----------
    places
        Which of the window's 5-tuples these are.
    names
        Component ids: links, RNICs, switches, virtual switches, each sort ascending.
    sent, lost, slow, bad
        Probes of each 5-tuple; bad: lost or slow.
    component, flow
        Each crossing once: number of the component, number of the 5-tuple.
    """

    def __init__(self, window: Window) -> None:
        self.topology: Topology = window.network.topology
        self.places = np.array([n for n, c in enumerate(window.components) if c], np.int64)
        self.sent = window.sent[self.places]
        self.lost = window.lost[self.places]
        self.slow = slow_probes(window)[self.places]
        self.bad = self.lost + self.slow
        crossed = [sorted(set(window.components[n])) for n in self.places.tolist()]
        self.names = sorted({name for path in crossed for name in path}, key=self._order)
        number = {name: n for n, name in enumerate(self.names)}
        self.flow = np.repeat(np.arange(len(crossed)), [len(path) for path in crossed])
        self.component = np.array([number[name] for path in crossed for name in path], np.int64)
        self.length: Int64s = np.bincount(self.flow, minlength=len(crossed)).astype(np.int64)
        self._sets: dict[bytes, list[int]] | None = None

    def _order(self, name: str) -> tuple[int, str]:
        return ORDER.get(self.topology.kind(name), len(ORDER)), name

    def __len__(self) -> int:
        return len(self.names)

    def sums(self, weights: Floats | Int64s | Bools) -> Floats:
        """Return the sum of a weight over each component's 5-tuples, shape (components,)."""
        values: Floats = np.asarray(weights, np.float64)[self.flow]
        return np.bincount(self.component, values, minlength=len(self)).astype(np.float64)

    def flows_of(self, component: int) -> Int64s:
        """Return the 5-tuples that cross a component."""
        found: Int64s = self.flow[self.component == component]
        return found

    def through(self, component: int) -> Bools:
        """Return which 5-tuples cross a component, shape (n,)."""
        found = np.zeros(len(self.places), np.bool_)
        found[self.flows_of(component)] = True
        return found

    def is_kind(self, *kinds: ComponentKind) -> Bools:
        """Return which components are of some kinds, shape (components,)."""
        return np.array([self.topology.kind(name) in kinds for name in self.names], np.bool_)

    def best(self, scores: Floats) -> list[int]:
        """Return the components with the greatest score, preferred ones first."""
        top = float(scores.max())
        return [int(n) for n in np.flatnonzero(scores >= top - TIE * max(1.0, abs(top)))]

    def alike(self, component: int) -> list[int]:
        """Return a component and those that the same 5-tuples cross, preferred ones first."""
        if self._sets is None:
            self._sets = {}
            order = np.lexsort((self.flow, self.component))
            edges = np.searchsorted(self.component[order], np.arange(len(self) + 1))
            for n in range(len(self)):
                key = self.flow[order[edges[n] : edges[n + 1]]].tobytes()
                self._sets.setdefault(key, []).append(n)
        same = self._sets[np.sort(self.flows_of(component)).tobytes()]
        return [component, *(n for n in same if n != component)]

    def accuse(self, components: list[int], score: float, mask: Bools | None = None) -> Accusation:
        """Return the accusation of the first of these components; the rest it cannot tell from it.

        Parameters
        ----------
        mask
            The bad 5-tuples that it explains, shape (n,); None: all that cross it.
        """
        first, *rest = components
        bad = self.through(first) & (self.bad > 0)
        if mask is not None:
            bad &= mask
        return Accusation(
            component_id=self.names[first],
            kind=symptom(
                int(self.sent[bad].sum()), int(self.lost[bad].sum()), int(self.slow[bad].sum())
            ),
            score=score,
            also=tuple(self.names[n] for n in rest),
        )


def symptom(sent: int, lost: int, slow: int) -> str:
    """Return the kind of fault that probes alone show: a cut, loss, or latency."""
    if slow > lost:
        return "high_latency"
    return "connectivity" if lost >= CUT_SHARE * sent else "packet_loss"
