"""The parts of an injected fault: effects, host events, table damage, symptoms, and its truth."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from arena.faults.effects import Effect
from arena.faults.truth import TrueFault
from arena.world.cluster import Cluster
from arena.world.fabric import NOWHERE
from arena.world.hosts import HostEvent
from arena.world.overlay import TableDamage
from schemas.columns.arrays import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInterval:
    """When a fault begins and ends, ns of event time; `end_ns` None: it stays."""

    begin_ns: int
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a reader of a component's state sees while a fault lasts, and otherwise.

    `text` or `number` during the fault, `usual_text` or `usual` before and after.
    """

    component_id: str
    attribute: str
    text: str | None = None
    usual_text: str | None = None
    number: float | None = None
    usual: float | None = None


@dataclass(slots=True)
class Injection:
    """All that comes of a fault or a confounder; a confounder has no truth."""

    effects: list[Effect] = field(default_factory=list)
    hosts: list[HostEvent] = field(default_factory=list)
    damages: list[TableDamage] = field(default_factory=list)
    symptoms: list[Symptom] = field(default_factory=list)
    truth: list[TrueFault] = field(default_factory=list)


class Places:
    """Where a fault can be so that somebody notices, and which places look alike.

    A component that fewer than `LEAST` 5-tuples of two pairs cross is no place for a fault.
    """

    LEAST = 4

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        flows = cluster.flows
        count = cluster.endpoint0 + cluster.fabric.shape.rnics
        width = flows.there.shape[1]
        both = np.concatenate([flows.there, flows.back], axis=1)
        rows = np.repeat(np.arange(len(flows)), 2 * width)
        known = both.ravel() != NOWHERE
        entries = np.unique(both.ravel()[known] * len(flows) + rows[known])
        self._component, self._flow = entries // len(flows), entries % len(flows)
        self._starts = np.searchsorted(self._component, np.arange(count + 1))

    def crossing(self, component: int) -> Int64s:
        """Return the 5-tuples whose probe or reply crosses a component."""
        found: Int64s = self._flow[self._starts[component] : self._starts[component + 1]]
        return found

    def watched(self, numbers: Sequence[int] | range) -> list[int]:
        """Return those of the components that enough 5-tuples cross."""
        flows = self.cluster.flows
        found = []
        for number in numbers:
            rows = self.crossing(number)
            if len(rows) < self.LEAST:
                continue
            a, b = flows.src[rows], flows.dst[rows]
            if len({*zip(np.minimum(a, b).tolist(), np.maximum(a, b).tolist(), strict=True)}) >= 2:
                found.append(number)
        return found

    def alike(self, component: int) -> frozenset[str]:
        """Return the ids of the underlay's components that exactly the same 5-tuples cross."""
        mine = self.crossing(component)
        if not len(mine):
            return frozenset({self.cluster.names[component]})
        flows = self.cluster.flows
        near = {
            n
            for way in (flows.there[mine[0]], flows.back[mine[0]])
            for n in way.tolist()
            if n != NOWHERE and n < self.cluster.vswitch0
        }
        same = {n for n in near if np.array_equal(self.crossing(n), mine)} | {component}
        return frozenset(self.cluster.names[n] for n in same)
