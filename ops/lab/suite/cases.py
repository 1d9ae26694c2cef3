"""The faults that every kind of lab is tried with, and what the verdict must be. Data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ops.lab.fault_kinds import ALL_LABS, KINDS, LOOPBACK_LAB, NETNS_LAB, RXE_LAB
from schemas.enums import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of fault: what to inject where, and what the verdict must be.

    `component_ids` are the right answers; more than one where the evidence
    cannot tell them apart. `fault_kinds` are the right names; none: any. A
    `hard` fault stops all packets of some 5-tuples at once. Of one that is
    `excused`, no verdict is right as well: it must not be taken for the network's.
    """

    name: str
    kind: str
    target: str
    params: Mapping[str, Any] = field(default_factory=dict)
    component_ids: tuple[str, ...]
    fault_kinds: tuple[str, ...] = ()
    layer: Layer
    timeout_s: float
    hard: bool = False
    excused: bool = False
    labs: tuple[str, ...] = ALL_LABS

    def in_lab(self, lab: str) -> bool:
        """Say whether that kind of lab has the fault, and what can tell it from others."""
        return lab in KINDS[self.kind].labs and lab in self.labs


# Where a trace shows each hop, several ways join two leaves, and round trips are short.
TRACED: Final = (LOOPBACK_LAB, NETNS_LAB)
VERBS: Final = (RXE_LAB,)
LINK: Final = "link:leaf:p0-0--spine:0"
# A leaf whose only uplink's port is shut has no route, and says so itself: of the two, the
# cable and the leaf, nothing shows which.
UPLINK: Final = (LINK, "leaf:p0-0")
CUT: Final = ("connectivity",)
# In this order: windows that hold a fault are no reference for those after them, so what
# takes windows to be seen comes first, after a healthy time.
CASES: Final = (
    Case(
        name="link cut", kind="link-cut", target=LINK, hard=True, fault_kinds=CUT,
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="10 % loss", kind="link-loss", target=LINK, params={"percent": 10.0},
        fault_kinds=("packet_loss",),
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=60,
    ),
    Case(
        name="+5 ms delay", kind="link-delay", target=LINK, params={"ms": 5.0},
        fault_kinds=("high_latency",), labs=TRACED,
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=60,
    ),
    Case(
        name="switch off", kind="switch-off", target="spine:1", hard=True,
        fault_kinds=("switch_down", "connectivity"), labs=TRACED,
        component_ids=("spine:1",), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="flow-table hole", kind="flow-hole", target="vsw:h1", params={"dst": "job1-w0/r0"},
        hard=True, fault_kinds=("flow_missing",),
        component_ids=("vsw:h1",), layer=Layer.OVERLAY, timeout_s=15,
    ),
    Case(
        name="agent killed", kind="agent-kill", target="agent-h2", fault_kinds=("agent_dead",),
        component_ids=("agent-h2",), layer=Layer.HOST, timeout_s=20,
    ),
)  # fmt: skip

SUITE: Final = (
    *CASES,
    Case(
        name="+20 ms delay", kind="link-delay", target=LINK, params={"ms": 20.0},
        fault_kinds=("high_latency",), labs=VERBS,
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=60,
    ),
    Case(
        name="only spine off", kind="switch-off", target="spine:0", hard=True,
        fault_kinds=("switch_down", "connectivity"), labs=VERBS,
        component_ids=("spine:0",), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="RNIC's port shut", kind="link-down", target="link:leaf:p1-0--rnic:h3/r0",
        params={"sender": "rnic:h3/r0"}, hard=True, labs=VERBS,
        fault_kinds=("connectivity", "rnic_unreachable", "port_down", "rnic_down"),
        component_ids=("rnic:h3/r0", "link:leaf:p1-0--rnic:h3/r0"),
        layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="GID changed", kind="gid-change", target="rnic:h4/r0", hard=True,
        fault_kinds=("gid_change",),
        component_ids=("rnic:h4/r0",), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        # What the RNIC sends is answered, what is sent to it is not: the network is well. An agent
        # is accused of that late: that all is lost on it at once is its own matter at first.
        name="stale Q_Key", kind="qkey-stale", target="job1-w2/r0",
        fault_kinds=("agent_unresponsive",),
        component_ids=("agent-h2",), layer=Layer.HOST, timeout_s=30,
    ),
    Case(
        name="20 % damaged frames", kind="link-corrupt", target=LINK, params={"percent": 20.0},
        fault_kinds=("packet_loss", "crc_error"),
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=60,
    ),
    Case(
        name="port shut", kind="link-down", target=LINK, hard=True, fault_kinds=CUT, labs=TRACED,
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="only uplink's port shut", kind="link-down", target=LINK, hard=True, labs=VERBS,
        fault_kinds=("connectivity", "switch_down"), component_ids=UPLINK,
        layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="flapping port", kind="link-flap", target=LINK, params={"ms": 4_000.0}, labs=TRACED,
        fault_kinds=("connectivity", "packet_loss", "port_flapping"),
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=20,
    ),
    Case(
        # As slow for probes that go out every two seconds.
        name="slowly flapping port", kind="link-flap", target=LINK, params={"ms": 12_000.0},
        fault_kinds=("connectivity", "packet_loss", "port_flapping", "switch_down"), labs=VERBS,
        component_ids=UPLINK, layer=Layer.UNDERLAY, timeout_s=20,
    ),
    Case(
        name="RNIC's cable cut", kind="link-cut", target="link:leaf:p1-0--rnic:h3/r0", hard=True,
        fault_kinds=("connectivity", "rnic_unreachable", "port_down"),
        # From the outside an RNIC and its only cable are one.
        component_ids=("link:leaf:p1-0--rnic:h3/r0", "rnic:h3/r0"),
        layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="wrong MTU", kind="link-mtu", target=LINK, hard=True, fault_kinds=CUT,
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="route withdrawn", kind="route-withdraw", target="spine:0",
        params={"dst": "job1-w0/r0"}, hard=True, fault_kinds=("connectivity", "switch_down"),
        labs=TRACED,
        # One RNIC's packets may as well be lost on the cable behind the switch.
        component_ids=("spine:0", LINK), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="blackhole route", kind="route-hole", target="spine:0",
        params={"dst": "job1-w0/r0"}, hard=True, fault_kinds=("connectivity", "switch_down"),
        labs=TRACED,
        # One RNIC's packets may as well be lost on the cable behind the switch.
        component_ids=("spine:0", LINK), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="access list", kind="acl-drop", target="spine:0", params={"percent": 50.0},
        hard=True, fault_kinds=("acl_error", "connectivity", "packet_loss", "switch_down"),
        component_ids=("spine:0",), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="tunnel entry gone", kind="flow-hole", target="rnic:h1/r0",
        params={"dst": "job1-w0/r0"}, hard=True, fault_kinds=("flow_missing",),
        component_ids=("rnic:h1/r0",), layer=Layer.OVERLAY, timeout_s=15,
    ),
    Case(
        name="flow-table loop", kind="flow-loop", target="vsw:h1", params={"dst": "job1-w0/r0"},
        hard=True, fault_kinds=("flow_loop",),
        component_ids=("vsw:h1", "rnic:h1/r0"), layer=Layer.OVERLAY, timeout_s=15,
    ),
    Case(
        name="container killed", kind="container-kill", target="job1-w1", hard=True,
        fault_kinds=("vswitch_down", "flow_missing", "container_crash"),
        component_ids=("vsw:h1",), layer=Layer.OVERLAY, timeout_s=15,
    ),
    Case(
        name="agent stopped", kind="agent-stop", target="agent-h1",
        fault_kinds=("agent_dead", "agent_unresponsive"),
        component_ids=("agent-h1",), layer=Layer.HOST, timeout_s=20,
    ),
    Case(
        name="agent starved", kind="agent-starve", target="agent-h1", params={"percent": 5.0},
        excused=True,
        fault_kinds=("agent_dead", "agent_unresponsive"),
        component_ids=("agent-h1",), layer=Layer.HOST, timeout_s=20,
    ),
)  # fmt: skip
