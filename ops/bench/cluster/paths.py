"""The 5-tuples of one simulated agent: their paths, which are cut, what traces of them show.

Pure. Numbers are those of `arena.world.fabric`; replies take the way of the probe back.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import ndtri

from arena.simulation.tracing import GAP_NS, REFRESH_NS
from arena.world.fabric import NOWHERE, Fabric
from arena.world.latency import PATH_SIGMA
from ops.bench.cluster.encoding import FlowNames
from ops.bench.cluster.shape import RAILS
from ops.bench.rig.load import BASE_NS
from probers.clock import TokenBucket
from probers.probing.trace import Pair, TraceSettings, in_turn
from schemas.columns.arrays import Floats, Int64s
from schemas.records import PingTarget

# An agent begins so many traces of new 5-tuples a second (`probers.probing.trace`).
DISCOVERY_NS: Final = 10**9 // round(TraceSettings(timeout_ns=0).rate_hz)
NEVER_NS: Final = -(2**62)
FOREVER_NS: Final = 2**62
Dead = frozenset[int]
# Large odd numbers (Steele, Lea, Flood 2014): the upper bits of their products look random.
MIXERS: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def rnic_of(endpoint: str) -> int:
    """Return the number of an endpoint's RNIC.

    >>> rnic_of("ep:h3/r1")
    25
    """
    host, _, rail = endpoint.removeprefix("ep:h").partition("/r")
    return int(host) * RAILS + int(rail)


def usual_of(flows: Int64s) -> Floats:
    """Return how the usual round trip of 5-tuples differs, as draws from a normal distribution.

    The same one always has the same: containers come back to a host under the same names, and what
    detectors know of a 5-tuple outlives them.

    Parameters
    ----------
    flows
        RNICs of source and target, and number of the 5-tuple between them, shape (n, 3).
    """
    mixed = (flows.astype(np.uint64) @ np.array(MIXERS, np.uint64)) * np.uint64(MIXERS[0])
    found: Floats = ndtri(((mixed >> np.uint64(40)) + 0.5) / 2**24)
    return found


@dataclass
class Paths:
    """The 5-tuples that an agent probes now.

    Attributes
    ----------
    src, dst, flow : by 5-tuple
    way : components that it crosses, shape (n, 13)
    base_ns : its round trip
    trace_ns : when it is traced next while it is healthy
    told_ns : when it was traced last because of a loss
    """

    src: list[str]
    dst: list[str]
    flow: list[int]
    way: Int64s
    base_ns: np.typing.NDArray[np.float64]
    trace_ns: Int64s
    told_ns: Int64s = field(init=False)
    # When the next trace of a healthy one is due, with these cut.
    _next_ns: int = field(init=False, default=NEVER_NS)
    _cut: list[int] | None = field(init=False, default=None)
    # When some 5-tuple of a pair was last traced because of a loss.
    _pairs_ns: dict[Pair, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.told_ns = np.full(len(self.src), NEVER_NS, np.int64)

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def of(
        cls,
        targets: tuple[PingTarget, ...],
        here: set[int],
        fabric: Fabric,
        *,
        now_ns: int,
    ) -> "Paths":
        """Return the 5-tuples of a list whose two ends are registered, as an agent probes them."""
        rows = [
            (t.src, t.dst, a, b, flow)
            for t in targets
            if (a := rnic_of(t.src)) in here and (b := rnic_of(t.dst)) in here
            for flow in range(t.flows)
        ]
        numbers = np.array([row[2:] for row in rows], np.int64).reshape(-1, 3)
        count = len(rows)
        return cls(
            src=[row[0] for row in rows],
            dst=[row[1] for row in rows],
            flow=[row[4] for row in rows],
            way=fabric.paths(*(np.ascontiguousarray(c) for c in numbers.T)),
            base_ns=BASE_NS * np.exp(PATH_SIGMA * usual_of(numbers)),
            trace_ns=now_ns + DISCOVERY_NS * np.arange(count, dtype=np.int64),
        )

    @cached_property
    def names(self) -> FlowNames:
        """What its results are called."""
        return FlowNames(self.src, self.dst, self.flow)

    def cut(self, dead: Dead) -> list[int]:
        """Return which 5-tuples get nothing through."""
        if not dead or not len(self):
            return []
        hit = np.logical_or.reduce([(self.way == number).any(axis=1) for number in dead])
        found: list[int] = np.flatnonzero(hit).tolist()
        return found

    def due(self, started_ns: int, cut: list[int], rng: np.random.Generator) -> list[int]:
        """Return the healthy 5-tuples that are traced in a round, and set when they are next."""
        if cut is self._cut and started_ns < self._next_ns:
            return []
        due = self.trace_ns <= started_ns
        due[cut] = False
        found: list[int] = np.flatnonzero(due).tolist()
        self.refresh(found, started_ns, rng)
        healthy = np.ones(len(self), np.bool_)
        healthy[cut] = False
        self._cut = cut
        self._next_ns = int(self.trace_ns.min(initial=FOREVER_NS, where=healthy))
        return found

    def settle(self, begin_ns: int, rng: np.random.Generator) -> None:
        """Let traces come round as in a cluster that has lived for long."""
        self.trace_ns[:] = begin_ns + rng.integers(0, REFRESH_NS, len(self))
        self._cut = None

    def refresh(self, places: list[int], now_ns: int, rng: np.random.Generator) -> None:
        """Set when healthy 5-tuples that have been traced are traced again."""
        spread = rng.integers(-REFRESH_NS // 8, REFRESH_NS // 8, len(places))
        self.trace_ns[places] = now_ns + REFRESH_NS + spread

    def lost_due(self, started_ns: int, cut: list[int], losses: TokenBucket) -> list[int]:
        """Return the 5-tuples that are traced because of a loss in a round, as an agent does.

        Parameters
        ----------
        losses
            The agent's budget.
        """
        if not cut or losses.wait_ns(started_ns):
            return []
        waiting = {
            (self.src[n], self.dst[n], self.flow[n]): n
            for n in cut
            if started_ns - self.told_ns[n] >= GAP_NS
        }
        told_ns = {key: int(self.told_ns[n]) for key, n in waiting.items()}
        found: list[int] = []
        for key in in_turn(told_ns, self._pairs_ns):
            if not losses.take_token(started_ns):
                break
            found.append(waiting[key])
            self._pairs_ns[key[:2]] = started_ns
        if found:
            self.told_ns[found] = started_ns
        return found

    def hops(self, place: int, switches: range, target0: int, dead: Dead) -> list[int | None]:
        """Return what answers a trace, None for what does not: beyond what is dead nothing does.

        Parameters
        ----------
        target0
            Number of the first endpoint: targets answer with their own addresses.
        """
        crossed: list[int] = [n for n in self.way[place].tolist() if n != NOWHERE]
        last = crossed[-1]
        if dead.isdisjoint(crossed):
            return [*(n for n in crossed[:-1] if n in switches), target0 + last]
        shown: list[int | None] = []
        for number in crossed:
            if number in dead:
                break
            if number in switches:
                shown.append(number)
        return [*shown, None]
