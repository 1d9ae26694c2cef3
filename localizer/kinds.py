"""Which kind of fault a component that loses packets has, as far as probes alone can tell."""

from typing import Final

from localizer.catalogue import AGENT, KINDS, LATENCY, LOSS, OVERLAY, FaultKind
from schemas.enums import ComponentKind, Layer

__all__ = [
    "AGENT",
    "DOWN",
    "KINDS",
    "LATENCY",
    "LAYER_OF",
    "LOSS",
    "OVERLAY",
    "PARTIAL",
    "FaultKind",
    "kind_of_loss",
]

LAYER_OF: Final = {
    ComponentKind.LINK: Layer.UNDERLAY,
    ComponentKind.SWITCH: Layer.UNDERLAY,
    ComponentKind.RNIC: Layer.UNDERLAY,
    ComponentKind.VSWITCH: Layer.OVERLAY,
    ComponentKind.VTEP: Layer.OVERLAY,
    ComponentKind.AGENT: Layer.HOST,
    ComponentKind.HOST: Layer.HOST,
}

# What "nothing gets through" is called where the component itself must be down.
DOWN: Final = {
    ComponentKind.SWITCH: "switch_down",
    ComponentKind.RNIC: "rnic_unreachable",
    ComponentKind.VSWITCH: "vswitch_down",
}
# Kinds that lose a share of the packets and let the rest pass.
PARTIAL: Final = frozenset({"packet_loss", "crc_error", "buffer_loss"})
# Share of the 5-tuples that are cut off from which it is a cut and not loss, and
# share of all that cross a component from which it is down and not partly so.
CUT_SHARE: Final = 0.6
DOWN_SHARE: Final = 0.8


def kind_of_loss(component: ComponentKind, cut_share: float, bad_share: float) -> FaultKind:
    """Return the kind of a fault that loses packets.

    Parameters
    ----------
    cut_share
        Share of the bad 5-tuples that get nothing through.
    bad_share
        Share of the 5-tuples through the component that are bad.
    """
    if cut_share < CUT_SHARE:
        return KINDS["packet_loss"]
    if bad_share >= DOWN_SHARE and component in DOWN:
        return KINDS[DOWN[component]]
    return KINDS["connectivity"]
