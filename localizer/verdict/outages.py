"""Whether a host is down or a container has crashed, once their agents are silent.

An agent dies with its container, and a container with its host; probes see the same of all three.
Components' states tell them apart: the ports that the host's RNICs stand at, the container's own.
So does a training job that hangs: while the host is up its kernel acknowledges the job's bytes, and
a collector tells of the job's ranks, whoever else there has died.
"""

from dataclasses import dataclass
from typing import Final

from localizer.facts.agents import Agent
from localizer.facts.findings import LEAD_NS
from localizer.facts.inputs import Sources
from schemas.enums import AnomalyFamily, Certainty, ComponentKind, HangClass

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


def host_without_job(sources: Sources, host_id: str) -> Outage | None:
    """Return that a host is down if a job hangs, and the job's side of it is silent there, too.

    Its kernel acknowledges nothing of what is sent there, or nobody is heard of the ranks there any
    more: their collector is silent as well as the agent. Only of a host whose agents are silent and
    whose endpoints answer no probes: a cut leaves both alive, and either may have died alone.
    """
    topology = sources.topology
    fact = None
    for hang, _ in sources.hangs.open_hangs():
        there = {e for e in hang.endpoint_ids if topology.host_of(e) == host_id}
        silent = hang.hang_class is HangClass.RANK_MISSING
        if silent and hang.certainty is Certainty.UNDECIDED and there:
            fact = "nothing is heard of the ranks that its job waits for"
        if hang.hang_class is HangClass.NETWORK and any(
            flow.dst_endpoint_id in there for flow in hang.stuck_flows
        ):
            fact = (
                "its kernel acknowledges nothing of what is sent to the ranks that a job waits for"
            )
    if fact is None:
        return None
    fact = f"its agent is silent, none of its endpoints answers, and {fact}"
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
