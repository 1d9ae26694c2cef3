"""The kinds of fault that can be injected: places, effects, symptoms, expected verdicts.

The nineteen of SkeletonHunter (SIGCOMM 2025, table 1) and the fourteen of R-Pingmesh
(SIGCOMM 2024), overlap merged. Each builds its effects, and the states of components that
a deployment with readers for them would see (`Trace`); some leave nothing there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from arena.faults.effects import Effect
from arena.faults.injection import FaultInterval, Injection, Places, Symptom
from arena.faults.truth import TrueFault
from arena.world.cluster import Cluster
from arena.world.hosts import HostEvent, HostTrouble
from arena.world.overlay import Damage, TableDamage
from arena.world.topology import agent_id, endpoint_id
from schemas.enums import Layer
from schemas.units import SECOND_NS, US_NS


class Place(Enum):
    """Sorts of component that a fault can sit on."""

    CABLE = "cable"
    UPLINK = "cable between switches"
    SWITCH = "switch"
    UPPER = "switch above the ToRs"
    RNIC = "rnic"
    VSWITCH = "virtual switch"
    ENDPOINT = "endpoint"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Draw:
    """What a builder draws from."""

    cluster: Cluster
    places: Places
    rng: np.random.Generator
    span: FaultInterval

    def between(self, low: float, high: float) -> float:
        """Return a number evenly between two."""
        return float(self.rng.uniform(low, high))

    def effect(self, component: int, **what: float | int | bool | None) -> Effect:
        """Return an effect over the fault's time."""
        return Effect(
            component=component, begin_ns=self.span.begin_ns, end_ns=self.span.end_ns,
            **what,  # type: ignore[arg-type]
        )  # fmt: skip

    def name(self, component: int) -> str:
        """Return a component's id."""
        return self.cluster.names[component]


Build = Callable[[Draw, int], Injection]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault.

    Attributes
    ----------
    name : as scenarios name it
    places : where it can be
    verdict : kind that a verdict should give
    hard : whether everything of somebody's is lost
    layer : where it is
    build : makes it at a component (of `HOST`: at a host's number)
    least_s : how long it must last so that a window can see it
    """

    name: str
    places: Place
    verdict: str
    hard: bool
    layer: Layer
    build: Build
    least_s: float = 60.0


def _cut(draw: Draw, c: int) -> Injection:
    return Injection(effects=[draw.effect(c, loss=1.0)])


def _cut_seen(attribute: str, bad: str, good: str) -> Build:
    def build(draw: Draw, c: int) -> Injection:
        return Injection(
            effects=[draw.effect(c, loss=1.0)],
            symptoms=[Symptom(draw.name(c), attribute, text=bad, usual_text=good)],
        )

    return build


def _flapping(draw: Draw, c: int) -> Injection:
    on, off = draw.between(2, 6), draw.between(4, 15)
    return Injection(
        effects=[
            draw.effect(c, loss=1.0, on_ns=round(on * SECOND_NS), off_ns=round(off * SECOND_NS))
        ],
        symptoms=[Symptom(draw.name(c), "link_flaps", number=round(600 / (on + off)), usual=0)],
    )


def _crc(draw: Draw, c: int) -> Injection:
    loss = draw.between(0.02, 0.15)
    return Injection(
        effects=[draw.effect(c, loss=loss)],
        symptoms=[Symptom(draw.name(c), "crc_errors_per_s", number=round(loss * 1e5), usual=0)],
    )


def _loss_in_bursts(draw: Draw, c: int) -> Injection:
    return Injection(
        effects=[draw.effect(c, loss=draw.between(0.1, 0.3), on_ns=SECOND_NS, off_ns=SECOND_NS)],
        symptoms=[
            Symptom(draw.name(c), "discards_per_s", number=round(draw.between(2e3, 2e4)), usual=0)
        ],
    )


def _black_hole(draw: Draw, c: int) -> Injection:
    return Injection(effects=[draw.effect(c, loss=1.0, share=draw.between(0.4, 0.7))])


def _acl(draw: Draw, c: int) -> Injection:
    return Injection(
        effects=[draw.effect(c, loss=1.0, share=draw.between(0.4, 0.7))],
        symptoms=[
            Symptom(draw.name(c), "acl_denied_per_s", number=round(draw.between(50, 500)), usual=0)
        ],
    )


def _delay(
    low_us: float,
    high_us: float,
    attribute: str | None = None,
    *,
    number: float | None = None,
    usual: float | None = None,
    text: str | None = None,
    usual_text: str | None = None,
    share: tuple[float, float] = (1.0, 1.0),
) -> Build:
    def build(draw: Draw, c: int) -> Injection:
        delay_ns = round(draw.between(low_us, high_us) * US_NS)
        seen = [] if attribute is None else [
            Symptom(draw.name(c), attribute, number=number, usual=usual, text=text,
                  usual_text=usual_text)
        ]  # fmt: skip
        touched = draw.between(*share)
        return Injection(effects=[draw.effect(c, delay_ns=delay_ns, share=touched)], symptoms=seen)

    return build


def _intermittent_delay(draw: Draw, c: int) -> Injection:
    delay_ns = round(draw.between(80, 250) * US_NS)
    return Injection(
        effects=[draw.effect(c, delay_ns=delay_ns, on_ns=2 * SECOND_NS, off_ns=2 * SECOND_NS)],
        symptoms=[
            Symptom(
                draw.name(c), "flow_evictions_per_s", number=round(draw.between(20, 200)), usual=0
            )
        ],
    )


def _ramp(draw: Draw, c: int) -> Injection:
    delay_ns = round(draw.between(60, 200) * US_NS)
    return Injection(
        effects=[
            draw.effect(c, delay_ns=delay_ns, ramp_ns=round(draw.between(20, 60) * SECOND_NS))
        ],
        symptoms=[Symptom(draw.name(c), "egress_utilization", number=0.97, usual=0.4)],
    )


def _deadlock(draw: Draw, c: int) -> Injection:
    return Injection(
        effects=[draw.effect(c, loss=1.0)],
        symptoms=[
            Symptom(
                draw.name(c), "pause_frames_per_s", number=round(draw.between(1e4, 1e5)), usual=2
            )
        ],
    )


def _entries(damage: Damage) -> Build:
    """Break entries of a host's virtual switch; `c` is the virtual switch."""

    def build(draw: Draw, c: int) -> Injection:
        host = c - draw.cluster.vswitch0
        flows = draw.cluster.flows
        mine = draw.cluster.host_of(flows.src) == host
        peers = np.unique(flows.dst[mine])
        few = draw.rng.choice(peers, min(len(peers), int(draw.rng.integers(1, 4))), replace=False)
        span = draw.span
        return Injection(
            effects=[draw.effect(c, loss=1.0, toward=int(dst)) for dst in few],
            damages=[
                TableDamage(host=host, damage=damage, begin_ns=span.begin_ns, end_ns=span.end_ns,
                            dst=tuple(int(d) for d in few))
            ],
        )  # fmt: skip

    return build


def _software_path(draw: Draw, c: int) -> Injection:
    """Take all entries of a host out of the RNIC: packets go through the CPU."""
    host, span = c - draw.cluster.vswitch0, draw.span
    delay_ns = round(draw.between(60, 140) * US_NS)
    damage = TableDamage(
        host=host, damage=Damage.SOFTWARE, begin_ns=span.begin_ns, end_ns=span.end_ns
    )
    return Injection(effects=[draw.effect(c, delay_ns=delay_ns)], damages=[damage])


def _host_down(draw: Draw, host: int) -> Injection:
    span = draw.span
    return Injection(
        hosts=[HostEvent(host=host, trouble=HostTrouble.CRASH, begin_ns=span.begin_ns,
                         end_ns=span.end_ns)]
    )  # fmt: skip


def _container_crash(draw: Draw, c: int) -> Injection:
    return Injection(
        effects=[draw.effect(c, loss=1.0)],
        symptoms=[Symptom(draw.name(c), "container", text="crashed", usual_text="running")],
    )


def _kind(
    name: str, places: Place, verdict: str, layer: Layer, build: Build, *,
    hard: bool, least_s: float = 60.0,
) -> Kind:  # fmt: skip
    return Kind(
        name=name, places=places, verdict=verdict, hard=hard, layer=layer, build=build,
        least_s=least_s,
    )  # fmt: skip


UNDER, OVER, HOST = Layer.UNDERLAY, Layer.OVERLAY, Layer.HOST
# A delay needs two whole windows of 30 s and what comes late.
SLOW_S: Final = 100.0

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        _kind("crc_error", Place.CABLE, "crc_error", UNDER, _crc, hard=False),
        _kind("switch_port_down", Place.UPLINK, "port_down", UNDER,
              _cut_seen("port_state", "down", "up"), hard=True),
        _kind("switch_port_flapping", Place.UPLINK, "port_flapping", UNDER, _flapping, hard=True),
        _kind("switch_offline", Place.SWITCH, "switch_down", UNDER, _cut, hard=True),
        _kind("rnic_hardware_failure", Place.RNIC, "device_gone", UNDER,
              _cut_seen("device", "missing", "present"), hard=True),
        _kind("rnic_firmware_stuck", Place.RNIC, "high_latency", UNDER,
              _delay(60, 200, share=(0.4, 0.8)), hard=False, least_s=SLOW_S),
        _kind("rnic_port_down", Place.RNIC, "port_down", UNDER,
              _cut_seen("port_state", "down", "up"), hard=True),
        _kind("rnic_port_flapping", Place.RNIC, "port_flapping", UNDER, _flapping, hard=True),
        _kind("offload_failure", Place.VSWITCH, "not_offloaded", OVER, _software_path,
              hard=False, least_s=SLOW_S),
        _kind("gid_change", Place.RNIC, "gid_change", UNDER,
              _cut_seen("gid_table", "changed", "as configured"), hard=True),
        _kind("pcie_nic_error", Place.RNIC, "pcie_error", UNDER,
              _delay(40, 150, "pcie_errors_per_s", number=30, usual=0),
              hard=False, least_s=SLOW_S),
        _kind("pcie_downgrade", Place.RNIC, "pcie_downgrade", UNDER,
              _delay(40, 150, "pcie_width", number=4, usual=16), hard=False, least_s=SLOW_S),
        _kind("gpudirect_error", Place.RNIC, "gpudirect_missing", UNDER,
              _delay(30, 120, "gpudirect", text="missing", usual_text="loaded"),
              hard=False, least_s=SLOW_S),
        _kind("not_using_rdma", Place.VSWITCH, "not_using_rdma", OVER,
              _delay(60, 200, "transport", text="tcp", usual_text="rdma"),
              hard=False, least_s=SLOW_S),
        _kind("repetitive_offload", Place.VSWITCH, "repetitive_offload", OVER,
              _intermittent_delay, hard=False, least_s=SLOW_S),
        _kind("container_crash", Place.ENDPOINT, "container_crash", OVER, _container_crash,
              hard=True),
        _kind("hugepage_mismatch", Place.VSWITCH, "hugepage_mismatch", OVER,
              _delay(30, 100, "hugepages", text="mismatch", usual_text="match"),
              hard=False, least_s=SLOW_S),
        _kind("congestion_control_off", Place.UPLINK, "congestion_control_off", UNDER,
              _delay(60, 250, "congestion_control", text="off", usual_text="on"),
              hard=False, least_s=SLOW_S),
        _kind("pfc_deadlock", Place.UPLINK, "pfc_deadlock", UNDER, _deadlock, hard=True),
        _kind("pfc_headroom", Place.UPLINK, "buffer_loss", UNDER, _loss_in_bursts, hard=False),
        _kind("missing_routes", Place.UPPER, "connectivity", UNDER, _black_hole, hard=True),
        _kind("acl_error", Place.UPPER, "acl_error", UNDER, _acl, hard=True),
        _kind("uneven_load", Place.UPLINK, "congestion", UNDER, _ramp, hard=False,
              least_s=SLOW_S + 60),
        _kind("acs_ats_wrong", Place.RNIC, "acs_ats_wrong", UNDER,
              _delay(30, 120, "acs", text="enabled", usual_text="disabled"),
              hard=False, least_s=SLOW_S),
        _kind("silent_cut", Place.UPLINK, "connectivity", UNDER, _cut, hard=True),
        _kind("rnic_silent", Place.RNIC, "rnic_unreachable", UNDER, _cut, hard=True),
        _kind("flow_missing", Place.VSWITCH, "flow_missing", OVER, _entries(Damage.MISSING),
              hard=True),
        _kind("flow_loop", Place.VSWITCH, "flow_loop", OVER, _entries(Damage.LOOP), hard=True),
        _kind("vswitch_down", Place.VSWITCH, "vswitch_down", OVER, _cut, hard=True),
        _kind("host_down", Place.HOST, "agent_dead", HOST, _host_down, hard=True),
    )
}  # fmt: skip


def candidates(kind: Kind, places: Places) -> list[int]:
    """Return the components that a fault of a kind can sit on; of HOST: host numbers."""
    cluster = places.cluster
    fabric = cluster.fabric
    match kind.places:
        case Place.CABLE:
            sorts: Sequence[int] = (4, 5, 6)
        case Place.UPLINK:
            sorts = (5, 6)
        case Place.SWITCH:
            sorts = (1, 2, 3)
        case Place.UPPER:
            sorts = (2, 3)
        case Place.RNIC:
            sorts = (0,)
        case Place.VSWITCH:
            hosts = range(cluster.vswitch0, cluster.endpoint0)
            return places.watched(hosts)
        case Place.ENDPOINT:
            first = cluster.endpoint0
            return places.watched(range(first, first + fabric.shape.rnics))
        case Place.HOST:
            busy = places.watched(range(cluster.vswitch0, cluster.endpoint0))
            return [n - cluster.vswitch0 for n in busy]
    return [n for sort in sorts for n in places.watched(fabric.numbers(sort))]


def inject(
    kind: Kind,
    places: Places,
    rng: np.random.Generator,
    span: FaultInterval,
    *,
    component: int,
    fault_id: str,
) -> Injection:
    """Return everything that a fault of a kind does at a component, with its truth."""
    cluster = places.cluster
    made = kind.build(Draw(cluster, places, rng, span), component)
    if kind.places is Place.HOST:
        right = frozenset({agent_id(component)})
    elif kind.places is Place.ENDPOINT:
        # A container's end shows at its endpoint, its RNIC and its cable alike.
        host, rail = divmod(component - cluster.endpoint0, cluster.rails)
        right = frozenset({endpoint_id(host, rail)}) | places.alike(component)
    else:
        right = places.alike(component)
    # Without a state to tell them apart, a dead RNIC is a cut cable, and the other way round.
    also = frozenset({"connectivity"} if len(right) > 1 and not made.symptoms else ())
    made.truth.append(
        TrueFault(
            fault_id=fault_id, kind=kind.verdict, layer=kind.layer, components=right,
            begin_ns=span.begin_ns, end_ns=span.end_ns, hard=kind.hard, also_kinds=also,
        )
    )  # fmt: skip
    return made
