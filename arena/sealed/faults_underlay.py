"""Hard faults of cables, switches and RNICs: something forwards nothing.

Every function here puts one fault into a draft, between two times, and raises `NoPlaceError` where
the cluster has no place for it. Ranges of parameters stand where they are drawn.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from arena.sealed.draft import LEAST_LOST, Draft, NoPlaceError
from arena.sealed.plan import (
    Effect,
    Place,
    Reader,
    Reroute,
    StateSteps,
    Value,
    Where,
    entering,
    leaving,
)
from arena.sealed.schedule import Schedule, pulses, steady
from arena.sealed.truth import FlowSet, Geometry
from schemas.enums import ProbeStatus

# What probes alone can show of a cut.
BLIND_CUT: Final = frozenset({"connectivity"})
# A cut that routing heals within this time costs each 5-tuple a few probes only.
BRIEF_S: Final = 5.0


def port_down(draft: Draft, begin_s: float, end_s: float) -> None:
    """Cut a cable between switches; routing heals it within seconds."""
    _cut_cable(draft, begin_s, end_s, silent=False)


def silent_port(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let a port die without going down: in half of the cases in one direction, never healed."""
    _cut_cable(draft, begin_s, end_s, silent=True)


def _cut_cable(draft: Draft, begin_s: float, end_s: float, *, silent: bool) -> None:
    geo = draft.geometry(begin_s, end_s)
    both = not silent or draft.rng.random() < 0.5
    over = steady(begin_s, end_s)
    for cable in draft.fabric_cables():
        dlinks = frozenset({2 * cable, 2 * cable + 1} if both else {2 * cable + draft.chosen(2)})
        where = Where(dlinks=dlinks)
        probes, replies = geo.hit(where)
        if len(probes) < 1 or not draft.is_free(begin_s, end_s, probes):
            continue
        rate = len(probes) + len(replies)
        healed_s = end_s
        if not silent and draft.rng.random() < 0.75:
            # From a local repair (0.3 s) to an expired BGP hold timer.
            needed_s = LEAST_LOST / rate
            healed_s = begin_s + max(draft.log_uniform(0.3, 12.0), needed_s)
        if healed_s > end_s or (healed_s < end_s and healed_s - begin_s > 25.0):
            continue
        draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0))
        if healed_s < end_s:
            draft.plan.reroutes.append(Reroute(at_s=healed_s, cable=cable, up=False))
            draft.plan.reroutes.append(Reroute(at_s=end_s, cable=cable, up=True))
        name = draft.cluster.fabric.cables[cable].name
        shown = False
        blind = BLIND_CUT
        if healed_s - begin_s < BRIEF_S:
            blind |= {"packet_loss"}
        if not silent:
            draft.set_state(name, "port_state", begin_s, end_s, "down")
            shown = draft.named(Reader.COLLECTOR, "port_state", begin_s, end_s)
        draft.add_fault(
            kind="connectivity" if silent else "port_down",
            also=frozenset() if shown else blind,
            components=draft.cable_names([cable]) | geo.same_as(probes),
            over=over,
            hard=True,
            note=f"a cable forwards nothing {'both ways' if both else 'one way'}, "
            + (f"routing heals it after {healed_s - begin_s:.1f} s" if healed_s < end_s
               else "routing does not notice"),
            affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("port_down")


def rnic_port_down(draft: Draft, begin_s: float, end_s: float) -> None:
    """Take down the port of an RNIC; a bond moves to its other port."""
    rnic, geo, over = _victim(draft, begin_s, end_s)
    cable = draft.cluster.fabric.cables_of(rnic)[0]
    where = Where(dlinks=frozenset({2 * cable, 2 * cable + 1}))
    probes, replies = geo.hit(where)
    bonded = draft.cluster.shape.homes == 2
    rate = len(probes) + len(replies)
    if not probes:
        raise NoPlaceError("rnic_port_down")
    status = None if bonded else ProbeStatus.LINK_DOWN
    draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0, status=status))
    names = draft.cable_names([cable]) | geo.same_as(probes)
    also: frozenset[str] = frozenset()
    reader, component = Reader.AGENT, draft.cluster.rnic_name(rnic)
    if bonded:
        # LACP notices after one of its short timeouts, or three of its long ones.
        healed_s = begin_s + max(draft.log_uniform(0.5, 9.0), LEAST_LOST / rate)
        if healed_s < end_s:
            draft.plan.reroutes.append(Reroute(at_s=healed_s, cable=cable, up=False))
            draft.plan.reroutes.append(Reroute(at_s=end_s, cable=cable, up=True))
        draft.set_state(component, "bond", begin_s, end_s, "degraded: p0")
        shown = draft.named(reader, "bond", begin_s, end_s)
        kind = "bond_error"
        names |= {component}
        also = frozenset({"port_down"})
        if not shown:
            also |= BLIND_CUT | {"packet_loss"}
    else:
        draft.set_state(component, "port_state", begin_s, end_s, "down")
        shown = draft.named(reader, "port_state", begin_s, end_s)
        kind, also = "port_down", frozenset() if shown else BLIND_CUT | {"rnic_unreachable"}
        names |= {component}
    draft.set_state(draft.cluster.fabric.cables[cable].name, "port_state", begin_s, end_s, "down")
    draft.add_fault(
        kind=kind, also=also, components=names, over=over, hard=True,
        note="the port of an RNIC goes down", affected=probes,
    )  # fmt: skip


def bond_error(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let one slave of a bond carry nothing while its link is up: LACP disagrees."""
    if draft.cluster.shape.homes != 2:
        raise NoPlaceError("bond_error")
    rnic, geo, over = _victim(draft, begin_s, end_s)
    cable = draft.cluster.fabric.cables_of(rnic)[draft.chosen(2)]
    where = Where(dlinks=frozenset({2 * cable, 2 * cable + 1}))
    probes, _ = geo.hit(where)
    if len(probes) < 2:
        raise NoPlaceError("bond_error")
    draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0))
    component = draft.cluster.rnic_name(rnic)
    draft.set_state(component, "bond", begin_s, end_s, "degraded: p1")
    shown = draft.named(Reader.AGENT, "bond", begin_s, end_s)
    draft.add_fault(
        kind="bond_error", also=frozenset() if shown else BLIND_CUT | {"packet_loss"},
        components=draft.cable_names([cable]) | {component} | geo.same_as(probes), over=over,
        hard=True, note="one slave of a bond is up but outside the aggregator", affected=probes,
    )  # fmt: skip


def switch_down(draft: Draft, begin_s: float, end_s: float) -> None:
    """Switch a switch off; routing goes round it where there is a way, sooner, later or never."""
    geo = draft.geometry(begin_s, end_s)
    fabric = draft.cluster.fabric
    for node in draft.switches():
        dlinks = leaving(fabric, node) | entering(fabric, node)
        where = Where(dlinks=dlinks)
        probes, replies = geo.hit(where)
        if len(probes) < 4 or len(probes) > 0.8 * len(geo.probed):
            continue
        if not draft.is_free(begin_s, end_s, probes):
            continue
        rate = len(probes) + len(replies)
        healed_s = end_s
        if draft.rng.random() < 0.7:
            healed_s = begin_s + max(draft.log_uniform(0.5, 12.0), LEAST_LOST / rate)
        over = steady(begin_s, end_s)
        draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0, answers=False))
        cables = fabric.cables_of(node)
        name = fabric.nodes[node].name
        for cable in cables:
            if healed_s < end_s:
                draft.plan.reroutes.append(Reroute(at_s=healed_s, cable=cable, up=False))
                draft.plan.reroutes.append(Reroute(at_s=end_s, cable=cable, up=True))
            draft.set_state(fabric.cables[cable].name, "port_state", begin_s, end_s, "down")
            if fabric.cables[cable].a < fabric.rnics and draft.cluster.shape.homes == 1:
                rnic = draft.cluster.rnic_name(fabric.cables[cable].a)
                draft.set_state(rnic, "port_state", begin_s, end_s, "down")
        for attribute in ("discards_per_s", "pause_frames_per_s", "acl_denied_per_s"):
            draft.set_state(name, attribute, begin_s, end_s, "")
        same = geo.same_as(probes)
        draft.add_fault(
            kind="switch_down", also=_also_of_same(draft, same) | BLIND_CUT,
            components=frozenset({name}) | same, over=over, hard=True,
            note="a switch is off" + (f", routed round after {healed_s - begin_s:.1f} s"
                                      if healed_s < end_s else ""),
            affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("switch_down")


def _also_of_same(draft: Draft, same: frozenset[str]) -> frozenset[str]:
    """Return kinds of components that cannot be told from a switch."""
    cables = {cable.name for cable in draft.cluster.fabric.cables}
    return frozenset({"port_down"}) if same & cables else frozenset()


def rnic_unreachable(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let an RNIC's firmware hang: its port stays up, nothing goes in or out."""
    _dead_rnic(draft, begin_s, end_s, kind="rnic_unreachable", attribute=None, value=None,
               status=None, note="an RNIC's firmware hangs")  # fmt: skip


def device_gone(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let an RNIC fall off the PCIe bus."""
    _dead_rnic(draft, begin_s, end_s, kind="device_gone", attribute="device", value="gone",
               status=ProbeStatus.NO_DEVICE, note="an RNIC is gone from the PCIe bus")  # fmt: skip


def gid_change(draft: Draft, begin_s: float, end_s: float) -> None:
    """Restart a host's network: the RNIC's GIDs are others than its peers know."""
    _dead_rnic(draft, begin_s, end_s, kind="gid_change", attribute="gid_table",
               value=f"3 GIDs {draft.chosen(1 << 24):06x}", status=ProbeStatus.NO_GID,
               note="the RNIC's GIDs changed when the host's network restarted")  # fmt: skip


def _dead_rnic(
    draft: Draft, begin_s: float, end_s: float, *, kind: str, attribute: str | None, value: Value,
    status: ProbeStatus | None, note: str,
) -> None:  # fmt: skip
    rnic, geo, over = _victim(draft, begin_s, end_s)
    members = frozenset({rnic})
    source = Where(place=Place.SOURCE, srcs=members)
    draft.plan.effects += [
        Effect(where=source, schedule=over, loss=1.0, status=status),
        Effect(where=Where(place=Place.SINK, dsts=members), schedule=over, loss=1.0),
    ]
    component = draft.cluster.rnic_name(rnic)
    shown = False
    if attribute is not None:
        draft.set_state(component, attribute, begin_s, end_s, value)
        shown = draft.named(Reader.AGENT, attribute, begin_s, end_s)
        if attribute == "device":
            for other in ("port_state", "crc_errors_per_s", "gid_table", "pcie_width"):
                draft.set_state(component, other, begin_s, end_s, "")
    out, into = geo.of_endpoints((rnic,))
    same = geo.same_as(out | into)
    also = frozenset() if shown else BLIND_CUT | {"rnic_unreachable"}
    draft.add_fault(
        kind=kind, also=also, components=same | {component}, over=over, hard=True, note=note,
        affected=out | into,
    )  # fmt: skip


def acl_error(draft: Draft, begin_s: float, end_s: float) -> None:
    """Add a rule to a switch's access list that drops one pair, or all to one RNIC from there."""
    geo = draft.geometry(begin_s, end_s)
    fabric, flows = draft.cluster.fabric, draft.cluster.flows
    one_pair = draft.rng.random() < 0.6
    for index in draft.shuffled(list(geo.probed)):
        flow = flows[index]
        nodes = [fabric.head(dlink) for dlink in geo.forward[index][:-1]]
        node = nodes[0] if one_pair else nodes[draft.chosen(len(nodes))]
        out = leaving(fabric, node)
        where = Where(dlinks=out, pairs=frozenset({(flow.src, flow.dst)})) if one_pair else (
            Where(dlinks=out, dsts=frozenset({flow.dst}))
        )  # fmt: skip
        probes, _ = geo.hit(where)
        if not probes or not draft.is_free(begin_s, end_s, probes):
            continue
        over = steady(begin_s, end_s)
        draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0, answers=False))
        name = fabric.nodes[node].name
        rate = round(draft.log_uniform(20.0, 5e4), 1)
        draft.set_state(name, "acl_denied_per_s", begin_s + 1.0, end_s, rate)
        shown = draft.named(Reader.COLLECTOR, "acl_denied_per_s", begin_s, end_s)
        components = frozenset({name})
        if not shown:
            components |= _beside(draft, geo, probes, node, ahead=False)
        draft.add_fault(
            kind="acl_error", also=frozenset() if shown else BLIND_CUT | {"packet_loss"},
            components=components | geo.same_as(probes), over=over, hard=True,
            note="an access list drops " + ("one pair" if one_pair else "all to one RNIC"),
            affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("acl_error")


def missing_route(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let a switch lack the route to one RNIC: it drops what it should forward there."""
    geo = draft.geometry(begin_s, end_s)
    fabric, flows = draft.cluster.fabric, draft.cluster.flows
    for index in draft.shuffled(list(geo.probed)):
        flow = flows[index]
        nodes = [fabric.head(dlink) for dlink in geo.forward[index][:-1]]
        node = nodes[draft.chosen(len(nodes))]
        where = Where(dlinks=leaving(fabric, node), dsts=frozenset({flow.dst}))
        probes, _ = geo.hit(where)
        if len(probes) < 2 or not draft.is_free(begin_s, end_s, probes):
            continue
        over = steady(begin_s, end_s)
        draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0))
        draft.add_fault(
            kind="connectivity", also=frozenset({"packet_loss", "acl_error", "rnic_unreachable"}),
            components=frozenset({fabric.nodes[node].name}) | geo.same_as(probes)
            | _beside(draft, geo, probes, node, ahead=True),
            over=over, hard=True, note="a switch lacks the route to one RNIC", affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("missing_route")


def pfc_deadlock(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let pause frames hold a port of a switch for good: its egress and what feeds it alone."""
    geo = draft.geometry(begin_s, end_s)
    fabric = draft.cluster.fabric
    for cable in draft.fabric_cables():
        dlink = 2 * cable + draft.chosen(2)
        where = Where(dlinks=frozenset({dlink}))
        probes, _ = geo.hit(where)
        if len(probes) < 2 or not draft.is_free(begin_s, end_s, probes):
            continue
        over = steady(begin_s, end_s)
        draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0))
        switch = fabric.nodes[fabric.tail(dlink)].name
        rate = round(draft.log_uniform(3e4, 9e5), 0)
        draft.set_state(switch, "pause_frames_per_s", begin_s + 1.0, end_s, rate)
        shown = draft.named(Reader.COLLECTOR, "pause_frames_per_s", begin_s, end_s)
        draft.add_fault(
            kind="pfc_deadlock", also=frozenset() if shown else BLIND_CUT | {"packet_loss"},
            components=draft.cable_names([cable]) | {switch} | geo.same_as(probes), over=over,
            hard=True, note="a port is paused for good", affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("pfc_deadlock")


def port_flapping(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let a cable go up and down: down for 1 to 8 s, three to eight times as long up."""
    geo = draft.geometry(begin_s, end_s)
    fabric = draft.cluster.fabric
    of_rnic = draft.rng.random() < 0.4 and draft.cluster.shape.homes == 1
    cables = draft.access_cables() if of_rnic else draft.fabric_cables()
    for cable in cables:
        where = Where(dlinks=frozenset({2 * cable, 2 * cable + 1}))
        probes, _ = geo.hit(where)
        if not probes or not draft.is_free(begin_s, end_s, probes):
            continue
        share = float(draft.rng.uniform(0.11, 0.25))
        down_s = draft.log_uniform(1.0, 8.0)
        over = pulses(draft.rng, begin_s, end_s, on_s=down_s, share=share)
        status = ProbeStatus.LINK_DOWN if of_rnic else None
        effect = Effect(where=where, schedule=over, loss=1.0, status=status)
        healed_s = None
        seen = effect
        if not of_rnic and draft.rng.random() < 0.5:
            healed_s = draft.log_uniform(0.4, 2.5)
            until = np.minimum(over.ends, over.starts + healed_s)
            seen = replace(effect, schedule=Schedule(over.starts, until))
        if draft.lost(geo, [seen]) < LEAST_LOST or len(over.starts) < 3:
            continue
        draft.plan.effects.append(effect)
        if healed_s is not None:
            _heal_flaps(draft, cable, over, healed_s)
        name = fabric.cables[cable].name
        end = fabric.nodes[fabric.cables[cable].a].name
        _count_flaps(draft, name, over)
        shown = draft.named(Reader.COLLECTOR, "link_flaps", float(over.starts[1]), end_s)
        if of_rnic:
            _count_flaps(draft, end, over)
            shown |= draft.named(Reader.AGENT, "link_flaps", float(over.starts[1]), end_s)
        draft.add_fault(
            kind="port_flapping",
            also=frozenset({"port_down"}) if shown
            else BLIND_CUT | {"packet_loss", "port_down", "rnic_unreachable"},
            components=draft.cable_names([cable]) | ({end} if of_rnic else frozenset())
            | geo.same_as(probes),
            over=Schedule(over.starts[:1], over.ends[-1:]), hard=of_rnic,
            note=f"a cable is down {100 * share:.0f} % of the time, {down_s:.1f} s on average",
            affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("port_flapping")


def _heal_flaps(draft: Draft, cable: int, over: Schedule, healed_s: float) -> None:
    """Route round a cable some time after it goes down, and over it again once it is up."""
    for start_s, stop_s in zip(over.starts, over.ends, strict=True):
        if start_s + healed_s < stop_s:
            draft.plan.reroutes += [
                Reroute(at_s=float(start_s) + healed_s, cable=cable, up=False),
                Reroute(at_s=float(stop_s) + 0.1, cable=cable, up=True),
            ]


def _count_flaps(draft: Draft, component: str, over: Schedule) -> None:
    """Publish how often the link went down in ten minutes, and whether it is down."""
    counts: list[tuple[float, Value]] = [
        (float(at_s), float((over.starts[over.starts > at_s - 600.0] <= at_s).sum()))
        for at_s in over.starts
    ]
    downs: list[tuple[float, Value]] = []
    for start_s, stop_s in zip(over.starts, over.ends, strict=True):
        downs += [(float(start_s), "down"), (float(stop_s), None)]
    for attribute, steps in (("link_flaps", counts), ("port_state", downs)):
        draft.plan.states.append(
            StateSteps(component=component, attribute=attribute, steps=tuple(steps))
        )


def _victim(draft: Draft, begin_s: float, end_s: float) -> tuple[int, Geometry, Schedule]:
    """Return an RNIC whose 5-tuples no other fault spoils."""
    geo = draft.geometry(begin_s, end_s)
    for rnic in draft.endpoints():
        out, into = geo.of_endpoints((rnic,))
        if out and into and draft.is_free(begin_s, end_s, out | into):
            return rnic, geo, steady(begin_s, end_s)
    raise NoPlaceError("rnic")


def _beside(
    draft: Draft, geo: Geometry, probes: FlowSet, node: int, *, ahead: bool
) -> frozenset[str]:
    """Return what 5-tuples cross next to a switch, behind it or ahead of it.

    Where a trace breaks off between two routers, the one, the cable and the other may drop.
    """
    fabric = draft.cluster.fabric
    names: set[str] = set()
    for index in sorted(probes):
        for dlink in geo.forward[index]:
            near, far = fabric.tail(dlink), fabric.head(dlink)
            if (near if ahead else far) == node:
                names.add(fabric.nodes[far if ahead else near].name)
                names |= draft.cable_names([dlink >> 1])
    return frozenset(names)
