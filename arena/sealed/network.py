"""What becomes of packets: the one-way trips of all 5-tuples, and what delays or drops them.

Trip `2 * i` is that of the probes of flow `i`, trip `2 * i + 1` that of their replies. A process
that starts again gets new queue pairs, so the 5-tuples of its endpoints, and with them their
paths, are new as well.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena.sealed.cluster import Cluster, Flow
from arena.sealed.fabric import Routing
from arena.sealed.hashing import mixed
from arena.sealed.plan import Effect, Plan
from arena.sealed.queues import Load, Queues
from arena.sealed.schedule import Bools, Floats
from schemas.enums import ProbeStatus

Ints = NDArray[np.int64]

# Codes of `Outcome.status`; 0: the packet met nothing that says more than a timeout.
STATUSES: Final = (
    ProbeStatus.TIMEOUT,
    ProbeStatus.LINK_DOWN,
    ProbeStatus.NO_DEVICE,
    ProbeStatus.NO_GID,
    ProbeStatus.NO_ROUTE,
    ProbeStatus.UNREACHABLE,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of some packets, one row each.

    Attributes
    ----------
    lost : whether it did not arrive
    late_ns : how long it took, if it arrived
    status : index into STATUSES
    """

    lost: Bools
    late_ns: Floats
    status: Ints


def trip_keys(flow: Flow, generations: list[int], agent_of: list[int]) -> tuple[int, int]:
    """Return the hash inputs of probe and reply, by how often both agents have started again."""
    src, dst = generations[agent_of[flow.src]], generations[agent_of[flow.dst]]
    key = flow.key if not src else mixed(flow.key, src)
    reply = flow.reply_key if not (src or dst) else mixed(flow.reply_key, src, dst)
    return key, reply


def generations_at(cluster: Cluster, plan: Plan, at_s: float) -> list[int]:
    """Return how often each agent has started again by a time."""
    generations = [0] * len(cluster.agents)
    for outage in plan.outages:
        generations[outage.agent] += outage.end_s <= at_s and not outage.muted
    return generations


@dataclass(slots=True, kw_only=True)
class Network:
    """Trips as they are now. `advance` moves the time; it never goes back.

    Attributes
    ----------
    background : share of the packets that any trip loses while all is well
    """

    cluster: Cluster
    plan: Plan
    queues: Queues
    rng: np.random.Generator
    background: float = 0.0
    hops: list[tuple[int, ...]] = field(default_factory=list)
    routing: Routing = field(init=False)
    _dlink_ns: Floats = field(init=False)
    _agent_of: list[int] = field(init=False)
    _ends: list[tuple[int, int]] = field(init=False)
    _padded: Ints = field(init=False)
    _base_ns: Floats = field(init=False)
    _masks: dict[int, Bools] = field(default_factory=dict)
    _effects: list[tuple[int, Effect]] = field(default_factory=list)
    _loads: list[Load] = field(default_factory=list)
    _version: object = None

    def __post_init__(self) -> None:
        self.routing = self.cluster.routing()
        self._dlink_ns = self.cluster.fabric.base_ns()
        self._agent_of = [site.agent for site in self.cluster.sites]
        self._ends = [
            end
            for flow in self.cluster.flows
            for end in ((flow.src, flow.dst), (flow.dst, flow.src))
        ]
        self.advance(0.0, 0.0)

    def advance(self, begin_s: float, end_s: float) -> None:
        """Make everything as it is between two times; routes as at the first."""
        done = sum(reroute.at_s <= begin_s for reroute in self.plan.reroutes)
        generations = generations_at(self.cluster, self.plan, begin_s)
        version = (done, tuple(generations))
        if version != self._version:
            self._version = version
            self._route(begin_s, generations)
        self._effects = [
            (i, effect)
            for i, effect in enumerate(self.plan.effects)
            if effect.schedule.begin_s <= end_s and effect.schedule.end_s >= begin_s
        ]
        self._loads = [
            load
            for load in self.plan.loads
            if load.schedule.begin_s <= end_s and load.schedule.end_s >= begin_s
        ]

    def trip_ends(self, trip: int) -> tuple[int, int]:
        """Return the endpoints that a trip leaves and enters."""
        return self._ends[trip]

    def least_ns(self, dlinks: tuple[int, ...]) -> float:
        """Return the time over directed links without queues."""
        return float(self._dlink_ns[list(dlinks)].sum())

    def active_effects(self) -> list[Effect]:
        """Return the effects that may be on now."""
        return [effect for _, effect in self._effects]

    def send(self, trips: Ints, at_s: Floats) -> Outcome:
        """Return what becomes of a packet on each of these trips, sent at these times."""
        hops = self._padded[trips]
        waits = self.queues.waits_ns(
            self.queues.loads(hops, at_s[:, None], self._loads), self.rng
        ).sum(axis=1)
        late_ns = self._base_ns[trips] + waits
        lost = np.asarray(self.rng.random(len(trips)) < self.background)
        status = np.zeros(len(trips), dtype=np.int64)
        for index, effect in self._effects:
            hit = self._mask(index, effect)[trips] & effect.schedule.on(at_s)
            if not hit.any():
                continue
            if effect.loss > 0.0:
                dropped = hit if effect.loss >= 1.0 else hit & self._chance(effect.loss, hit)
                lost |= dropped
                if effect.status is not None:
                    status[dropped] = STATUSES.index(effect.status)
            if effect.delay is not None:
                late = hit & self._chance(effect.delay.share, hit)
                wait = self.rng.standard_exponential(len(trips)) * effect.delay.spread_ns
                late_ns = late_ns + np.where(late, effect.delay.fixed_ns + wait, 0.0)
        return Outcome(lost, late_ns, status)

    def _chance(self, share: float, like: Bools) -> Bools:
        return np.asarray(self.rng.random(like.shape) < share)

    def _mask(self, index: int, effect: Effect) -> Bools:
        mask = self._masks.get(index)
        if mask is None:
            mask = self._masks[index] = np.array(
                [
                    effect.where.position(*ends, hops, reply=bool(trip & 1)) is not None
                    for trip, (ends, hops) in enumerate(zip(self._ends, self.hops, strict=True))
                ]
            )
        return mask

    def _route(self, at_s: float, generations: list[int]) -> None:
        """Send every 5-tuple along the path that routing has for it now."""
        cluster = self.cluster
        self.routing = cluster.routing()
        for reroute in sorted(self.plan.reroutes, key=lambda r: r.at_s):
            if reroute.at_s <= at_s:
                change = self.routing.restore if reroute.up else self.routing.withdraw
                change(reroute.cable)
        usual = cluster.routing()
        self.hops = []
        for flow in cluster.flows:
            keys = trip_keys(flow, generations, self._agent_of)
            for (src, dst), key in zip(
                ((flow.src, flow.dst), (flow.dst, flow.src)), keys, strict=True
            ):
                # Where nothing better is left, the aggregate route leads to what is broken.
                self.hops.append(self.routing.path(src, dst, key) or usual.path(src, dst, key))
        longest = max(6, *(len(hops) for hops in self.hops))
        padding = cluster.fabric.dlinks
        self._padded = np.full((len(self.hops), longest), padding, dtype=np.int64)
        for trip, hops in enumerate(self.hops):
            self._padded[trip, : len(hops)] = hops
        self._base_ns = self._dlink_ns[self._padded].sum(axis=1)
        self._masks = {}
