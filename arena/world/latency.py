"""Round-trip times of a healthy fabric.

A path has a base from its hops, spread a little between paths; on it every probe draws a
log-normal factor, sometimes waits in a queue that the job's bursts fill, and rarely meets
a long tail of the hosts. With these constants a path of three switches has a median of
some 16 µs, what the published system reports for its RoCE fabric (background in the
README's sources); queueing and tails are of the size that R-Pingmesh shows (SIGCOMM 2024,
figure 11).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from arena.world.cluster import ENDS, Cluster
from arena.world.fabric import NOWHERE
from schemas.columns.arrays import Floats, Int64s
from schemas.units import SECOND_NS

# Both hosts' RNICs, PCIe and completion handling, and each crossed cable and switch, both ways.
HOSTS_NS: Final = 8_500
CROSSED_NS: Final = 1_250
# What is crossed in the fabric begins and ends with an RNIC.
RNICS: Final = 2
PATH_SIGMA: Final = 0.04
PROBE_SIGMA: Final = 0.06
# A burst fills queues for a part of each iteration.
BURST_SHARE: Final = 0.35
# Iterations of one job are longer than another's, and no two of a job are equally long.
PERIOD_SIGMA: Final = 0.4
WANDER: Final = 0.04
TAIL_RATE: Final = 2e-4
TAIL_NS: Final = 40_000
# Pareto exponent of the tail: finite mean, no finite variance.
TAIL_SHAPE: Final = 1.8
MAX_TAIL_NS: Final = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Load:
    """How jobs load the fabric: bursts of `queue_ns` on average, about every `period_ns`."""

    period_ns: int = 2_000_000_000
    queue_ns: float = 1_200.0


class RoundTrips:
    """Draws round-trip times of all 5-tuples of a cluster."""

    def __init__(
        self, cluster: Cluster, rng: np.random.Generator, load: Load | None = None
    ) -> None:
        flows = cluster.flows
        crossed = (flows.there != NOWHERE).sum(axis=1) - ENDS - RNICS
        spread = np.exp(rng.normal(0.0, PATH_SIGMA, len(flows)))
        self.base_ns: Floats = (HOSTS_NS + CROSSED_NS * crossed) * spread
        self._load = load or Load()
        jobs = max(1, len(cluster.jobs))
        self._phase = rng.random(jobs)
        self._period_ns = self._load.period_ns * np.exp(rng.normal(0.0, PERIOD_SIGMA, jobs))
        self._second = 0
        self._job = flows.job
        self._rng = rng

    def draw(self, sent_ns: Int64s) -> Int64s:
        """Return a round-trip time of each 5-tuple in ns, without what is wrong; shape (flows,)."""
        count = len(sent_ns)
        self._wander(sent_ns)
        rtt = self.base_ns * np.exp(self._rng.normal(0.0, PROBE_SIGMA, count))
        phase = (sent_ns / self._period_ns[self._job] + self._phase[self._job]) % 1.0
        queued = self._rng.exponential(self._load.queue_ns, count)
        rtt += np.where(phase < BURST_SHARE, queued, 0.0)
        tail = np.flatnonzero(self._rng.random(count) < TAIL_RATE)
        if len(tail):
            rtt[tail] += np.minimum(
                TAIL_NS * (1 + self._rng.pareto(TAIL_SHAPE, len(tail))), MAX_TAIL_NS
            )
        return np.rint(rtt).astype(np.int64)

    def _wander(self, sent_ns: Int64s) -> None:
        """Once a second, let the jobs' iterations fall a little out of step."""
        second = int(sent_ns.max(initial=0)) // SECOND_NS
        if second > self._second:
            self._phase += self._rng.normal(0.0, WANDER, len(self._phase))
            self._second = second
