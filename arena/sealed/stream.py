"""A sealed world: its truth, and its records in order of arrival."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from arena.sealed.agents import Agents
from arena.sealed.cluster import Cluster
from arena.sealed.heartbeats import Heartbeats
from arena.sealed.hosts import draw_hosts, draw_rnic_noise
from arena.sealed.network import Network
from arena.sealed.outbox import Outbox, Timed
from arena.sealed.plan import Plan
from arena.sealed.probing import Prober
from arena.sealed.queues import Queues
from arena.sealed.states import Readers, StateFeed
from arena.sealed.tables import Tables
from arena.sealed.topology import components
from arena.sealed.traces import Tracer
from arena.sealed.truth import Injected
from schemas import topics
from schemas.units import ns_to_us

__all__ = ["Injected", "SealedWorld", "Timed"]

# Records that were sent before the end may still arrive after it.
LAST_ARRIVALS_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedWorld:
    """A cluster, what happens to it, and how long it is watched.

    Attributes
    ----------
    background : share of the packets that any trip loses while all is well
    republish_s : after which an unchanged flow table is published again
    entropy : of all noise: the same one gives the same records
    """

    cluster: str
    start_ns: int
    duration_s: int
    injected: tuple[Injected, ...]
    site: Cluster
    plan: Plan
    queues: Queues
    readers: Readers
    background: float
    republish_s: float
    entropy: tuple[int, ...]

    def records(self) -> Iterator[Timed]:
        """Yield all records in order of arrival, as they are simulated."""
        site, plan = self.site, self.plan
        streams = np.random.SeedSequence(self.entropy).spawn(10)
        rngs = [np.random.Generator(np.random.PCG64(stream)) for stream in streams]
        outbox = Outbox(start_ns=self.start_ns, pauses=plan.broker_pauses, rng=rngs[0])
        hosts = draw_hosts(site, self.duration_s, rngs[1])
        hosts.starving = plan.starving
        noise = draw_rnic_noise(site, self.duration_s, rngs[2])
        network = Network(
            cluster=site, plan=plan, queues=self.queues, rng=rngs[3], background=self.background
        )
        agents = Agents(
            cluster=site, plan=plan, hosts=hosts, outbox=outbox, start_ns=self.start_ns,
            rng=rngs[4],
        )  # fmt: skip
        beats = Heartbeats(agents=agents, rng=rngs[5])
        prober = Prober(agents=agents, network=network, noise=noise, heartbeats=beats, rng=rngs[6])
        tracer = Tracer(agents=agents, network=network, rng=rngs[7])
        tables = Tables(agents=agents, republish_s=self.republish_s, rng=rngs[8])
        states = StateFeed(agents=agents, readers=self.readers, rng=rngs[9])
        for component in components(site, ns_to_us(self.start_ns)):
            key = component.component_id
            outbox.send("platform", 0.0, topics.TOPOLOGY.name, key, component)
        for second in range(self.duration_s):
            agents.advance(float(second))
            network.advance(float(second), second + 3.0)
            probed = prober.probe(second)
            beats.beat(second)
            tracer.observe(probed)
            losing = {site.sites[site.flows[flow].src].host for flow, _, lost in probed if lost}
            tables.read(second, losing)
            states.read(second)
            # What agents had to do within this second is done at the start of the next one.
            yield from outbox.arrived(float(second))
        yield from outbox.arrived(self.duration_s + LAST_ARRIVALS_S)
