"""The network between a job's ranks: which transfers a fault touches, and how long they take.

The same effects as probes meet (`arena.faults.effects`), on the ways that the job's bytes take.
TCP and RoCE alike stand still where half of the packets or more are lost; where fewer are, the rate
falls with the root of the share (Mathis et al., 1997). Added delay hardly touches bulk transfers,
whose windows are large; what makes the RNIC or the port slow does.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Final

import numpy as np

from arena.faults.effects import Effect, touched
from arena.training.shape import GroupShape, JobShape
from arena.world.cluster import Cluster
from arena.world.fabric import GOLDEN_GAMMA, NOWHERE
from schemas.units import US_NS

# From this share on a transfer stands: every window loses packets, and timers back off.
STANDS: Final = 0.5
# Segments of 9 kB, round trips of 100 µs: a share p of lost packets leaves 110 MB/s / sqrt(p), of
# the 12 GB/s of a 100 Gbit/s port.
LOSS_FACTOR: Final = 110.0
# TCP's timer grows to two minutes.
MOST_BACKOFF_US: Final = 120_000_000
# Changes of the effects that one transfer may live through.
MOST_CHANGES: Final = 10_000
BYTES_PER_US: Final = 10_000.0
# Of a ring or an exchange, beside its bytes.
LATENCY_US: Final = 300
# Within a host.
LOCAL_US: Final = 400
SPREAD: Final = 0.1

Edge = tuple[int, int]


def share(*numbers: int) -> float:
    """Return a number from 0 to 1 that follows from some integers (SplitMix64)."""
    word = 0
    for number in numbers:
        word = (word + number + GOLDEN_GAMMA) % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        word ^= word >> 31
    return word / 2**64


class Wires:
    """The ways between ranks, and what is wrong with them.

    Parameters
    ----------
    rates
        By component: how many times longer transfers over it take while its effect lasts.
    epoch_ns
        The job's begin in event time.
    """

    def __init__(
        self,
        shape: JobShape,
        cluster: Cluster,
        effects: Sequence[Effect],
        rates: Mapping[int, float],
        epoch_ns: int,
    ) -> None:
        self._shape = shape
        self._cluster = cluster
        self._effects = tuple(effects)
        self._rates = rates
        self._epoch_ns = epoch_ns
        self._edges: dict[Edge, tuple[int, ...]] = {}
        self._groups: dict[int, tuple[Edge, ...]] = {}

    def edges(self, group: GroupShape) -> tuple[Edge, ...]:
        """Return the neighbours in a group's ring that bytes cross the network between."""
        if group.number not in self._groups:
            ring = group.ranks
            pairs = [(a, ring[(n + 1) % len(ring)]) for n, a in enumerate(ring)]
            host = self._shape.host
            self._groups[group.number] = tuple((a, b) for a, b in pairs if host(a) != host(b))
        return self._groups[group.number]

    def touching(self, edge: Edge) -> tuple[int, ...]:
        """Return which effects touch what goes from one rank to another, by number."""
        if not self._effects:
            return ()
        found = self._edges.get(edge)
        if found is None:
            found = self._edges[edge] = self._find(edge)
        return found

    def _find(self, edge: Edge) -> tuple[int, ...]:
        cluster, (a, b) = self._cluster, edge
        src, dst, flow = np.array([a]), np.array([b]), np.array([0])
        found = []
        # Acknowledgements come back the same way.
        ways = cluster.fabric.paths(np.minimum(src, dst), np.maximum(src, dst), flow)[0]
        crossed = {int(n) for n in ways if n != NOWHERE}
        for rank in edge:
            crossed |= {cluster.endpoint0 + rank, cluster.vswitch0 + self._shape.host(rank)}
        low, high = sorted(edge)
        hashed = np.array([low * 1_000_003 + high * 8_191])
        for number, effect in enumerate(self._effects):
            toward = effect.toward is None or effect.toward in edge
            if effect.component in crossed and toward and touched(effect, number, hashed)[0]:
                found.append(number)
        return tuple(found)

    def loss(self, edge: Edge, at_us: int) -> float:
        """Return the share of the packets between two ranks that is lost."""
        kept = 1.0
        for number in self.touching(edge):
            effect = self._effects[number]
            kept *= 1.0 - effect.loss * self._on(effect, at_us)
        return 1.0 - kept

    def standing_since(self, edge: Edge, at_us: int) -> int | None:
        """Return since when nothing comes through between two ranks; None: something does."""
        if self.loss(edge, at_us) < STANDS:
            return None
        return max(self._begun(self._effects[n], at_us) for n in self.touching(edge))

    def slowness(self, edge: Edge, at_us: int) -> float:
        """Return how many times longer a transfer between two ranks takes."""
        slow = 1.0
        for number in self.touching(edge):
            effect = self._effects[number]
            if self._on(effect, at_us):
                slow = max(slow, self._rates.get(effect.component, 1.0))
        return max(slow, LOSS_FACTOR * sqrt(self.loss(edge, at_us)))

    def usual_us(self, group: GroupShape, n_bytes: int, seed: int) -> int:
        """Return how long an operation takes where nothing is wrong."""
        base = LATENCY_US + n_bytes / BYTES_PER_US if group.spans else LOCAL_US
        return round(base * (1.0 + SPREAD * share(group.number, seed)))

    def end_us(self, edges: Sequence[Edge], begin_us: int, need_us: int) -> int | None:
        """Return when a transfer over some ways is through; None: never.

        The slowest way counts, for all of a ring go at its pace.
        """
        numbers = {n for edge in edges for n in self.touching(edge)}
        if not numbers:
            return begin_us + need_us
        at, left, stood = begin_us, float(need_us), 0
        for _ in range(MOST_CHANGES):
            change = min(
                (c for n in numbers if (c := self._change(self._effects[n], at)) is not None),
                default=None,
            )
            if max(self.loss(edge, at) for edge in edges) >= STANDS:
                if change is None:
                    return None
                stood, at = stood + change - at, change
                continue
            if stood:
                # The next attempt comes when the timer says, which has doubled meanwhile.
                at += round(min(stood, MOST_BACKOFF_US) * share(at, need_us))
                stood = 0
                continue
            slow = max(self.slowness(edge, at) for edge in edges)
            if change is None or left * slow <= change - at:
                return at + round(left * slow)
            left -= (change - at) / slow
            at = change
        return None

    def _on(self, effect: Effect, at_us: int) -> bool:
        at_ns = at_us * US_NS + self._epoch_ns
        since = at_ns - effect.begin_ns
        if since < 0 or (effect.end_ns is not None and at_ns >= effect.end_ns):
            return False
        return not effect.off_ns or since % (effect.on_ns + effect.off_ns) < effect.on_ns

    def _begun(self, effect: Effect, at_us: int) -> int:
        """Return when the present spell of an effect began."""
        begin_us = (effect.begin_ns - self._epoch_ns) // US_NS
        if not effect.off_ns:
            return begin_us
        period = (effect.on_ns + effect.off_ns) // US_NS
        return at_us - (at_us - begin_us) % period

    def _change(self, effect: Effect, at_us: int) -> int | None:
        """Return when an effect next begins or ends after a time; None: never."""
        begin_us = (effect.begin_ns - self._epoch_ns) // US_NS
        end_us = None if effect.end_ns is None else (effect.end_ns - self._epoch_ns) // US_NS
        if at_us < begin_us:
            return begin_us
        if end_us is not None and at_us >= end_us:
            return None
        if not effect.off_ns:
            return end_us
        on, off = effect.on_ns // US_NS, effect.off_ns // US_NS
        into = (at_us - begin_us) % (on + off)
        change = at_us - into + (on if into < on else on + off)
        return change if end_us is None else min(change, end_us)
