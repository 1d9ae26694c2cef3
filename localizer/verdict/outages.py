"""Whether a host is down or a container has crashed, once their agents are silent.

An agent dies with its container, and a container with its host; probes see the same of all three.
Components' states tell them apart: the ports that the host's RNICs stand at, the container's own.
So do the bytes of a training job: the host's kernel acknowledges them while the host is up, whoever
else there has died.
"""

from dataclasses import dataclass
from typing import Final

from localizer.facts.findings import LEAD_NS
from localizer.facts.inputs import Sources
from localizer.facts.liveness import Agent
from schemas.enums import AnomalyFamily, ComponentKind, HangClass

# Kinds of states that an RNIC's port, or the switch port at its cable, shows without its host.
NO_LINK: Final = frozenset({"port_down", "device_gone"})

# A place that agents share: what it is, and its id.
Place = tuple[ComponentKind, str]


@dataclass(frozen=True, slots=True)
class Outage:
    """What is down: the kind of its fault, where, and the sentence that says so."""

    kind: str
    place: Place
    fact: str


def host_of(sources: Sources, agent: Agent) -> str:
    """Return the host that an agent runs on: by the topology, or else as it says itself."""
    return sources.topology.host_of(agent.agent_id) or agent.host_id


def host_without_ports(sources: Sources, host_id: str, missed_ns: int) -> Outage | None:
    """Return that a host is down if most of its RNICs' ports went down at about a time.

    Parameters
    ----------
    missed_ns
        When its agents were first missed. A reader may report the ports long after it, but no
        state that is much older belongs to it.
    """
    topology = sources.topology
    rnics = topology.children(host_id, ComponentKind.RNIC)
    down = sum(
        any(
            finding.kind in NO_LINK and finding.since_ns >= missed_ns - LEAD_NS
            for place in (rnic, *topology.links_at(rnic))
            for finding in sources.states.findings(place, AnomalyFamily.LOSS)
        )
        for rnic in rnics
    )
    if 2 * down <= len(rnics):
        return None
    fact = f"the ports of {down} of its {len(rnics)} RNICs are down"
    return Outage("host_down", (ComponentKind.HOST, host_id), fact)


def host_without_kernel(sources: Sources, host_id: str) -> Outage | None:
    """Return that a host is down if it acknowledges nothing of what a job that hangs sends there.

    Only of a host whose agents are silent and whose endpoints answer no probes: a cut leaves the
    agents alive.
    """
    topology = sources.topology
    stuck = {
        (flow.src_rank, flow.dst_rank)
        for hang, _ in sources.hangs.open_hangs()
        if hang.hang_class is HangClass.NETWORK
        for flow in hang.stuck_flows
        if flow.dst_endpoint_id is not None and topology.host_of(flow.dst_endpoint_id) == host_id
    }
    if not stuck:
        return None
    src, dst = min(stuck, key=lambda pair: (pair[1] or 0, pair[0]))
    fact = (
        "its agent is silent, none of its endpoints answers, and its kernel acknowledges nothing of"
        f" what rank {src} sends to rank {dst} there"
    )
    return Outage("host_down", (ComponentKind.HOST, host_id), fact)


def crashed_container(sources: Sources, agent_id: str, missed_ns: int) -> Outage | None:
    """Return that the container of an agent has crashed, if a state says that it does not run.

    Parameters
    ----------
    missed_ns
        When the agent was first missed, as for `host_without_ports`.
    """
    for place, kind in sources.roster.containers_of(agent_id):
        for finding in sources.states.findings(place, AnomalyFamily.LOSS):
            if finding.kind == "container_crash" and finding.since_ns >= missed_ns - LEAD_NS:
                return Outage("container_crash", (kind, place), f"{place}: {finding.shown}")
    return None
