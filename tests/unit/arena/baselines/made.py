"""A small fabric, its topology records, and windows of it with a known fault."""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from arena.baselines.observing import Network, Window, window_of
from arena.simulation.setup import topology
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import NOWHERE, Fabric, FabricShape
from arena.world.topology import endpoint_id
from localizer.facts.overlay import FlowTables
from localizer.network.topology import Topology
from schemas.units import SECOND_NS, US_NS

HEALTHY_NS: Final = 16 * US_NS

CLUSTER: Final = Cluster(
    Fabric(FabricShape(hosts=8, rails=2, segment_hosts=2, spines=2)),
    (JobPlan(task_id="job", first_host=0, hosts=8),),
    targets=4,
    flows=4,
)
UPLINK: Final = "link:leaf:s1-r0--spine:1"
TOR: Final = "leaf:s1-r0"
RNIC: Final = "rnic:h3/r1"

Flow = tuple[str, str, int]
Answers = Callable[[Flow, frozenset[str]], list[int | None]]


def network() -> Network:
    """Return what the records say of the fabric."""
    graph = Topology()
    for rec in topology("lab", CLUSTER, 0):
        graph.set_component(rec.record)
    return Network(graph, FlowTables(graph))


def paths() -> dict[Flow, tuple[str, ...]]:
    """Return what each 5-tuple crosses, endpoints left out, as traces would show it."""
    flows, names = CLUSTER.flows, CLUSTER.names
    rails = CLUSTER.rails
    found = {}
    for n in range(len(flows)):
        src, dst = (endpoint_id(*divmod(int(e[n]), rails)) for e in (flows.src, flows.dst))
        way = [names[c] for c in flows.there[n].tolist() if c != NOWHERE]
        found[src, dst, int(flows.flow[n])] = tuple(way[1:-1])
    return dict(sorted(found.items()))


PATHS: Final = paths()


def window(
    answers: Answers, number: int = 0, *, seconds: int = 30, within: Network | None = None
) -> Window:
    """Return window `number`; `answers` gives round trips by 5-tuple and what it crosses."""
    found = [(flow, answers(flow, frozenset(path))) for flow, path in PATHS.items()]
    return window_from(
        [row for row in found if row[1]], number, seconds=seconds, within=within or network()
    )


def window_from(
    rows: list[tuple[Flow, list[int | None]]], number: int = 0, *, seconds: int, within: Network
) -> Window:
    """Return window `number` of these 5-tuples, in ascending order, with their round trips."""
    flat = [rtt for _, found in rows for rtt in found]
    return window_of(
        begin_ns=number * seconds * SECOND_NS,
        end_ns=(number + 1) * seconds * SECOND_NS,
        flows=[flow for flow, _ in rows],
        owner=np.repeat(np.arange(len(rows)), [len(found) for _, found in rows]),
        ok=np.array([rtt is not None for rtt in flat], np.bool_),
        rtt_ns=np.array([rtt or 0 for rtt in flat], np.int64),
        components=tuple(PATHS.get(flow, ()) for flow, _ in rows),
        network=within,
    )


def healthy(rng: np.random.Generator, count: int = 30) -> list[int | None]:
    """Return round trips of a healthy 5-tuple."""
    return [round(x) for x in (HEALTHY_NS * np.exp(rng.normal(0, 0.06, count))).tolist()]


def with_fault(
    sick: Iterable[str], seed: int = 1, *, loss: float = 0.0, delay_ns: int = 0, count: int = 30
) -> Answers:
    """Return answers of a cluster in which some components lose probes or hold them up."""
    rng = np.random.default_rng(seed)
    bad = frozenset(sick)

    def answers(_: Flow, crossed: frozenset[str]) -> list[int | None]:
        found = healthy(rng, count)
        if not bad & crossed:
            return found
        return [None if rng.random() < loss else rtt + delay_ns for rtt in found if rtt is not None]

    return answers
