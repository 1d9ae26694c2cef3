"""Gray faults: a share of the packets is lost, or packets are late, always or in pulses."""

from typing import Final

from arena.sealed.draft import (
    LEAST_LATE_S,
    LEAST_LOST,
    LEAST_PULSED_S,
    Draft,
    NoPlaceError,
    late,
    lossy,
)
from arena.sealed.plan import (
    KEEP,
    Delay,
    Effect,
    Place,
    Reader,
    TableEdit,
    Value,
    Where,
    leaving,
)
from arena.sealed.queues import Load, paused_loads
from arena.sealed.schedule import Schedule, pulses, steady
from arena.sealed.truth import FlowSet, Geometry

# Losses on one cable, and what latency faults add, as the field reports them.
LEAST_LOSS, MOST_LOSS = 0.0005, 0.03
LEAST_SHIFT_NS, MOST_SHIFT_NS = 3e3, 20e3
BLIND_LOSS: Final = frozenset({"packet_loss"})
BLIND_DELAY: Final = frozenset({"high_latency", "latency_drift"})
PULSED: Final = 0.3


def packet_loss(draft: Draft, begin_s: float, end_s: float) -> None:
    """Lose 0.05 to 3 % on one cable, one way or both, and nobody counts it."""
    _loss(draft, begin_s, end_s, kind="packet_loss", attribute=None)


def crc_error(draft: Draft, begin_s: float, end_s: float) -> None:
    """Damage 0.05 to 3 % of the frames on one cable."""
    _loss(draft, begin_s, end_s, kind="crc_error", attribute="crc_errors_per_s")


def buffer_loss(draft: Draft, begin_s: float, end_s: float) -> None:
    """Overflow the buffer of a switch's port in the job's bursts: too little headroom for PFC."""
    _loss(draft, begin_s, end_s, kind="buffer_loss", attribute="discards_per_s")


def _loss(draft: Draft, begin_s: float, end_s: float, *, kind: str, attribute: str | None) -> None:
    rng = draft.rng
    geo = draft.geometry(begin_s, end_s)
    fabric = draft.cluster.fabric
    of_rnic = rng.random() < 0.3 and kind != "buffer_loss"
    both = rng.random() < 0.4 and kind != "buffer_loss"
    if kind == "buffer_loss":
        # The job's bursts: a third to two thirds of the time.
        over = pulses(rng, begin_s, end_s, on_s=float(rng.uniform(1.0, 6.0)),
                      share=float(rng.uniform(0.3, 0.65)))  # fmt: skip
    elif rng.random() < PULSED:
        over = pulses(rng, begin_s, end_s, on_s=draft.log_uniform(2.0, 20.0),
                      share=float(rng.uniform(0.05, 0.25)))  # fmt: skip
    else:
        over = steady(begin_s, end_s)
    meant = draft.log_uniform(LEAST_LOSS, MOST_LOSS)
    for cable in draft.access_cables() if of_rnic else draft.fabric_cables():
        dlinks = frozenset({2 * cable, 2 * cable + 1} if both else {2 * cable + draft.chosen(2)})
        where = Where(dlinks=dlinks)
        probes, replies = geo.hit(where)
        if not probes or not draft.is_free(begin_s, end_s, probes):
            continue
        needed = LEAST_LOST / ((len(probes) + len(replies)) * over.on_s)
        if needed > MOST_LOSS:
            continue
        share = max(meant, needed)
        effect = lossy(rng, where, over, share, bursts=rng.random() < 0.4)
        if draft.lost(geo, [effect]) < LEAST_LOST:
            effect = lossy(rng, where, over, share, bursts=False)
        draft.plan.effects.append(effect)
        shown = False
        names = draft.cable_names([cable])
        if attribute == "crc_errors_per_s":
            # The end that receives counts: of the RNIC's own cable, RNIC or switch.
            rate = round(share * draft.log_uniform(2e5, 5e6), 1)
            shown = _count(draft, fabric.cables[cable].name, attribute, over=over, rate=rate,
                           reader=Reader.COLLECTOR)  # fmt: skip
            if of_rnic and 2 * cable + 1 in dlinks:
                rnic = fabric.nodes[fabric.cables[cable].a].name
                shown |= _count(draft, rnic, attribute, over=over, rate=rate, reader=Reader.AGENT)
        elif attribute == "discards_per_s":
            (dlink,) = dlinks
            switch = fabric.nodes[fabric.tail(dlink)].name
            names |= {switch}
            rate = round(share * draft.log_uniform(1e5, 5e6), 1)
            shown = _count(draft, switch, attribute, over=steady(begin_s, end_s),
                           rate=max(rate, 12.0), reader=Reader.COLLECTOR)  # fmt: skip
        if of_rnic:
            names |= {fabric.nodes[fabric.cables[cable].a].name}
        pulsed = "" if len(over.starts) == 1 else f" in pulses on {_percent(over)} of the time"
        draft.add_fault(
            kind=kind, also=frozenset() if shown else BLIND_LOSS,
            components=names | geo.same_as(probes), over=_span(over), hard=False,
            note=f"{100 * share:.3f} % lost {'both ways' if both else 'one way'}{pulsed}",
            affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError(kind)


def high_latency(draft: Draft, begin_s: float, end_s: float) -> None:
    """Add 3 to 20 us on one cable, one way, or on all that leaves a switch."""
    geo = draft.geometry(begin_s, end_s)
    over = _when(draft, begin_s, end_s)
    fabric = draft.cluster.fabric
    of_switch = draft.rng.random() < 0.25
    if of_switch:
        places = [(leaving(fabric, node), frozenset({fabric.nodes[node].name}))
                  for node in draft.switches()]  # fmt: skip
    else:
        places = [(frozenset({2 * cable + draft.chosen(2)}), draft.cable_names([cable]))
                  for cable in draft.fabric_cables()]  # fmt: skip
    for dlinks, names in places:
        where = Where(dlinks=dlinks)
        probes, _ = geo.hit(where)
        if _slow(draft, geo, probes, over, [where], kind="high_latency", names=names):
            return
    raise NoPlaceError("high_latency")


def pcie_downgrade(draft: Draft, begin_s: float, end_s: float) -> None:
    """Train an RNIC's PCIe link at half its width."""
    _slow_rnic(draft, begin_s, end_s, kind="pcie_downgrade", state=("pcie_width", 8.0))


def pcie_error(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let an RNIC's PCIe link replay packets."""
    rate = round(draft.log_uniform(2.0, 400.0), 1)
    _slow_rnic(draft, begin_s, end_s, kind="pcie_error", state=("pcie_errors_per_s", rate))


def gpudirect_missing(draft: Draft, begin_s: float, end_s: float) -> None:
    """Unload the peer memory module: data bounces through host memory."""
    _slow_rnic(draft, begin_s, end_s, kind="gpudirect_missing", state=("gpudirect", "missing"))


def acs_ats_wrong(draft: Draft, begin_s: float, end_s: float) -> None:
    """Switch ACS on above an RNIC: peer-to-peer traffic goes through the root complex."""
    _slow_rnic(draft, begin_s, end_s, kind="acs_ats_wrong", state=("acs", "enabled"))


def _slow_rnic(
    draft: Draft, begin_s: float, end_s: float, *, kind: str, state: tuple[str, Value]
) -> None:
    geo = draft.geometry(begin_s, end_s)
    over = steady(begin_s, end_s)
    for rnic in draft.endpoints():
        members = frozenset({rnic})
        wheres = [
            Where(place=Place.SOURCE, srcs=members),
            Where(place=Place.SINK, dsts=members),
        ]
        out, into = geo.of_endpoints((rnic,))
        component = draft.cluster.rnic_name(rnic)
        if _slow(
            draft, geo, out | into, over, wheres, kind=kind, names=frozenset({component}),
            state=(component, *state, Reader.AGENT),
        ):  # fmt: skip
            return
    raise NoPlaceError(kind)


def hugepage_mismatch(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let the hugepages of a host's virtual switch not fit its RNICs."""
    if not draft.cluster.overlay:
        raise NoPlaceError("hugepage_mismatch")
    geo = draft.geometry(begin_s, end_s)
    over = steady(begin_s, end_s)
    for host in draft.hosts():
        group = draft.cluster.hosts[host]
        members = frozenset(group.endpoints)
        wheres = [
            Where(place=Place.SOURCE, srcs=members),
            Where(place=Place.SINK, dsts=members),
        ]
        out, into = geo.of_endpoints(group.endpoints)
        name = draft.cluster.vswitch_name(host)
        if _slow(
            draft, geo, out | into, over, wheres, kind="hugepage_mismatch",
            names=frozenset({name, group.name}),
            state=(name, "hugepages", "mismatch", Reader.AGENT),
        ):  # fmt: skip
            return
    raise NoPlaceError("hugepage_mismatch")


def not_offloaded(draft: Draft, begin_s: float, end_s: float) -> None:
    """Keep the entries of one RNIC, for all or some of its destinations, out of hardware."""
    _software(draft, begin_s, end_s, repeated=False)


def repetitive_offload(draft: Draft, begin_s: float, end_s: float) -> None:
    """Evict the offloaded entries of one RNIC again and again."""
    _software(draft, begin_s, end_s, repeated=True)


def _software(draft: Draft, begin_s: float, end_s: float, *, repeated: bool) -> None:
    cluster, rng = draft.cluster, draft.rng
    if not cluster.overlay:
        raise NoPlaceError("not_offloaded")
    geo = draft.geometry(begin_s, end_s)
    kind = "repetitive_offload" if repeated else "not_offloaded"
    over = steady(begin_s, end_s)
    if repeated:
        over = pulses(rng, begin_s, end_s, on_s=draft.log_uniform(4.0, 20.0),
                      share=float(rng.uniform(0.25, 0.6)))  # fmt: skip
    for rnic in draft.endpoints():
        peers = sorted({f.dst for f in cluster.flows if f.src == rnic})
        some = len(peers) > 2 and rng.random() < 0.4
        dsts = frozenset(draft.shuffled(peers)[: max(2, len(peers) // 2)] if some else peers)
        host = cluster.sites[rnic].host
        where = Where(place=Place.SOURCE, srcs=frozenset({rnic}), dsts=dsts)
        probes, _ = geo.hit(where)
        vswitch, vtep = cluster.vswitch_name(host), cluster.vtep_name(rnic)
        names = frozenset({cluster.rnic_name(rnic), vtep, vswitch})
        # The slow path through the host's CPU costs 15 to 100 us: more than the gray range.
        delay = Delay(fixed_ns=draft.log_uniform(10e3, 60e3), spread_ns=draft.log_uniform(4e3, 4e4))
        state = None
        shown = not cluster.fdb and not repeated
        if repeated:
            rate = round(draft.log_uniform(1.2, 60.0), 2)
            state = (vswitch, "flow_evictions_per_s", rate, Reader.AGENT)
        if not _slow(draft, geo, probes, over, [where], kind=kind, names=names, state=state,
                     delay=delay, shown=shown, also=frozenset() if not repeated
                     else frozenset({"not_offloaded"})):  # fmt: skip
            continue
        for node in (vswitch, vtep):
            draft.plan.tables.append(
                TableEdit(host=host, node=node, dsts=dsts, schedule=over, next_hop=KEEP,
                          offloaded=False)
            )  # fmt: skip
        return
    raise NoPlaceError(kind)


def not_using_rdma(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let an endpoint fall back to UDP: its packets go through the kernel of its host."""
    geo = draft.geometry(begin_s, end_s)
    over = steady(begin_s, end_s)
    for rnic in draft.endpoints():
        members = frozenset({rnic})
        wheres = [
            Where(place=Place.SOURCE, srcs=members),
            Where(place=Place.SINK, dsts=members),
        ]
        out, into = geo.of_endpoints((rnic,))
        component = draft.cluster.rnic_name(rnic)
        delay = Delay(fixed_ns=draft.log_uniform(12e3, 45e3), spread_ns=draft.log_uniform(3e3, 2e4))
        if _slow(
            draft, geo, out | into, over, wheres, kind="not_using_rdma", delay=delay,
            names=frozenset({component}), state=(component, "transport", "udp", Reader.AGENT),
        ):  # fmt: skip
            draft.plan.fallbacks.append((rnic, over))
            return
    raise NoPlaceError("not_using_rdma")


def congestion_control_off(draft: Draft, begin_s: float, end_s: float) -> None:
    """Run a switch's queue without ECN: it fills up in every burst of the job."""
    over = pulses(draft.rng, begin_s, end_s, on_s=float(draft.rng.uniform(3.0, 12.0)),
                  share=float(draft.rng.uniform(0.4, 0.7)))  # fmt: skip
    _full(draft, begin_s, end_s, over, kind="congestion_control_off")


def congestion(draft: Draft, begin_s: float, end_s: float) -> None:
    """Fill one cable for minutes: an unlucky hash, or another job."""
    _full(draft, begin_s, end_s, steady(begin_s, end_s), kind="congestion")


def _full(draft: Draft, begin_s: float, end_s: float, over: Schedule, *, kind: str) -> None:
    geo = draft.geometry(begin_s, end_s)
    fabric, queues = draft.cluster.fabric, draft.queues
    if over.on_s < LEAST_PULSED_S:
        raise NoPlaceError(kind)
    for cable in draft.fabric_cables():
        dlink = 2 * cable + draft.chosen(2)
        probes, _ = geo.hit(Where(dlinks=frozenset({dlink})))
        if len(probes) < 2 or not draft.is_free(begin_s, end_s, probes):
            continue
        spread_ns = draft.spread_ns(probes, begin_s)
        meant_ns = max(draft.log_uniform(6e3, 4e4), 1.5 * spread_ns)
        # Mean wait of M/G/1: rho / (1 - rho) * service * burst.
        odds = meant_ns / (queues.service_ns * queues.burst)
        rho = min(max(odds / (1.0 + odds), 0.85), 0.98)
        load = Load(dlinks=frozenset({dlink}), schedule=over, rho=rho)
        draft.plan.loads += paused_loads(draft.cluster, load)
        switch = fabric.nodes[fabric.tail(dlink)].name
        names = draft.cable_names([cable]) | {switch}
        cable_name = fabric.cables[cable].name
        if kind == "congestion":
            draft.set_state(cable_name, "egress_utilization", begin_s, end_s,
                            round(max(rho, 0.91), 3))  # fmt: skip
            shown = draft.named(Reader.COLLECTOR, "egress_utilization", begin_s, end_s)
        else:
            draft.set_state(switch, "congestion_control", begin_s, end_s, "off")
            draft.set_state(switch, "pause_frames_per_s", begin_s, end_s, 700.0)
            shown = draft.named(Reader.COLLECTOR, "congestion_control", begin_s, end_s)
        draft.add_fault(
            kind=kind, also=frozenset() if shown else BLIND_DELAY | {"congestion"},
            components=names | geo.same_as(probes), over=_span(over), hard=False,
            note=f"a queue at load {rho:.3f} on {_percent(over)} of the time", affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError(kind)


def _slow(
    draft: Draft, geo: Geometry, probes: FlowSet, over: Schedule, wheres: list[Where], *,
    kind: str, names: frozenset[str], state: tuple[str, str, Value, Reader] | None = None,
    delay: Delay | None = None, shown: bool = False, also: frozenset[str] = frozenset(),
) -> bool:  # fmt: skip
    """Put a latency fault there, if the place is fit for one."""
    span = _span(over)
    least_s = LEAST_LATE_S if len(over.starts) == 1 else LEAST_PULSED_S
    if len(probes) < 2 or over.on_s < least_s:
        return False
    if not draft.is_free(span.begin_s, span.end_s, probes):
        return False
    if delay is None:
        spread_ns = draft.spread_ns(probes, span.begin_s)
        if spread_ns > MOST_SHIFT_NS:
            return False
        shift_ns = max(draft.log_uniform(LEAST_SHIFT_NS, MOST_SHIFT_NS), spread_ns)
        # A round trip meets source and sink of one RNIC once each.
        delay = late(shift_ns / len(wheres), draft.rng)
        if kind == "pcie_error":
            share = float(draft.rng.uniform(0.3, 0.6))
            delay = Delay(share=share, fixed_ns=delay.fixed_ns / share,
                          spread_ns=delay.spread_ns / share)  # fmt: skip
    for where in wheres:
        draft.plan.effects.append(Effect(where=where, schedule=over, delay=delay))
    if state is not None:
        component, attribute, value, reader = state
        draft.set_state(component, attribute, span.begin_s, span.end_s, value)
        shown = draft.named(reader, attribute, span.begin_s, span.end_s)
    mean_ns = delay.mean_ns * len(wheres)
    draft.add_fault(
        kind=kind, also=also if shown else BLIND_DELAY | also,
        components=names | geo.same_as(probes), over=span, hard=False,
        note=f"{mean_ns / 1e3:.1f} us more on average, on {_percent(over)} of the time",
        affected=probes,
    )  # fmt: skip
    return True


def _when(draft: Draft, begin_s: float, end_s: float) -> Schedule:
    """Return when a latency fault is on: always, or on 5 to 25 % of the time."""
    if draft.rng.random() >= PULSED:
        return steady(begin_s, end_s)
    least = max(0.05, 1.15 * LEAST_PULSED_S / (end_s - begin_s))
    if least > 0.25:
        return steady(begin_s, end_s)
    for _ in range(8):
        share = float(draft.rng.uniform(least, 0.25))
        over = pulses(draft.rng, begin_s, end_s, on_s=draft.log_uniform(2.0, 20.0), share=share)
        if over.on_s >= LEAST_PULSED_S:
            return over
    return steady(begin_s, end_s)


def _count(
    draft: Draft, component: str, attribute: str, *, over: Schedule, rate: float, reader: Reader
) -> bool:
    """Publish a rate of errors; return whether it names the fault for sure.

    It is a mean over 30 s, so pulses dilute it.
    """
    diluted = max(round(rate * over.on_s / (over.end_s - over.begin_s), 2), 0.0)
    draft.set_state(component, attribute, over.begin_s + 5.0, over.end_s + 25.0, diluted)
    limit = 10.0 if attribute == "discards_per_s" else 1.0
    return diluted >= limit and draft.named(reader, attribute, over.begin_s, over.end_s)


def _span(over: Schedule) -> Schedule:
    """Return from when to when something is there, pauses included."""
    return Schedule(over.starts[:1], over.ends[-1:])


def _percent(over: Schedule) -> str:
    return f"{100 * over.on_s / (over.end_s - over.begin_s):.0f} %"
