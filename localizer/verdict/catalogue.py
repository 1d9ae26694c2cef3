"""The kinds of fault as data: name, severity, what probes see of it, the first step of the runbook.

`localizer.verdict.kind_model` chooses among them.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from schemas.enums import ComponentKind, Layer


class Shows(Enum):
    """What probes through a faulty component show."""

    DOWN = "all are lost, of all 5-tuples"
    CUT = "all are lost, of some 5-tuples or of all"
    SHARE = "a share is lost"
    FLAPS = "all are lost for a while, again and again"
    LATE = "they take longer"
    NOTHING = "nothing: other records show it"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault.

    Attributes
    ----------
    group
        Faults of one component and one group are one fault.
    layer
        None: the layer of the component.
    shows
        What probes see of it.
    symptom
        Completes "<component>: ...".
    runbook
        What to do first.
    explains
        Names of kinds whose states it makes, too: a port that flaps is down now and then.
    """

    name: str
    group: str
    layer: Layer | None
    severity: str
    symptom: str
    runbook: str
    shows: Shows = Shows.NOTHING
    explains: frozenset[str] = frozenset()


LOSS: Final = "loss"
LATENCY: Final = "latency"
OVERLAY: Final = "overlay"
AGENT: Final = "agent"
# What agents say of themselves: kinds that may be open beside each other, and beside AGENT.
DISPLACED: Final = "displaced"
PROBING: Final = "probing"
REFUSED: Final = "refused"
CLOCK: Final = "clock"
SELF_GROUPS: Final = frozenset({DISPLACED, PROBING, REFUSED, CLOCK})
# What stops a training job, by what its ranks recorded: its own ranks; something between them that
# is not decided yet, which a fault of the network takes over when it shows.
JOB: Final = "job"
STUCK: Final = "stuck"
HANG_GROUPS: Final = frozenset({JOB, STUCK})
# Groups without 5-tuples as evidence.
HOST_GROUPS: Final = SELF_GROUPS | {AGENT}

KINDS: Final[dict[str, FaultKind]] = {
    kind.name: kind
    for kind in (
        FaultKind(
            name="connectivity", group=LOSS, layer=None, severity="critical",
            symptom="nothing gets through",
            runbook="Check both ends' port state and transceivers; drain traffic from the link.",
            shows=Shows.CUT,
        ),
        FaultKind(
            name="switch_down", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="the switch forwards nothing",
            runbook="Check power and console of the switch; routing must withdraw it.",
            shows=Shows.DOWN,
            explains=frozenset({"port_down"}),
        ),
        FaultKind(
            name="rnic_unreachable", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="the RNIC neither sends nor receives",
            runbook="Check RNIC port, firmware and driver on the host; cordon the host.",
            shows=Shows.DOWN,
        ),
        FaultKind(
            name="vswitch_down", group=LOSS, layer=Layer.OVERLAY, severity="critical",
            symptom="the virtual switch forwards nothing",
            runbook="Check the virtual switch process and its flow tables on the host.",
            shows=Shows.DOWN,
        ),
        FaultKind(
            name="packet_loss", group=LOSS, layer=None, severity="error",
            symptom="a share of the packets is lost",
            runbook="Compare error and discard counters of both ends; clean or swap the cable.",
            shows=Shows.SHARE,
        ),
        FaultKind(
            name="high_latency", group=LATENCY, layer=None, severity="warning",
            symptom="packets take longer than before",
            runbook="Look at queues, pause frames and the path's offloading at this component.",
            shows=Shows.LATE,
        ),
        FaultKind(
            name="latency_drift", group=LATENCY, layer=None, severity="warning",
            symptom="packets take longer than an hour ago",
            runbook="Compare load and configuration changes of the last two hours.",
            shows=Shows.LATE,
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
            name="port_down", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="a port is down",
            runbook="Check transceiver and cable of the port; reseat or swap, then bring it up.",
            shows=Shows.CUT,
        ),
        FaultKind(
            name="port_flapping", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="a port goes up and down",
            runbook="Shut the port until transceiver and cable are checked: a flap hurts "
            "more than a cut.",
            shows=Shows.FLAPS,
            explains=frozenset({"port_down", "crc_error"}),
        ),
        FaultKind(
            name="device_gone", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="the RNIC is gone from the host",
            runbook="Cordon the host; look at PCIe slot and kernel log; power-cycle, then "
            "replace the RNIC.",
            shows=Shows.CUT,
            explains=frozenset({"port_down", "gid_change", "bond_error"}),
        ),
        FaultKind(
            name="crc_error", group=LOSS, layer=None, severity="error",
            symptom="frames arrive damaged",
            runbook="Clean or swap the cable or the transceiver at the end that counts CRC errors.",
            shows=Shows.SHARE,
        ),
        FaultKind(
            name="gid_change", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="the RNIC's GIDs have changed",
            runbook="Restart what restarted the host's network last; let the jobs resolve "
            "GIDs anew.",
            shows=Shows.CUT,
        ),
        FaultKind(
            name="bond_error", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="a bond is broken",
            runbook="Check both slaves of the bond and LACP at the ToRs.",
            shows=Shows.CUT,
            explains=frozenset({"port_down"}),
        ),
        FaultKind(
            name="acl_error", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="an access list drops 5-tuples in use",
            runbook="Compare the switch's access lists with the intended ones; roll the "
            "last change back.",
            shows=Shows.CUT,
        ),
        FaultKind(
            name="pfc_deadlock", group=LOSS, layer=Layer.UNDERLAY, severity="critical",
            symptom="pause frames hold everything up",
            runbook="Enable the PFC watchdog; drain the port; look for a loop of buffer "
            "dependencies.",
            shows=Shows.CUT,
            explains=frozenset({"buffer_loss"}),
        ),
        FaultKind(
            name="buffer_loss", group=LOSS, layer=Layer.UNDERLAY, severity="error",
            symptom="a switch discards what its buffers cannot hold",
            runbook="Compare PFC thresholds and headroom of the queue with the cable's "
            "length and speed.",
            shows=Shows.SHARE,
        ),
        FaultKind(
            name="container_crash", group=LOSS, layer=Layer.OVERLAY, severity="critical",
            symptom="a container has crashed after its creation",
            runbook="Restart the container; look at its exit code and at the runtime's log.",
            shows=Shows.CUT,
        ),
        FaultKind(
            name="pcie_error", group=LATENCY, layer=Layer.UNDERLAY, severity="error",
            symptom="the RNIC's PCIe link corrects errors",
            runbook="Reseat the RNIC; look at the AER log; swap slot or RNIC.",
            shows=Shows.LATE,
        ),
        FaultKind(
            name="pcie_downgrade", group=LATENCY, layer=Layer.UNDERLAY, severity="error",
            symptom="the RNIC's PCIe link runs narrower or slower",
            runbook="Retrain the link by a power cycle; reseat the RNIC; check the BIOS's "
            "bifurcation.",
            shows=Shows.LATE,
            explains=frozenset({"pcie_error"}),
        ),
        FaultKind(
            name="gpudirect_missing", group=LATENCY, layer=Layer.UNDERLAY, severity="error",
            symptom="GPUDirect RDMA is not in use",
            runbook="Load the peer memory module; check that its version fits the driver's.",
            shows=Shows.LATE,
        ),
        FaultKind(
            name="not_using_rdma", group=LATENCY, layer=Layer.OVERLAY, severity="error",
            symptom="traffic goes by TCP instead of RDMA",
            runbook="Check the container's RDMA devices and the transport that the job's "
            "library chose.",
            shows=Shows.LATE,
            explains=frozenset({"not_offloaded"}),
        ),
        FaultKind(
            name="not_offloaded", group=LATENCY, layer=Layer.OVERLAY, severity="error",
            symptom="flow entries are not offloaded to the RNIC",
            runbook="Check the hardware offload of the virtual switch; reinstall the host's flows.",
            shows=Shows.LATE,
        ),
        FaultKind(
            name="repetitive_offload", group=LATENCY, layer=Layer.OVERLAY, severity="error",
            symptom="offloaded entries are evicted again and again",
            runbook="Compare the RNIC's flow counters with the control plane's ageing; "
            "update firmware.",
            shows=Shows.LATE,
            explains=frozenset({"not_offloaded"}),
        ),
        FaultKind(
            name="hugepage_mismatch", group=LATENCY, layer=Layer.OVERLAY, severity="warning",
            symptom="hugepages of host and RNIC do not match",
            runbook="Set the hugepage size of the virtual switch to what the RNIC was set up with.",
            shows=Shows.LATE,
        ),
        FaultKind(
            name="congestion_control_off", group=LATENCY, layer=Layer.UNDERLAY, severity="error",
            symptom="a queue runs without congestion control",
            runbook="Switch ECN marking and DCQCN on for the queue, as on its neighbours.",
            shows=Shows.LATE,
            explains=frozenset({"congestion"}),
        ),
        FaultKind(
            name="acs_ats_wrong", group=LATENCY, layer=Layer.UNDERLAY, severity="warning",
            symptom="PCIe ACS or ATS is set against peer-to-peer traffic",
            runbook="Switch ACS off and ATS on at the bridge above RNIC and GPU.",
            shows=Shows.LATE,
        ),
        FaultKind(
            name="congestion", group=LATENCY, layer=Layer.UNDERLAY, severity="warning",
            symptom="a link is fuller than its neighbours",
            runbook="Look at ECMP hashing and at other jobs on the link; spread 5-tuples.",
            shows=Shows.LATE,
        ),
        FaultKind(
            name="host_down", group=AGENT, layer=Layer.HOST, severity="critical",
            symptom="the host is down: nothing there is heard or answers",
            runbook="Check power and console of the host; cordon it.",
        ),
        FaultKind(
            name="agent_dead", group=AGENT, layer=Layer.HOST, severity="warning",
            symptom="the agent sends no heartbeats; its endpoints are not watched",
            runbook="Restart the agent; if the host does not answer either, treat it as down.",
        ),
        FaultKind(
            name="agents_silent", group=AGENT, layer=Layer.HOST, severity="warning",
            symptom="many agents fell silent at once; what they watch is not watched",
            runbook="Look at what they share: power and uplink of the rack, the way to the broker, "
            "the broker itself.",
        ),
        FaultKind(
            name="agent_unresponsive", group=AGENT, layer=Layer.HOST, severity="warning",
            symptom="the agent lives but does not answer probes",
            runbook="Look at CPU time and sockets of the agent on its host.",
        ),
        FaultKind(
            name="agent_displaced", group=DISPLACED, layer=Layer.HOST, severity="warning",
            symptom="the agent yielded to another process of its name and does not probe",
            runbook="Stop one of the two processes, or give them names of their own; if there is "
            "no second one, look for who wrote its registration.",
        ),
        FaultKind(
            name="probing_stopped", group=PROBING, layer=Layer.HOST, severity="warning",
            symptom="the agent has nothing to probe although its task is running",
            runbook="See whether the skeleton job runs and what it published as the agent's list.",
        ),
        FaultKind(
            name="list_refused", group=REFUSED, layer=Layer.HOST, severity="warning",
            symptom="the agent refuses its newest ping list and follows an earlier one",
            runbook="See who wrote the list; only the skeleton job may write pinglist.v1.",
        ),
        FaultKind(
            name="agent_clock", group=CLOCK, layer=Layer.HOST, severity="warning",
            symptom="the host's clock is off",
            runbook="Look at the host's time synchronisation (NTP, PTP).",
        ),
        FaultKind(
            name="transfer_stuck", group=STUCK, layer=Layer.UNDERLAY, severity="critical",
            symptom="bytes of a training job are not acknowledged, and no probe shows why",
            runbook="Compare both ends: state and counters of links, and that agents probe it.",
        ),
        FaultKind(
            name="collective_stuck", group=STUCK, layer=Layer.JOB, severity="critical",
            symptom="a training job waits in a collective that all its ranks launched",
            runbook="Dump the stacks of these ranks (py-spy dump --native); look at their GPUs.",
        ),
        FaultKind(
            name="rank_stopped", group=JOB, layer=Layer.JOB, severity="critical",
            symptom="the process of the rank is stopped, and the job waits for it",
            runbook="Look at the process's state: continue it, or end the job and start it anew.",
        ),
        FaultKind(
            name="rank_never_launched", group=JOB, layer=Layer.JOB, severity="critical",
            symptom="the rank has not launched the collective in which the others wait",
            runbook="Dump the rank's stack (py-spy dump --native) and see what it does.",
        ),
        FaultKind(
            name="rank_desynchronised", group=JOB, layer=Layer.JOB, severity="critical",
            symptom="the rank does another operation, or another size, than the others",
            runbook="Compare the code paths of these ranks before this operation.",
        ),
        FaultKind(
            name="rank_missing", group=JOB, layer=Layer.JOB, severity="critical",
            symptom="the rank is gone, and the job waits for it",
            runbook="Look at the rank's log and the host's dmesg: an exception, or the OOM killer.",
        ),
        FaultKind(
            name="gpu_stopped", group=JOB, layer=Layer.JOB, severity="critical",
            symptom="a GPU of the waiting ranks does not go on; the network has nothing to carry",
            runbook="Look at nvidia-smi -q and dmesg on the hosts of these ranks for an Xid.",
        ),
        FaultKind(
            name="rank_slow", group=JOB, layer=Layer.JOB, severity="error",
            symptom="the others wait for the rank again and again",
            runbook="Compare its host with others: clocks of CPU and GPU, memory, data loading.",
        ),
    )
}  # fmt: skip


__all__ = [
    "AGENT",
    "CLOCK",
    "DISPLACED",
    "DOWN",
    "GRADUAL",
    "HANG_GROUPS",
    "HOST_GROUPS",
    "JOB",
    "KINDS",
    "LATENCY",
    "LAYER_OF",
    "LOSS",
    "OVERLAY",
    "PARTIAL",
    "PROBING",
    "REFUSED",
    "SELF_GROUPS",
    "STUCK",
    "FaultKind",
    "Shows",
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

# Name of the kind for a component that lets nothing pass and must be down itself.
DOWN: Final = {
    ComponentKind.SWITCH: "switch_down",
    ComponentKind.RNIC: "rnic_unreachable",
    ComponentKind.VSWITCH: "vswitch_down",
}
# Kinds that lose a share of the packets and pass the rest.
PARTIAL: Final = frozenset(k.name for k in KINDS.values() if k.shows is Shows.SHARE)
# It hits one 5-tuple after another: by chance, or another one each time that it is there.
GRADUAL: Final = PARTIAL | {k.name for k in KINDS.values() if k.shows is Shows.FLAPS}
# From this share of cut-off 5-tuples it is a cut and not loss.
CUT_SHARE: Final = 0.6
