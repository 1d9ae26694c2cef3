"""What is wrong with the network at a time, and what it does to packets.

An effect sits on a component and touches packets that cross it: it loses a share of them,
holds them up, or both; always or for some 5-tuples only; steadily, in spells, or growing.
Faults and congestion alike are made of effects. Event time in nanoseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from arena.world.cluster import Cluster, Flows
from schemas.columns.arrays import Bools, Floats, Int64s

HASH_BITS: Final = 1 << 32
# Knuth's multiplier for hashes of small integers (TAOCP 6.4).
KNUTH: Final = 2_654_435_761


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one component does to packets.

    Attributes
    ----------
    component : number of the component
    begin_ns, end_ns : when; `end_ns` None: to the end
    loss : probability of losing a packet that crosses
    delay_ns : added to a packet that crosses
    share : share of the 5-tuples that are touched
    on_ns, off_ns : in spells of `on_ns` with `off_ns` between them; `off_ns` 0: steadily
    ramp_ns : grows from nothing over so long
    there, back : whether probes, whether replies are touched
    toward : only packets to the endpoint on that RNIC; None: all
    """

    component: int
    begin_ns: int
    end_ns: int | None = None
    loss: float = 0.0
    delay_ns: int = 0
    share: float = 1.0
    on_ns: int = 0
    off_ns: int = 0
    ramp_ns: int = 0
    there: bool = True
    back: bool = True
    toward: int | None = None

    def strength(self, at_ns: Int64s) -> Floats:
        """Return 0 to 1: how strong it is at these times, any shape."""
        since = at_ns - self.begin_ns
        on = since >= 0
        if self.end_ns is not None:
            on &= at_ns < self.end_ns
        if self.off_ns:
            on &= since % (self.on_ns + self.off_ns) < self.on_ns
        if not self.ramp_ns:
            return on.astype(np.float64)
        grown: Floats = np.where(on, np.clip(since / self.ramp_ns, 0.0, 1.0), 0.0)
        return grown

    def active(self, from_ns: int, to_ns: int) -> bool:
        """Say whether it may touch anything in a stretch of time."""
        return self.begin_ns < to_ns and (self.end_ns is None or self.end_ns > from_ns)


def touched(effect: Effect, number: int, flow: Int64s) -> Bools:
    """Return which of a component's 5-tuples an effect touches; `number` tells effects apart."""
    if effect.share >= 1.0:
        return np.ones(len(flow), np.bool_)
    mixed = (flow * KNUTH + (number + 1) * 0x9E3779B9) % HASH_BITS
    mixed = (mixed ^ (mixed >> 15)) * KNUTH % HASH_BITS
    few: Bools = mixed < effect.share * HASH_BITS
    return few


class Weather:
    """All effects of a scenario over the 5-tuples of a cluster.

    Parameters
    ----------
    effects
        In any order; an effect's place in it is its number.
    """

    def __init__(self, cluster: Cluster, effects: Sequence[Effect]) -> None:
        self.effects = tuple(effects)
        self._flows: Flows = cluster.flows
        # Which 5-tuples an effect touches on the way there and back: indices.
        self._there: list[Int64s] = []
        self._back: list[Int64s] = []
        hashed = self._flows.src * 1_000_003 + self._flows.dst * 8_191 + self._flows.flow
        for number, effect in enumerate(self.effects):
            few = touched(effect, number, hashed)
            for wanted, way, end, places in (
                (effect.there, self._flows.there, self._flows.dst, self._there),
                (effect.back, self._flows.back, self._flows.src, self._back),
            ):
                crossing = (way == effect.component).any(axis=1) & few & wanted
                if effect.toward is not None:
                    crossing &= end == effect.toward
                places.append(np.flatnonzero(crossing))
        self._hashed = hashed

    def passed(self, sent_ns: Int64s) -> tuple[Floats, Floats]:
        """Return what becomes of a probe of each 5-tuple sent at these times.

        Parameters
        ----------
        sent_ns
            Shape (flows,).

        Returns
        -------
        Probability that the answer comes back, and delay in ns; both of shape (flows,).
        """
        kept, delay = np.ones(len(sent_ns)), np.zeros(len(sent_ns))
        if not len(sent_ns):
            return kept, delay
        first, last = int(sent_ns.min()), int(sent_ns.max()) + 1
        for number, effect in enumerate(self.effects):
            if not effect.active(first, last):
                continue
            for places in (self._there[number], self._back[number]):
                strength = effect.strength(sent_ns[places])
                kept[places] *= 1.0 - effect.loss * strength
                delay[places] += effect.delay_ns * strength
        return kept, delay

    def crossing(
        self, flow: int, components: Sequence[int], at_ns: int, *, back: bool = False
    ) -> tuple[float, float]:
        """Return the same of one packet of a 5-tuple over some components, one way.

        `back`: the packet is a reply.
        """
        kept, delay = 1.0, 0.0
        wanted = set(components)
        end = int((self._flows.src if back else self._flows.dst)[flow])
        at = np.array([at_ns])
        for number, effect in enumerate(self.effects):
            if effect.component not in wanted or not (effect.back if back else effect.there):
                continue
            if effect.toward not in (None, end):
                continue
            if effect.active(at_ns, at_ns + 1) and bool(
                touched(effect, number, self._hashed[flow : flow + 1])[0]
            ):
                strength = float(effect.strength(at)[0])
                kept *= 1.0 - effect.loss * strength
                delay += effect.delay_ns * strength
        return kept, delay
