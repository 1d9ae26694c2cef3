"""A world while it is drawn: places for faults, rules for their strength, and their truth."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arena.sealed.cluster import Cluster
from arena.sealed.network import Network
from arena.sealed.plan import Delay, Effect, Plan, Reader, StateSteps, Value, Where
from arena.sealed.queues import Queues
from arena.sealed.schedule import Schedule, intersection, renewal
from arena.sealed.states import Readers
from arena.sealed.truth import FlowSet, Geometry, Injected, geometry
from schemas.units import SECOND_NS

LEAD_S: Final = 360.0
TAIL_S: Final = 120.0
LEAST_LOST: Final = 12.0
LEAST_LATE_S: Final = 90.0
LEAST_PULSED_S: Final = 60.0


class NoPlaceError(Exception):
    """A kind of fault has no place in this cluster at this time."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """A world in the making.

    Attributes
    ----------
    duration_s : of the world
    injected : what has been drawn
    affected : for each fault, when it is there and the 5-tuples that it hits
    """

    cluster: Cluster
    plan: Plan
    readers: Readers
    queues: Queues
    rng: np.random.Generator
    start_ns: int
    duration_s: float
    injected: list[Injected] = field(default_factory=list)
    affected: list[tuple[float, float, FlowSet]] = field(default_factory=list)

    def ns(self, at_s: float) -> int:
        """Return a time in nanoseconds since the epoch."""
        return self.start_ns + int(at_s * SECOND_NS)

    def geometry(self, begin_s: float, end_s: float) -> Geometry:
        """Return the paths of what is probed all the time between two times."""
        return geometry(self.cluster, self.plan, begin_s, end_s)

    def log_uniform(self, low: float, high: float) -> float:
        """Return a number whose logarithm is uniform."""
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def chosen(self, count: int) -> int:
        """Return a random index."""
        return int(self.rng.integers(count))

    def shuffled(self, items: list[int]) -> list[int]:
        """Return items in random order."""
        return [items[int(i)] for i in self.rng.permutation(len(items))]

    def is_free(self, begin_s: float, end_s: float, affected: FlowSet) -> bool:
        """Return whether another fault leaves at least half of these 5-tuples to this one."""
        return all(
            2 * len(affected & others) <= min(len(affected), len(others))
            for since_s, until_s, others in self.affected
            if since_s < end_s + 30.0 and begin_s < until_s + 30.0
        )

    def fabric_cables(self) -> list[int]:
        """Return the cables between switches, in random order."""
        fabric = self.cluster.fabric
        return self.shuffled(
            [i for i, cable in enumerate(fabric.cables) if cable.a >= fabric.rnics]
        )

    def access_cables(self) -> list[int]:
        """Return the cables of RNICs, in random order."""
        fabric = self.cluster.fabric
        return self.shuffled([i for i, cable in enumerate(fabric.cables) if cable.a < fabric.rnics])

    def switches(self) -> list[int]:
        """Return the switches, in random order."""
        fabric = self.cluster.fabric
        return self.shuffled(list(range(fabric.rnics, len(fabric.nodes))))

    def endpoints(self) -> list[int]:
        """Return endpoints with a job, in random order."""
        sites = self.cluster.sites
        return self.shuffled([e for e, site in enumerate(sites) if site.task >= 0])

    def hosts(self) -> list[int]:
        """Return hosts with a job, in random order."""
        busy = {site.host for site in self.cluster.sites if site.task >= 0}
        return self.shuffled(sorted(busy))

    def cable_names(self, cables: list[int]) -> frozenset[str]:
        """Return the names of cables and of all that are parallel to them."""
        fabric = self.cluster.fabric
        return frozenset(
            fabric.cables[other].name for cable in cables for other in fabric.parallel(cable)
        )

    def lost(self, geo: Geometry, effects: list[Effect]) -> float:
        """Return how many probes some effects lose in expectation, at one probe a second."""
        total = 0.0
        for effect in effects:
            probes, replies = geo.hit(effect.where)
            total += (len(probes) + len(replies)) * effect.loss * effect.schedule.on_s
        return total

    def spread_ns(self, flows: FlowSet, before_s: float) -> float:
        """Return half the interquartile range of the round trips of the median 5-tuple, unhurt."""
        rng = np.random.Generator(np.random.PCG64(int(self.rng.integers(2**62))))
        network = Network(cluster=self.cluster, plan=Plan(), queues=self.queues, rng=rng)
        at_s = rng.uniform(max(0.0, before_s - 300.0), before_s, 120)
        spreads = []
        for flow in sorted(flows)[:8]:
            trips = np.full(len(at_s), 2 * flow)
            rtt = network.send(trips, at_s).late_ns + network.send(trips + 1, at_s).late_ns
            low, high = np.quantile(rtt, [0.25, 0.75])
            spreads.append((high - low) / 2.0)
        return float(np.median(spreads))

    def named(self, reader: Reader, attribute: str, begin_s: float, end_s: float) -> bool:
        """Return whether a state that changes at the first time is published well before the last.

        Only then does it name a fault for sure.
        """
        if not self.readers.shows(reader, attribute):
            return False
        shown_s = begin_s + self.readers.within_s(reader)
        for paused, schedule in self.plan.reader_pauses:
            if paused is reader and schedule.begin_s < shown_s and begin_s < schedule.end_s:
                shown_s = schedule.end_s + self.readers.within_s(reader)
        for schedule in self.plan.broker_pauses:
            if schedule.begin_s <= shown_s < schedule.end_s + 5.0:
                shown_s = schedule.end_s + 5.0
        return shown_s < end_s - 30.0

    def set_state(
        self, component: str, attribute: str, begin_s: float, end_s: float, value: Value
    ) -> None:
        """Let an attribute have a value for a while."""
        steps = ((begin_s, value), (end_s, None))
        self.plan.states.append(StateSteps(component=component, attribute=attribute, steps=steps))

    def add_fault(
        self, *, kind: str, also: frozenset[str] = frozenset(), components: frozenset[str],
        over: Schedule, hard: bool, note: str, affected: FlowSet,
    ) -> None:  # fmt: skip
        """Write down the truth of a fault whose mechanisms are in the plan."""
        lasts = over.end_s >= self.duration_s
        count = sum(not entry.confounder for entry in self.injected)
        self.injected.append(
            Injected(
                name=f"fault-{count + 1}-{kind}", kind=kind, also_kinds=also - {kind},
                components=components, begin_ns=self.ns(over.begin_s),
                end_ns=None if lasts else self.ns(over.end_s), hard=hard, confounder=False,
                note=note,
            )
        )  # fmt: skip
        self.affected.append((over.begin_s, over.end_s, affected))

    def add_confounder(
        self, *, kind: str, components: frozenset[str], begin_s: float, end_s: float, note: str
    ) -> None:
        """Write down a look-alike."""
        count = sum(entry.confounder for entry in self.injected)
        self.injected.append(
            Injected(
                name=f"confounder-{count + 1}-{kind}", kind=kind, also_kinds=frozenset(),
                components=components, begin_ns=self.ns(begin_s),
                end_ns=None if end_s >= self.duration_s else self.ns(end_s), hard=False,
                confounder=True, note=note,
            )
        )  # fmt: skip


def lossy(
    rng: np.random.Generator, where: Where, over: Schedule, share: float, *, bursts: bool
) -> Effect:
    """Return an effect that loses a share of the packets while a schedule is on.

    Parameters
    ----------
    bursts
        Whether the losses come in bursts (a Gilbert-Elliott channel) or independently (Bernoulli).
    """
    if not bursts:
        return Effect(where=where, schedule=over, loss=share)
    in_burst = float(rng.uniform(max(0.3, min(1.5 * share, 0.9)), 1.0))
    on_s = float(rng.uniform(0.05, 0.6))
    bad = renewal(rng, over.begin_s, over.end_s, on_s=on_s, off_s=on_s * (in_burst / share - 1.0))
    schedule = intersection(over, bad)
    # A short fault may draw few bursts; scaled to the mean, it loses what was meant.
    factor = share * over.on_s / max(schedule.on_s * in_burst, 1e-9)
    return Effect(where=where, schedule=schedule, loss=min(1.0, in_burst * factor))


def late(shift_ns: float, rng: np.random.Generator) -> Delay:
    """Return a delay of this mean, most of it constant."""
    fixed = float(rng.uniform(0.6, 1.0))
    return Delay(fixed_ns=shift_ns * fixed, spread_ns=shift_ns * (1.0 - fixed))
