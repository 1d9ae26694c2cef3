"""Traffic that is no part of training: health checks, pings, storage, checkpoints, tests.

Its other end is not an RNIC of the capture, except for tests between idle hosts.
"""

from collections.abc import Sequence

import numpy as np

from arena.sealed_jobs.fleet import Fleet, FloatArray, IntArray
from arena.sealed_jobs.ports import Ports

PINGS_PER_S = 8


def _pulses(
    ports: Ports,
    rnics: IntArray,
    at: FloatArray,
    seconds: FloatArray | float,
    *,
    tx: FloatArray | float = 0.0,
    rx: FloatArray | float = 0.0,
) -> None:
    """Add pulses; all arrays are broadcast to the shape of `at`."""
    shape = at.shape
    ports.add_ramps(
        np.broadcast_to(rnics, shape).reshape(-1),
        start=at.reshape(-1),
        end=(at + seconds).reshape(-1),
        tx=np.broadcast_to(np.asarray(tx, float), shape).reshape(-1),
        rx=np.broadcast_to(np.asarray(rx, float), shape).reshape(-1),
    )


def add_housekeeping(rng: np.random.Generator, ports: Ports) -> None:
    """Add what every port carries: a trickle of control traffic and periodic health checks."""
    everyone = np.arange(ports.rnics)
    trickle = rng.uniform(200, 20_000) * np.exp(rng.normal(0, 0.5, ports.rnics))
    whole_s = ports.seconds + 2
    _pulses(
        ports,
        everyone,
        np.full(ports.rnics, -1.0),
        whole_s,
        tx=trickle * whole_s,
        rx=trickle * whole_s * np.exp(rng.normal(0, 0.2, ports.rnics)),
    )
    period_s = float(rng.choice([1.0, 5.0, 10.0, 30.0]))
    size = float(np.exp(rng.uniform(np.log(2e3), np.log(5e5))))
    count = int(ports.seconds / period_s) + 1
    at = rng.uniform(0, period_s, (ports.rnics, 1)) + period_s * np.arange(count)
    sizes = size * np.exp(rng.normal(0, 0.3, at.shape))
    _pulses(ports, everyone[:, None], at, 0.01, tx=sizes, rx=sizes)


def add_pings(rng: np.random.Generator, ports: Ports, rnics: Sequence[int]) -> None:
    """Add eight probes a second and their replies to RNICs that no job uses."""
    if not rnics:
        return
    count = int(ports.seconds * PINGS_PER_S)
    at = rng.uniform(0, ports.seconds, (len(rnics), count))
    size = float(rng.uniform(64, 1500))
    _pulses(ports, np.array(rnics)[:, None], at, 1e-4, tx=size, rx=size)


def add_storage_reads(
    rng: np.random.Generator, ports: Ports, rnics: Sequence[int], bytes_per_s: float
) -> None:
    """Add reads of training data through some RNICs, at times of their own."""
    chosen = [r for r in rnics if rng.random() < 0.7]
    mean_s = float(rng.uniform(2, 20))
    size = float(np.exp(rng.uniform(np.log(2e6), np.log(2e8))))
    for rnic in chosen:
        count = int(rng.poisson(ports.seconds / mean_s))
        at = rng.uniform(0, ports.seconds, count)
        sizes = size * np.exp(rng.normal(0, 0.5, count))
        seconds = sizes / (bytes_per_s * rng.uniform(0.05, 0.3, count))
        _pulses(ports, np.array(rnic), at, seconds, tx=sizes * 0.01, rx=sizes)


def add_checkpoints(
    rng: np.random.Generator,
    ports: Ports,
    rnics: Sequence[int],
    pauses: Sequence[tuple[float, float]],
    bytes_per_s: float,
) -> None:
    """Add writes to storage at the given times."""
    chosen = np.array(sorted(rnics))
    share = float(np.exp(rng.uniform(np.log(0.005), np.log(0.1))))
    for start, end in pauses:
        at = start + rng.uniform(0, 0.15, len(chosen)) * (end - start)
        seconds = (end - at) * rng.uniform(0.5, 0.95, len(chosen))
        sizes = seconds * share * bytes_per_s * np.exp(rng.normal(0, 0.2, len(chosen)))
        _pulses(ports, chosen, at, seconds, tx=sizes, rx=sizes * 0.01)


def add_tests(
    rng: np.random.Generator,
    ports: Ports,
    fleet: Fleet,
    idle_hosts: Sequence[int],
    bytes_per_s: float,
) -> None:
    """Add a bandwidth test between two idle hosts: all rails, some seconds, once."""
    if len(idle_hosts) < 2:
        return
    pair = rng.choice(np.array(idle_hosts), 2, replace=False)
    rnics = np.array([r for r, host in enumerate(fleet.rnic_host) if host in pair])
    at = np.full(len(rnics), float(rng.uniform(0, 0.8 * ports.seconds)))
    seconds = float(rng.uniform(2, 12))
    sizes = seconds * 0.9 * bytes_per_s
    _pulses(ports, rnics, at, seconds, tx=sizes, rx=sizes)
