"""A cluster before anything happens: hosts, containers, agents, jobs and whom they probe."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from arena.sealed.fabric import Fabric, Routing, Shape, build_fabric
from arena.sealed.hashing import mixed, text_word

# Dynamic ports, as RoCE v2 uses them for the entropy of ECMP; its destination port is 4791.
FIRST_PORT: Final = 0xC000
FLOWS_PER_PAIR: Final = 2
MOST_PEERS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """An endpoint where it runs; endpoint `i` is on RNIC `i`.

    Attributes
    ----------
    task : its job; -1: none
    address : of the endpoint itself, in the overlay if there is one
    rnic_address : of the RNIC in the underlay
    """

    name: str
    host: int
    rail: int
    container: int
    agent: int
    task: int
    address: str
    rnic_address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A host, container, agent or job: its name and its endpoints."""

    name: str
    host: int
    endpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A 5-tuple of a ping list."""

    src: int
    dst: int
    index: int
    key: int
    reply_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is there before anything happens.

    Attributes
    ----------
    sidecars : whether each container has an agent in it, or each host one
    overlay : whether containers talk through VXLAN
    fdb : whether a VTEP's table holds the overlay's destinations, instead of the virtual switch's
    numbered : whether the interfaces of switches have addresses of their own, which traces show
    mute : switches that never answer a trace
    confirm : how often an agent repeats a lost probe
    trace_gap_s : least time between two traces of a 5-tuple that loses probes
    """

    name: str
    shape: Shape
    fabric: Fabric
    salts: tuple[int, ...]
    resilient: bool
    hosts: tuple[Group, ...]
    containers: tuple[Group, ...]
    agents: tuple[Group, ...]
    tasks: tuple[Group, ...]
    sites: tuple[Site, ...]
    flows: tuple[Flow, ...]
    sidecars: bool
    overlay: bool
    fdb: bool
    numbered: bool
    mute: frozenset[int]
    confirm: int
    trace_gap_s: float
    version: str

    def routing(self) -> Routing:
        """Return routing as it is while nothing is broken."""
        return Routing(fabric=self.fabric, salts=self.salts, resilient=self.resilient)

    def rnic_name(self, endpoint: int) -> str:
        """Return the component id of the RNIC of an endpoint."""
        return self.fabric.nodes[endpoint].name

    def vswitch_name(self, host: int) -> str:
        """Return the component id of a host's virtual switch."""
        return f"vsw:{self.short_host(host)}"

    def vtep_name(self, endpoint: int) -> str:
        """Return the component id of the VTEP on the RNIC of an endpoint."""
        site = self.sites[endpoint]
        return f"vtep:{self.short_host(site.host)}/r{site.rail}"

    def short_host(self, host: int) -> str:
        """Return a host's name without the prefix that some platforms give it."""
        return self.hosts[host].name.removeprefix("host:")

    def interface_address(self, dlink: int) -> str:
        """Return the address of the interface through which a directed link enters its node."""
        return f"100.{64 + (dlink >> 14)}.{(dlink >> 7) & 127}.{2 * (dlink & 127) + 1}"

    def loopback_address(self, node: int) -> str:
        """Return the address of a switch that all its interfaces share."""
        return f"198.18.{node >> 8}.{node & 255}"


def draw_shape(rng: np.random.Generator) -> Shape:
    """Return the measures of a cluster of 16 to 64 RNICs, most often 32."""
    rnics = int(rng.choice([16, 24, 32, 48, 64], p=[0.08, 0.1, 0.64, 0.1, 0.08]))
    rails = int(rng.choice([2, 4] if rnics < 64 else [4, 8]))
    hosts = rnics // rails
    three_tiers = bool(rng.random() < 0.35)
    rail_leaves = bool(rng.random() < 0.5) and hosts >= 8
    pods = int(rng.choice([2, 3, 4])) if hosts >= 8 and not (rail_leaves or three_tiers) else 2
    spines = int(rng.integers(2, 4)) if three_tiers else int(rng.integers(2, 5))
    return Shape(
        hosts=hosts,
        rails=rails,
        pods=pods,
        rail_leaves=rail_leaves,
        racks=2 if three_tiers and not rail_leaves else 1,
        homes=2 if rng.random() < 0.3 else 1,
        spines=spines,
        cores=spines * int(rng.integers(1, 3)) if three_tiers else 0,
        parallel=int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15])),
    )


def draw_cluster(name: str, rng: np.random.Generator) -> Cluster:
    """Return a cluster; its parameters come from `rng`."""
    shape = draw_shape(rng)
    prefix = str(rng.choice(["gn", "gpu-", "node", "tr"]))
    tag = "host:" if rng.random() < 0.4 else ""
    short = [f"{prefix}{100 + 7 * i + int(rng.integers(7))}" for i in range(shape.hosts)]
    rnic_names = [f"rnic:{name}/r{rail}" for name in short for rail in range(shape.rails)]
    fabric = build_fabric(shape, rnic_names, rng)
    by_rail = shape.rails >= 4 and bool(rng.random() < 0.3)
    by_host = not by_rail and shape.hosts >= 12 and bool(rng.random() < 0.5)
    per_container = bool(rng.random() < 0.65)
    idle = _draw_idle(shape, rng)
    # In the overlay each destination has one way out of a host, by the RNIC of its own rail, so
    # the lists hold pairs of one rail only; that takes five hosts.
    busy = (shape.hosts - len(idle)) // (2 if by_host else 1)
    overlay = busy >= 5 and bool(rng.random() < 0.85)
    sites, containers, agents = _place(
        shape, short, idle, by_rail=by_rail, by_host=by_host, per_container=per_container,
        overlay=overlay,
    )  # fmt: skip
    hosts = tuple(
        Group(name=tag + name, host=i,
              endpoints=tuple(e for e, site in enumerate(sites) if site.host == i))
        for i, name in enumerate(short)
    )  # fmt: skip
    job = int(rng.integers(1000, 9999))
    tasks = tuple(
        Group(name=f"job-{job + i}", host=-1,
              endpoints=tuple(e for e, site in enumerate(sites) if site.task == i))
        for i in range(1 + max(site.task for site in sites))
    )  # fmt: skip
    salts = tuple(int(salt) for salt in rng.integers(1, 2**62, len(fabric.nodes)))
    switches = range(fabric.rnics, len(fabric.nodes))
    mute = [node for node in switches if rng.random() < 0.04] if rng.random() < 0.3 else []
    return Cluster(
        name=name, shape=shape, fabric=fabric, salts=salts,
        resilient=bool(rng.random() < 0.4), hosts=hosts, containers=containers, agents=agents,
        tasks=tasks, sites=sites,
        flows=_draw_flows(
            shape, sites, tasks, rng, symmetric=bool(rng.random() < 0.15), one_rail=overlay
        ),
        sidecars=per_container, overlay=overlay, fdb=overlay and bool(rng.random() < 0.3),
        numbered=bool(rng.random() < 0.5), mute=frozenset(mute),
        confirm=int(rng.integers(2, 5)), trace_gap_s=float(rng.choice([5.0, 10.0, 20.0])),
        version=str(rng.choice(["1.4.0", "1.4.2", "1.5.1"])),
    )  # fmt: skip


def _draw_idle(shape: Shape, rng: np.random.Generator) -> frozenset[int]:
    """Return hosts without a job: in a third of the clusters a quarter to a half of them."""
    if shape.hosts < 8 or rng.random() >= 0.35:
        return frozenset()
    count = int(rng.integers(shape.hosts // 4, shape.hosts // 2 + 1))
    return frozenset(int(host) for host in rng.permutation(shape.hosts)[:count])


def _place(
    shape: Shape, short: list[str], idle: frozenset[int],
    *, by_rail: bool, by_host: bool, per_container: bool, overlay: bool,
) -> tuple[tuple[Site, ...], tuple[Group, ...], tuple[Group, ...]]:  # fmt: skip
    """Deal endpoints to containers, agents and jobs."""
    sites: list[Site] = []
    containers: dict[str, list[int]] = {}
    agents: dict[str, list[int]] = {}
    for host, name in enumerate(short):
        for rail in range(shape.rails):
            task = int(rail >= shape.rails // 2 if by_rail else by_host and host % 2)
            container = f"{name}-c{task}"
            net = 10 + task
            task = -1 if host in idle else task
            agent = f"agent-{container}" if per_container else f"agent-{name}"
            containers.setdefault(container, []).append(len(sites))
            agents.setdefault(agent, []).append(len(sites))
            rnic_address = f"172.{16 + rail}.{host >> 7}.{2 * (host & 127) + 1}"
            sites.append(
                Site(
                    name=f"{container}/r{rail}", host=host, rail=rail,
                    container=len(containers) - 1, agent=len(agents) - 1, task=task,
                    address=f"10.{net}.{host}.{rail + 1}" if overlay else rnic_address,
                    rnic_address=rnic_address,
                )
            )  # fmt: skip

    def groups(members: dict[str, list[int]]) -> tuple[Group, ...]:
        return tuple(
            Group(name=name, host=sites[of[0]].host, endpoints=tuple(of))
            for name, of in members.items()
        )

    return tuple(sites), groups(containers), groups(agents)


def _draw_flows(
    shape: Shape, sites: tuple[Site, ...], tasks: tuple[Group, ...], rng: np.random.Generator,
    *, symmetric: bool, one_rail: bool,
) -> tuple[Flow, ...]:  # fmt: skip
    """Return the 5-tuples of all ping lists.

    Endpoints of a rail stand in rings (data-parallel neighbours) and in a chain (pipeline
    neighbours); a few more pairs explore. Where fewer than four peers share the rail, others of
    the job are probed as well, unless `one_rail` forbids it.
    """
    peers: dict[int, set[int]] = {e: set() for e in range(len(sites))}

    def join(a: int, b: int) -> None:
        if a != b and max(len(peers[a]), len(peers[b])) < MOST_PEERS:
            peers[a].add(b)
            peers[b].add(a)

    for task in tasks:
        rails = sorted({sites[e].rail for e in task.endpoints})
        rank = {int(host): place for place, host in enumerate(rng.permutation(shape.hosts))}
        step = int(rng.integers(2, 5))
        for rail in rails:
            ring = sorted(
                (e for e in task.endpoints if sites[e].rail == rail),
                key=lambda e: rank[sites[e].host],
            )
            for i, a in enumerate(ring):
                join(a, ring[(i + 1) % len(ring)])
                join(a, ring[(i + step) % len(ring)])
        most = min(int(rng.integers(4, MOST_PEERS + 1)), len(task.endpoints) - 1)
        for a in task.endpoints:
            near = [e for e in task.endpoints if sites[e].rail == sites[a].rail and e != a]
            far = [e for e in task.endpoints if sites[e].host != sites[a].host]
            pool = near if one_rail or (len(near) >= 4 and rng.random() < 0.8) else far
            for b in rng.permutation(pool):
                if len(peers[a]) >= most:
                    break
                join(a, int(b))
    flows = []
    for src in sorted(peers):
        for dst in sorted(peers[src]):
            for index in range(FLOWS_PER_PAIR):
                key, reply_key = _keys(sites[src], sites[dst], index, symmetric)
                flows.append(Flow(src=src, dst=dst, index=index, key=key, reply_key=reply_key))
    return tuple(flows)


def _keys(src: Site, dst: Site, index: int, symmetric: bool) -> tuple[int, int]:
    """Return the hash inputs of a 5-tuple and of its reply.

    The prober's queue pair of a flow decides the source port, whoever is probed; the responder has
    one queue pair, so its replies to one address share theirs. A symmetric hash orders the fields
    first and sees the same ports both ways.
    """
    a, b = text_word(src.address), text_word(dst.address)
    port = FIRST_PORT + mixed(a, index) % (0x10000 - FIRST_PORT)
    reply_port = FIRST_PORT + mixed(b, 0x7E) % (0x10000 - FIRST_PORT)
    if symmetric:
        key = mixed(min(a, b), max(a, b), port, 4791, 17)
        return key, key
    return mixed(a, b, port, 4791, 17), mixed(b, a, reply_port, 4791, 17)
