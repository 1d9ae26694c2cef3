"""Truth of a world, and what nothing in the records tells apart.

An observer knows the forward paths of 5-tuples, by their traces. Two components that the same
5-tuples cross are one to it, whatever it computes.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from arena.sealed.cluster import Cluster
from arena.sealed.network import generations_at, trip_keys
from arena.sealed.plan import Plan, Where

FlowSet = frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """Truth of one fault or confounder.

    Attributes
    ----------
    name : unique in the world
    kind : of a fault, its name in `docs/reference/kinds.md`; of a confounder a free word
    also_kinds : as right, since no observer could tell
    components : the right answers, named as in the records; those that no observer could tell from
        the faulty one included
    end_ns : None: it lasts to the end of the world
    hard : everything of somebody's is lost
    confounder : no page may be raised for it
    note : the mechanism, in one sentence
    """

    name: str
    kind: str
    also_kinds: frozenset[str]
    components: frozenset[str]
    begin_ns: int
    end_ns: int | None
    hard: bool
    confounder: bool
    note: str


@dataclass(slots=True, kw_only=True)
class Geometry:
    """Paths of the 5-tuples that are probed from one time to another, as routing is at the first.

    Attributes
    ----------
    probed : indices of these 5-tuples
    forward, reply : directed links of each, by index
    """

    cluster: Cluster
    probed: tuple[int, ...]
    forward: dict[int, tuple[int, ...]]
    reply: dict[int, tuple[int, ...]]
    _by_dlink: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for flow, dlinks in self.forward.items():
            for dlink in dlinks:
                self._by_dlink[dlink].add(flow)

    def crossing(self, dlink: int) -> FlowSet:
        """Return the 5-tuples whose probes cross a directed link."""
        return frozenset(self._by_dlink.get(dlink, ()))

    def hit(self, where: Where) -> tuple[FlowSet, FlowSet]:
        """Return the 5-tuples whose probes, and those whose replies, an effect hits."""
        probes, replies = set(), set()
        for index in self.probed:
            flow = self.cluster.flows[index]
            there, back = self.forward[index], self.reply[index]
            if where.position(flow.src, flow.dst, there, reply=False) is not None:
                probes.add(index)
            if where.position(flow.dst, flow.src, back, reply=True) is not None:
                replies.add(index)
        return frozenset(probes), frozenset(replies)

    def of_endpoints(self, endpoints: tuple[int, ...]) -> tuple[FlowSet, FlowSet]:
        """Return the 5-tuples that leave, and those that enter, some endpoints."""
        flows = self.cluster.flows
        members = set(endpoints)
        out = frozenset(i for i in self.probed if flows[i].src in members)
        return out, frozenset(i for i in self.probed if flows[i].dst in members)

    def same_as(self, affected: FlowSet) -> frozenset[str]:
        """Return the components that exactly these 5-tuples cross, in one direction or both."""
        if not affected:
            return frozenset()
        return frozenset(
            name
            for name, variants in self._variants()
            if any(variant == affected for variant in variants)
        )

    def _variants(self) -> list[tuple[str, tuple[FlowSet, ...]]]:
        cluster, fabric = self.cluster, self.cluster.fabric
        rows: list[tuple[str, tuple[FlowSet, ...]]] = []
        for index, cable in enumerate(fabric.cables):
            up, down = self.crossing(2 * index), self.crossing(2 * index + 1)
            rows.append((cable.name, (up, down, up | down)))
        through: dict[int, set[int]] = defaultdict(set)
        for flow, dlinks in self.forward.items():
            for dlink in dlinks:
                through[fabric.head(dlink)].add(flow)
        rows += [
            (fabric.nodes[node].name, (frozenset(through[node]),))
            for node in range(fabric.rnics, len(fabric.nodes))
        ]
        groups: list[tuple[str, tuple[int, ...]]] = [
            (cluster.rnic_name(e), (e,)) for e in range(fabric.rnics)
        ]
        groups += [(group.name, group.endpoints) for group in cluster.hosts + cluster.containers]
        if cluster.overlay:
            groups += [(cluster.vtep_name(e), (e,)) for e in range(fabric.rnics)]
            groups += [(cluster.vswitch_name(h.host), h.endpoints) for h in cluster.hosts]
        for name, endpoints in groups:
            out, into = self.of_endpoints(endpoints)
            rows.append((name, (out, into, out | into)))
        return rows


def geometry(cluster: Cluster, plan: Plan, begin_s: float, end_s: float) -> Geometry:
    """Return the paths of what is probed all the time between two times."""
    generations = generations_at(cluster, plan, begin_s)
    agent_of = [site.agent for site in cluster.sites]
    routing = cluster.routing()
    for reroute in sorted(plan.reroutes, key=lambda r: r.at_s):
        if reroute.at_s <= begin_s:
            (routing.restore if reroute.up else routing.withdraw)(reroute.cable)
    gone = {e for edit in plan.lists if edit.at_s <= end_s for e in edit.without}
    down = {
        outage.agent
        for outage in plan.outages
        if not outage.muted and outage.begin_s < end_s and outage.end_s > begin_s
    }
    probed, forward, reply = [], {}, {}
    for index, flow in enumerate(cluster.flows):
        if flow.src in gone or flow.dst in gone:
            continue
        if agent_of[flow.src] in down or agent_of[flow.dst] in down:
            continue
        key, reply_key = trip_keys(flow, generations, agent_of)
        probed.append(index)
        forward[index] = routing.path(flow.src, flow.dst, key)
        reply[index] = routing.path(flow.dst, flow.src, reply_key)
    return Geometry(cluster=cluster, probed=tuple(probed), forward=forward, reply=reply)
