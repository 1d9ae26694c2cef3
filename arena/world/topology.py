"""Names, cables and `topology.v1` records of a rail-optimised leaf-spine cluster.

One vocabulary for the arena's fabric, the labs, the benches and the tests. Only the names that a
lab's users type differ from the arena's: its virtual switches, leaves and endpoints
(`ops.lab.shape`). Nothing here needs numpy, since a lab's fabric process imports it.
"""

from typing import Final, NamedTuple

from schemas.enums import ComponentKind, Layer
from schemas.records import Component

LAYER_OF: Final = {
    ComponentKind.HOST: Layer.HOST,
    ComponentKind.AGENT: Layer.HOST,
    ComponentKind.VSWITCH: Layer.OVERLAY,
    ComponentKind.ENDPOINT: Layer.OVERLAY,
    ComponentKind.RNIC: Layer.UNDERLAY,
    ComponentKind.SWITCH: Layer.UNDERLAY,
    ComponentKind.LINK: Layer.UNDERLAY,
}


def host_id(host: int) -> str:
    """Return the id of a host."""
    return f"host:h{host}"


def agent_id(host: int) -> str:
    """Return the id of a host's agent."""
    return f"agent-h{host}"


def vswitch_id(host: int) -> str:
    """Return the id of a host's virtual switch."""
    return f"vswitch:h{host}"


def rnic_id(host: int, rail: int) -> str:
    """Return the id of a host's RNIC on a rail."""
    return f"rnic:h{host}/r{rail}"


def endpoint_id(host: int, rail: int) -> str:
    """Return the id of the endpoint on an RNIC."""
    return f"ep:h{host}/r{rail}"


def spine_id(spine: int) -> str:
    """Return the id of a spine switch."""
    return f"spine:{spine}"


def link_id(a: str, b: str) -> str:
    """Return the id of the link between two components, in whichever order they are given.

    >>> link_id("spine:0", "leaf:p0-0")
    'link:leaf:p0-0--spine:0'
    """
    low, high = sorted((a, b))
    return f"link:{low}--{high}"


class Cable(NamedTuple):
    """A cable; its ends `a` and `b` are in the order in which its id names them."""

    link_id: str
    a: str
    b: str

    @classmethod
    def between(cls, x: str, y: str) -> "Cable":
        """Return the cable between two components, in whichever order they are given."""
        a, b = sorted((x, y))
        return cls(link_id(a, b), a, b)


def component(
    cluster: str,
    component_id: str,
    kind: ComponentKind,
    updated_at: int,
    *,
    parent: str | None = None,
    tier: int | None = None,
    cable: Cable | None = None,
    address: str | None = None,
) -> Component:
    """Return a component as `topology.v1` has it.

    Parameters
    ----------
    updated_at
        Microseconds since the epoch.
    parent
        What it is part of: a host (virtual switches, agents, RNICs) or an RNIC (endpoints).
    tier
        Of a switch: 0 for leaves, counted upwards.
    cable
        Of a link: its ends.
    address
        With which it answers traces; None if it does not.
    """
    return Component(
        cluster=cluster,
        component_id=component_id,
        kind=kind,
        layer=LAYER_OF[kind],
        a=None if cable is None else cable.a,
        b=None if cable is None else cable.b,
        parent=parent,
        tier=tier,
        updated_at=updated_at,
        addresses=(address,) if address else (),
    )
