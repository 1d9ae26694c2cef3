"""Queues of the cables: how full they are, and how long a probe waits in them.

Jobs alternate between computing and communicating, so a directed link has two loads and a period
(an on-off source). Packets of one message arrive together; a probe finds the server busy with
probability `rho` and then waits exponentially long, with the mean that Pollaczek and Khinchine's
formula gives for the burstiness of the batches (M/G/1). RDMA's class is lossless: what is full
delays, and pause frames (PFC, 802.1Qbb) make the links in front of it wait as well.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena.sealed.cluster import Cluster
from arena.sealed.schedule import Floats, Schedule

# A 4-KiB packet at 400 and at 200 Gb/s.
SERVICE_NS: Final = (82.0, 164.0)
MOST_LOAD: Final = 0.985
# Share of its load that a paused link passes on to those in front of it.
PAUSE_SPREAD: Final = 0.55


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load above the usual on some directed links."""

    dlinks: frozenset[int]
    schedule: Schedule
    rho: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """Usual load of each directed link; the last row is the padding, always empty.

    Attributes
    ----------
    busy, quiet : shape (dlinks + 1,), load in the two phases
    period_s, shift_s, share : of the busy phase
    service_ns : mean time that one packet takes
    burst : (1 + squared coefficient of variation) / 2 of the service time of a batch
    """

    busy: Floats
    quiet: Floats
    period_s: Floats
    shift_s: Floats
    share: Floats
    service_ns: float
    burst: float

    def loads(self, dlinks: NDArray[np.int64], at_s: Floats, extra: list[Load]) -> Floats:
        """Return the load of directed links at times; shapes broadcast."""
        phase = np.mod((at_s + self.shift_s[dlinks]) / self.period_s[dlinks], 1.0)
        rho = np.where(phase < self.share[dlinks], self.busy[dlinks], self.quiet[dlinks])
        for load in extra:
            hit = np.isin(dlinks, sorted(load.dlinks)) & load.schedule.on(at_s)
            rho = np.where(hit, np.maximum(rho, load.rho), rho)
        return np.minimum(rho, MOST_LOAD)

    def waits_ns(self, rho: Floats, rng: np.random.Generator) -> Floats:
        """Return a random time in the queue for each load."""
        mean_busy = self.service_ns * self.burst / (1.0 - rho)
        busy = rng.random(rho.shape) < rho
        return np.where(busy, rng.standard_exponential(rho.shape) * mean_busy, 0.0)


def draw_queues(cluster: Cluster, rng: np.random.Generator) -> Queues:
    """Return the loads that a cluster's jobs put on its cables.

    A cable carries load in proportion to the 5-tuples of the job that cross it, which ECMP deals
    unevenly.
    """
    routing = cluster.routing()
    count = cluster.fabric.dlinks + 1
    crossing = np.zeros(count)
    task_of = np.zeros(count, dtype=int)
    for flow in cluster.flows:
        for dlink in routing.path(flow.src, flow.dst, flow.key):
            crossing[dlink] += 1.0
            task_of[dlink] = cluster.sites[flow.src].task
    tasks = len(cluster.tasks)
    period = rng.uniform(2.0, 25.0, tasks)
    share = rng.uniform(0.3, 0.65, tasks)
    level = rng.uniform(0.1, 0.42, tasks)
    typical = np.median(crossing[crossing > 0])
    busy = level[task_of] * np.sqrt(np.minimum(crossing / typical, 2.5))
    busy = np.minimum(busy * rng.uniform(0.85, 1.15, count), 0.75)
    quiet = rng.uniform(0.01, 0.06, count)
    busy[-1] = quiet[-1] = 0.0
    return Queues(
        busy=np.maximum(busy, quiet),
        quiet=quiet,
        period_s=period[task_of],
        shift_s=rng.uniform(0.0, 0.3, count) * period[task_of],
        share=share[task_of],
        service_ns=float(rng.choice(SERVICE_NS)),
        burst=float(np.exp(rng.uniform(np.log(3.0), np.log(14.0)))),
    )


def paused_loads(cluster: Cluster, load: Load) -> list[Load]:
    """Return a load and what its pause frames do to the links that lead to it."""
    fabric = cluster.fabric
    tails = {fabric.tail(dlink) for dlink in load.dlinks}
    if load.rho < 0.9:
        return [load]
    behind = frozenset(
        dlink
        for dlink in range(fabric.dlinks)
        if fabric.head(dlink) in tails
        and dlink not in load.dlinks
        and fabric.head(dlink) >= fabric.rnics
    )
    spread = Load(dlinks=behind, schedule=load.schedule, rho=load.rho * PAUSE_SPREAD)
    return [load, spread]
