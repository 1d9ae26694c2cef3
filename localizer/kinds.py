"""The kinds of fault as data: what they are called, how grave they are, what to do about them."""

from dataclasses import dataclass
from typing import Final

from schemas.enums import ComponentKind, Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault.

    `layer` None: that of the component. `symptom` completes "<component>: ...";
    `runbook` says what to do first.
    """

    name: str
    group: str
    layer: Layer | None
    severity: str
    symptom: str
    runbook: str


LOSS: Final = "loss"
LATENCY: Final = "latency"
OVERLAY: Final = "overlay"
AGENT: Final = "agent"

KINDS: Final[dict[str, FaultKind]] = {
    kind.name: kind
    for kind in (
        FaultKind(
            name="connectivity", group=LOSS, layer=None, severity="critical",
            symptom="nothing gets through",
            runbook="Check both ends' port state and transceivers; drain traffic from the link.",
        ),
        FaultKind(
            name="switch_down", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="the switch forwards nothing",
            runbook="Check power and console of the switch; routing must withdraw it.",
        ),
        FaultKind(
            name="rnic_unreachable", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="the RNIC neither sends nor receives",
            runbook="Check RNIC port, firmware and driver on the host; cordon the host.",
        ),
        FaultKind(
            name="vswitch_down", group=LOSS, layer=Layer.OVERLAY, severity="critical",
            symptom="the virtual switch forwards nothing",
            runbook="Check the virtual switch process and its flow tables on the host.",
        ),
        FaultKind(
            name="packet_loss", group=LOSS, layer=None, severity="error",
            symptom="a share of the packets is lost",
            runbook="Compare error and discard counters of both ends; clean or swap the cable.",
        ),
        FaultKind(
            name="high_latency", group=LATENCY, layer=None, severity="warning",
            symptom="packets take longer than before",
            runbook="Look at queues, pause frames and the path's offloading at this component.",
        ),
        FaultKind(
            name="latency_drift", group=LATENCY, layer=None, severity="warning",
            symptom="packets take longer than an hour ago",
            runbook="Compare load and configuration changes of the last two hours.",
        ),
        FaultKind(
            name="flow_missing", group=OVERLAY, layer=Layer.OVERLAY, severity="critical",
            symptom="the flow table has no entry for a destination in use",
            runbook="Reinstall the entry from the control plane; compare with the RNIC's copy.",
        ),
        FaultKind(
            name="flow_loop", group=OVERLAY, layer=Layer.OVERLAY, severity="critical",
            symptom="flow tables send packets round in a loop",
            runbook="Reinstall the host's flow tables from the control plane.",
        ),
        FaultKind(
            name="agent_dead", group=AGENT, layer=Layer.HOST, severity="warning",
            symptom="the agent sends no heartbeats; its endpoints are not watched",
            runbook="Restart the agent; if the host does not answer either, treat it as down.",
        ),
        FaultKind(
            name="agent_unresponsive", group=AGENT, layer=Layer.HOST, severity="warning",
            symptom="the agent lives but does not answer probes",
            runbook="Look at CPU time and sockets of the agent on its host.",
        ),
    )
}  # fmt: skip

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
