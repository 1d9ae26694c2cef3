"""Small worlds for tests: a cluster of a seed, with a plan of the test's own."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from arena.sealed.cluster import Cluster, draw_cluster
from arena.sealed.draft import Draft, NoPlaceError
from arena.sealed.network import Network
from arena.sealed.plan import Plan, Reader
from arena.sealed.queues import Queues, draw_queues
from arena.sealed.states import Readers
from arena.sealed.stream import SealedWorld, Timed
from schemas.records import ProbeResult
from schemas.topics import PROBE_ROUND

START_NS = 1_750_000_000 * 10**9
READERS = Readers(
    period_s={Reader.AGENT: 5.0, Reader.COLLECTOR: 30.0, Reader.PLATFORM: 5.0},
    late_s={Reader.AGENT: 0.5, Reader.COLLECTOR: 1.0, Reader.PLATFORM: 1.0},
    unreadable=frozenset(),
)


def rng_of(*entropy: int) -> np.random.Generator:
    """Return a generator of random numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


@cache
def cluster_where(wanted: Callable[[Cluster], bool]) -> Cluster:
    """Return the first cluster with a property."""
    clusters = (draw_cluster(f"sealed-test-{seed}", rng_of(seed, 77)) for seed in range(400))
    return next(cluster for cluster in clusters if wanted(cluster))


def in_overlay(cluster: Cluster) -> bool:
    """Whether a cluster has an overlay whose switches report offloading, and is not large."""
    return cluster.overlay and not cluster.fdb and len(cluster.sites) <= 32


def bonded(cluster: Cluster) -> bool:
    """Whether RNICs have two ports."""
    return cluster.shape.homes == 2 and len(cluster.sites) <= 32


def single(cluster: Cluster) -> bool:
    """Whether RNICs have one port, and each container an agent."""
    return cluster.shape.homes == 1 and len(cluster.sites) <= 32 and cluster.sidecars


def world_of(cluster: Cluster, plan: Plan, duration_s: int = 60, seed: int = 1) -> SealedWorld:
    """Return a world in which a plan happens, and nothing else."""
    return SealedWorld(
        cluster=cluster.name,
        start_ns=START_NS,
        duration_s=duration_s,
        injected=(),
        site=cluster,
        plan=plan,
        queues=calm(draw_queues(cluster, rng_of(seed, 5))),
        readers=READERS,
        background=0.0,
        republish_s=600.0,
        entropy=(seed, 3),
    )


def draft_of(cluster: Cluster, duration_s: float = 900.0, seed: int = 1) -> Draft:
    """Return an empty draft."""
    rng = rng_of(seed, 5)
    return Draft(
        cluster=cluster,
        plan=Plan(),
        readers=READERS,
        queues=calm(draw_queues(cluster, rng)),
        rng=rng,
        start_ns=START_NS,
        duration_s=duration_s,
    )


def calm(queues: Queues) -> Queues:
    """Return queues that are nearly empty, so that effects stand out."""
    return replace(queues, busy=queues.quiet)


def results_of(records: Iterator[Timed] | list[Timed]) -> Iterator[tuple[float, ProbeResult]]:
    """Yield all results with the second of the world in which they were sent, by their clocks."""
    for timed in records:
        if timed.topic == PROBE_ROUND.name:
            begin_s = timed.record.started_at / 1e6 - START_NS / 1e9
            for result in timed.record.results:
                yield begin_s + result.sent_offset_ns / 1e9, result


Build = Callable[[Draft, float, float], None]
BEGIN_S, END_S = 30.0, 150.0


def draft_with(build: Build) -> Draft:
    """Return a draft with one fault between BEGIN_S and END_S, on the first cluster fit for it."""
    for wanted in (in_overlay, bonded, single):
        for seed in range(6):
            draft = draft_of(cluster_where(wanted), seed=seed)
            try:
                build(draft, BEGIN_S, END_S)
            except NoPlaceError:
                continue
            return draft
    raise AssertionError("no cluster is fit for it")


def hit_by(draft: Draft) -> frozenset[int]:
    """Return the 5-tuples of whose probes or replies some effect of the plan takes hold."""
    geo = draft.geometry(0.0, 1.0)
    hits = [geo.hit(effect.where) for effect in draft.plan.effects]
    return frozenset().union(*(probes | replies for probes, replies in hits))


def measured(
    draft: Draft, begin_s: float, end_s: float, count: int = 120
) -> tuple[np.ndarray, np.ndarray]:
    """Return each 5-tuple's share of losses and mean round trip (ns) between two times."""
    network = Network(cluster=draft.cluster, plan=draft.plan, queues=draft.queues, rng=rng_of(4))
    trips = 2 * np.arange(len(draft.cluster.flows))
    lost = np.zeros(len(trips))
    late_ns = np.zeros(len(trips))
    for at_s in np.linspace(begin_s, end_s, count, endpoint=False):
        network.advance(float(at_s), float(at_s) + 1.0)
        there = network.send(trips, np.full(len(trips), at_s))
        back = network.send(trips + 1, np.full(len(trips), at_s))
        lost += there.lost | back.lost
        late_ns += there.late_ns + back.late_ns
    return lost / count, late_ns / count
