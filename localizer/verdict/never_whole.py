"""What 5-tuples may cross of which no complete trace is known.

A job that begins while a spine is dead has 5-tuples that were never whole. Nobody knows which way
they take, only what holds their ends; so of the components that are left the one that most of them
share would be blamed, a virtual switch. But their traces show how far probes came. Where the last
hop that answered stands beside an open fault, that is a way on which they were lost.
"""

from collections.abc import Iterable

from localizer.facts.bad_flows import BadFlow
from localizer.network.paths import PathBook
from localizer.network.topology import Topology
from schemas.enums import ComponentKind


def beside_faults(
    bad: list[BadFlow], faulty: frozenset[str], paths: PathBook, topology: Topology
) -> list[BadFlow]:
    """Add to 5-tuples that were never whole the open faults beside which their traces break off.

    Only what may be on the way of everybody's packets: switches, and cables between them. RNICs and
    their cables are known of every 5-tuple; those of others are on nobody's way.

    Parameters
    ----------
    bad
        5-tuples that are bad because of lost probes.
    faulty
        Components of open faults that lose packets.
    """
    at = _by_neighbour(faulty, topology)
    if not at:
        return bad
    return [_with_beside(flow, at, paths, topology) for flow in bad]


def _by_neighbour(faulty: Iterable[str], topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return by switch what is faulty of it, beside it and between both."""
    found: dict[str, list[str]] = {}
    for component in sorted(faulty):
        if topology.kind(component) is ComponentKind.SWITCH:
            near = [component, *topology.neighbours(component)]
        else:
            near = list(topology.ends(component))
            if any(topology.kind(end) is not ComponentKind.SWITCH for end in near):
                continue
        for switch in near:
            if topology.kind(switch) is ComponentKind.SWITCH:
                found.setdefault(switch, []).append(component)
    return {switch: tuple(components) for switch, components in found.items()}


def _with_beside(
    flow: BadFlow, at: dict[str, tuple[str, ...]], paths: PathBook, topology: Topology
) -> BadFlow:
    last = paths.broke_off_at(flow.key) if flow.open and flow.cut else None
    beside = () if last is None else at.get(last, ())
    if not beside or _is_last_switch(str(last), flow.key[1], topology):
        return flow
    return flow.without_passed(
        (*flow.components, *(c for c in beside if c not in flow.components)),
        replyless=flow.replyless,
        traced=flow.traced,
    )


def _is_last_switch(switch: str, dst: str, topology: Topology) -> bool:
    """Return whether nothing but the target's own RNIC comes after a switch."""
    rnic = topology.holders(dst).rnic
    return rnic is not None and switch in topology.neighbours(rnic)
