"""Noise that hosts and RNICs add: timestamps, software delays, stalls, and wrong clocks.

A round trip is measured by the RNICs' clocks, so a busy CPU does not lengthen it; it shows in the
delays of prober and responder, and in answers that come too late. Every host has a usual delay of
its own, from microseconds (polling, pinned cores) to milliseconds (a container with a CPU quota).
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arena.sealed.cluster import Cluster
from arena.sealed.schedule import Floats, Schedule, renewal

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """A host whose CPU is short.

    Attributes
    ----------
    stalls : when its processes do not run at all
    over : the whole time
    factor : by which its usual delays grow meanwhile
    """

    host: int
    stalls: Schedule
    over: Schedule
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RnicNoise:
    """What each RNIC adds to a round trip; all arrays have one row for each RNIC.

    Attributes
    ----------
    offset_ns : always, by generation, firmware and PCIe slot
    sigma_ns : of the everyday jitter
    tail_share, tail_ns : share and mean of round trips that meet a busy PCIe or memory bus
    step_ns : resolution of the RNIC's timestamps
    drift_ns, drift_s, drift_phase : amplitude, period and phase of what follows temperature
    jump_s, jump_ns : when the clock's rate is corrected, and by how much round trips move for good
    """

    offset_ns: Floats
    sigma_ns: Floats
    tail_share: Floats
    tail_ns: Floats
    step_ns: Floats
    drift_ns: Floats
    drift_s: Floats
    drift_phase: Floats
    jump_s: Floats
    jump_ns: Floats

    def added_ns(self, rnic: Ints, at_s: Floats, rng: np.random.Generator) -> Floats:
        """Return what an RNIC adds, at either end."""
        count = rnic.shape
        noise = self.offset_ns[rnic] + self.sigma_ns[rnic] * rng.standard_normal(count)
        tail = rng.random(count) < self.tail_share[rnic]
        noise += np.where(tail, rng.standard_exponential(count) * self.tail_ns[rnic], 0.0)
        angle = 2.0 * np.pi * at_s / self.drift_s[rnic] + self.drift_phase[rnic]
        noise += self.drift_ns[rnic] * np.sin(angle)
        return noise + np.where(at_s >= self.jump_s[rnic], self.jump_ns[rnic], 0.0)


@dataclass(slots=True, kw_only=True)
class Hosts:
    """Software of the hosts; arrays have one row for each host.

    Attributes
    ----------
    delay_ns, delay_sigma : median and log-deviation of the usual delay
    slow_share, slow_factor : share of wake-ups out of a deep sleep state, and how much longer
        these take
    usual_stalls : rare moments in which a host's processes do not run
    clock_ns : wall clock less true time
    """

    delay_ns: Floats
    delay_sigma: Floats
    slow_share: Floats
    slow_factor: Floats
    usual_stalls: list[Schedule]
    clock_ns: Floats
    starving: list[Starvation] = field(default_factory=list)

    def delays_ns(self, host: Ints, at_s: Floats, rng: np.random.Generator) -> Floats:
        """Return how long software holds a packet, the rest of a stall included."""
        count = host.shape
        delay = self.delay_ns[host] * np.exp(self.delay_sigma[host] * rng.standard_normal(count))
        slow = rng.random(count) < self.slow_share[host]
        delay = np.where(slow, delay * self.slow_factor[host], delay)
        for starvation in self.starving:
            hit = (host == starvation.host) & starvation.over.on(at_s)
            delay = np.where(hit, delay * starvation.factor, delay)
        return delay + 1e9 * self.stalled_s(host, at_s)

    def stalled_s(self, host: Ints, at_s: Floats) -> Floats:
        """Return how long the stall of a host still lasts; 0: it runs."""
        left = np.zeros(host.shape)
        for of_host in np.unique(host):
            here = host == of_host
            left[here] = self.usual_stalls[of_host].remaining(at_s[here])
        for starvation in self.starving:
            hit = host == starvation.host
            if hit.any():
                rest = starvation.stalls.remaining(at_s[hit])
                left[hit] = np.maximum(left[hit], rest)
        return left


def draw_rnic_noise(cluster: Cluster, duration_s: float, rng: np.random.Generator) -> RnicNoise:
    """Return the noise of a cluster's RNICs; most have one model, some differ."""
    count = len(cluster.sites)
    odd = rng.random(count) < 0.1
    jumps = rng.random(count) < duration_s / 3600.0 * 0.3
    return RnicNoise(
        offset_ns=rng.uniform(900.0, 1500.0) + rng.normal(0.0, 120.0, count)
        + np.where(odd, rng.uniform(200.0, 2500.0, count), 0.0),
        sigma_ns=rng.uniform(40.0, 160.0) * np.exp(0.3 * rng.standard_normal(count)),
        tail_share=np.minimum(rng.uniform(0.002, 0.03) * rng.uniform(0.5, 2.0, count), 0.06),
        tail_ns=rng.uniform(600.0, 5000.0, count),
        step_ns=rng.choice([1.0, 4.0, 8.0, 64.0, 256.0], count, p=[0.2, 0.4, 0.2, 0.15, 0.05]),
        drift_ns=rng.uniform(0.0, 350.0, count),
        drift_s=rng.uniform(3600.0, 6.0 * 3600.0, count),
        drift_phase=rng.uniform(0.0, 2.0 * np.pi, count),
        jump_s=np.where(jumps, rng.uniform(0.0, duration_s, count), np.inf),
        jump_ns=rng.uniform(-600.0, 600.0, count),
    )  # fmt: skip


def draw_hosts(cluster: Cluster, duration_s: float, rng: np.random.Generator) -> Hosts:
    """Return the software of a cluster's hosts."""
    count = len(cluster.hosts)
    usual = np.exp(rng.uniform(np.log(2e3), np.log(4e5)))
    spread = float(rng.choice([0.15, 0.6, 1.4]))
    delay = usual * np.exp(spread * rng.standard_normal(count))
    if rng.random() < 0.4:
        delay[rng.integers(count)] *= rng.uniform(5.0, 60.0)
    stalls = [
        renewal(rng, 0.0, duration_s, on_s=float(rng.uniform(0.005, 0.04)),
                off_s=float(rng.uniform(20.0, 300.0)))
        for _ in range(count)
    ]  # fmt: skip
    return Hosts(
        delay_ns=np.clip(delay, 1.5e3, 4e6),
        delay_sigma=rng.uniform(0.15, 0.7, count),
        slow_share=rng.uniform(0.0, 0.08, count),
        # Not even the slowest wake-ups come near the timeout while a host is healthy.
        slow_factor=np.minimum(rng.uniform(3.0, 25.0, count), 2e7 / np.clip(delay, 1.5e3, 4e6)),
        usual_stalls=stalls,
        clock_ns=rng.normal(0.0, 1.5e6, count),
    )
