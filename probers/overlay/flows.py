"""Finds where Open vSwitch's datapath flows send packets to the destinations in use. Pure.

A datapath flow is a cached decision of the pipeline for packets that came. A flow that is missing
says nothing; one that drops says that the pipeline drops. Flows split a decision into passes
(`recirc_id`), so a destination is followed from pass 0 through all flows that its packets may
hit.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from probers.overlay.address import (
    MAC_ONES,
    Masked,
    ipv4_number,
    ipv4_text,
    mac_number,
)
from probers.overlay.megaflow import Flow, Kind, Step
from probers.overlay.wire import Destination, Finding, Way

ETH_IPV4: Final = 0x0800
# TCP and UDP: what probes are, and RoCE v2.
PROBED_PROTOCOLS: Final = frozenset({6, 17})
# Rules that are kept, alike ones once: some dozen megabytes in a process that ends.
MAX_RULES: Final = 65_536
# Masks of IPv4 destinations: those of a routing table, and some odd ones.
MAX_MASKS: Final = 64
# Passes through the tables that are followed; Open vSwitch itself ends at 8 (DPDK: 6).
MAX_PASSES: Final = 12
# Rules looked at for one destination; a pipeline that needs more is not understood.
MAX_LOOKS: Final = 4_096
# A flow that drops and was not used for this long is about other packets than probes,
# which come every minute at least. Flows that idle for 10 s are removed anyway.
RECENT_S: Final = 10.0


class Rule(NamedTuple):
    """What counts of a flow; flows that differ in other matches only are one rule."""

    decapsulated: bool
    mac: Masked | None
    ip: Masked | None
    steps: tuple[Step, ...]
    recent: bool


class Leaf(NamedTuple):
    """What becomes of packets at the end of their passes; `step` None: dropped."""

    step: Step | None
    hardware: bool | None
    decapsulated: bool


@dataclass(slots=True)
class _Pass:
    """The rules of one `recirc_id`, by what they match most narrowly."""

    by_ip: dict[int, dict[int, list[Rule]]] = field(default_factory=dict)
    by_mac: dict[int, list[Rule]] = field(default_factory=dict)
    loose: list[Rule] = field(default_factory=list)

    def add(self, rule: Rule) -> None:
        if rule.ip is not None:
            at = self.by_ip.setdefault(rule.ip.mask, {})
            at.setdefault(rule.ip.value & rule.ip.mask, []).append(rule)
        elif rule.mac is not None and rule.mac.mask == MAC_ONES:
            self.by_mac.setdefault(rule.mac.value, []).append(rule)
        else:
            self.loose.append(rule)

    def matching(self, address: int, mac: int | None) -> Iterator[Rule]:
        for mask, rules in self.by_ip.items():
            yield from (r for r in rules.get(address & mask, ()) if _passes(r, mac))
        if mac is not None:
            yield from self.by_mac.get(mac, ())
        yield from (r for r in self.loose if _passes(r, mac))


class FlowIndex:
    """The rules that may concern the destinations in use.

    `offload` says whether there is hardware that flows can be offloaded to; without it, findings
    do not say where flows are.
    """

    def __init__(self, destinations: Iterable[Destination], *, offload: bool = True) -> None:
        self._offload = offload
        known = [(ipv4_number(d.address), d.mac and mac_number(d.mac)) for d in destinations]
        self._addresses = frozenset(address for address, _ in known if address is not None)
        # The addresses under each mask that flows use.
        self._by_mask: dict[int, frozenset[int]] = {}
        self._macs = frozenset(mac for _, mac in known)
        self._passes: defaultdict[int, _Pass] = defaultdict(_Pass)
        # Whether hardware has the rule, by pass and rule.
        self._rules: dict[tuple[int, Rule], bool | None] = {}
        self.counts: Counter[str] = Counter()

    def add(self, flow: Flow, *, hardware: bool | None) -> None:
        """Index a flow; `hardware` holds for its table unless the flow itself says otherwise."""
        if flow.eth_type not in (None, ETH_IPV4) or (
            flow.ip_proto is not None and flow.ip_proto not in PROBED_PROTOCOLS
        ):
            return
        again = any(step.kind is Kind.AGAIN for step in flow.steps)
        if not self._concerns(flow, again):
            self.counts["flows_of_others"] += 1
            return
        recent = flow.used_s is not None and flow.used_s <= RECENT_S
        rule = Rule(
            flow.decapsulated, flow.eth_dst, flow.ip_dst, flow.steps, bool(flow.steps) or recent
        )
        key = (flow.recirc_id, rule)
        said = (hardware if flow.offloaded is None else flow.offloaded) if self._offload else None
        if key in self._rules:
            # In both tables: hardware has it.
            self._rules[key] = _either(self._rules[key], said)
        elif len(self._rules) >= MAX_RULES:
            self.counts["rules_over"] += 1
        else:
            self._rules[key] = said
            self._passes[flow.recirc_id].add(rule)

    def find(self, destination: Destination) -> Finding | None:
        """Return where packets to a destination go; None: the flows do not say."""
        address = ipv4_number(destination.address)
        if address is None:
            return None
        mac = None if destination.mac is None else mac_number(destination.mac)
        leaves = list(_Walk(self._passes, self._rules, address).leaves(mac))
        if destination.local:
            found = self._arriving([leaf for leaf in leaves if leaf.decapsulated] or leaves)
        else:
            found = self._leaving([leaf for leaf in leaves if not leaf.decapsulated])
        if found is None:
            return None
        way, taken = found
        tunnel = next((leaf.step for leaf in taken if way is Way.TUNNEL), None)
        return Finding(
            destination.address,
            way,
            remote=_text(tunnel and tunnel.remote),
            local=_text(tunnel and tunnel.local),
            offloaded=_any(leaf.hardware for leaf in taken),
        )

    def _concerns(self, flow: Flow, again: bool) -> bool:
        """Whether a packet to a destination in use may hit the flow."""
        if flow.ip_dst is not None:
            return self._has_address(flow.ip_dst)
        if flow.recirc_id == 0 and flow.eth_dst is not None and flow.eth_dst.mask == MAC_ONES:
            return flow.eth_dst.value in self._macs
        # Without a destination a flow says where nothing goes, but for a later pass.
        return again or flow.recirc_id != 0

    def _has_address(self, match: Masked) -> bool:
        addresses = self._by_mask.get(match.mask)
        if addresses is None:
            if len(self._by_mask) >= MAX_MASKS:
                return True
            addresses = frozenset(a & match.mask for a in self._addresses)
            self._by_mask[match.mask] = addresses
        return match.value & match.mask in addresses

    def _leaving(self, leaves: list[Leaf]) -> tuple[Way, list[Leaf]] | None:
        tunnels = [lf for lf in leaves if lf.step is not None and lf.step.kind is Kind.TUNNEL]
        if tunnels:
            if len({(lf.step and lf.step.remote) for lf in tunnels}) == 1:
                return Way.TUNNEL, tunnels
            self.counts["ambiguous"] += 1
            return None
        return self._dropped(leaves)

    def _arriving(self, leaves: list[Leaf]) -> tuple[Way, list[Leaf]] | None:
        ports = [lf for lf in leaves if lf.step is not None and lf.step.kind is Kind.PORT]
        return (Way.LOCAL, ports) if ports else self._dropped(leaves)

    def _dropped(self, leaves: list[Leaf]) -> tuple[Way, list[Leaf]] | None:
        if leaves and all(leaf.step is None for leaf in leaves):
            return Way.VSWITCH_DROPS, leaves
        self.counts["unknown"] += 1
        return None


class _Place(NamedTuple):
    """Where a packet is: in a pass, with a MAC; whether a flow before looked at where it goes."""

    recirc_id: int
    mac: int | None
    named: bool
    before: tuple[int, ...]
    # Whether all flows before are in hardware.
    hardware: bool | None


class _Walk:
    """Follows one destination through the passes."""

    def __init__(
        self,
        passes: dict[int, _Pass],
        rules: dict[tuple[int, Rule], bool | None],
        address: int,
    ) -> None:
        self._passes = passes
        self._rules = rules
        self._address = address
        self._looks = 0

    def leaves(self, mac: int | None) -> Iterator[Leaf]:
        """Return what becomes of its packets, of all flows that name it."""
        for decapsulated in (False, True):
            yield from self._follow(_Place(0, mac, False, (), True), decapsulated)

    def _follow(self, at: _Place, decapsulated: bool) -> Iterator[Leaf]:
        if len(at.before) >= MAX_PASSES or at.recirc_id in at.before:
            return
        for rule in self._passes[at.recirc_id].matching(self._address, at.mac):
            self._looks += 1
            if self._looks > MAX_LOOKS:
                return
            # In later passes a flow need not look at the tunnel again.
            if rule.decapsulated is not decapsulated and (not at.before or rule.decapsulated):
                continue
            has = _both(at.hardware, self._rules[at.recirc_id, rule])
            named = at.named or rule.ip is not None or _is_one(rule.mac)
            ends = [step for step in rule.steps if step.kind is not Kind.AGAIN]
            if named and len(ends) > 1:
                # A flood: one of the copies arrives, and it is not known which.
                yield Leaf(Step(Kind.UNKNOWN), has, decapsulated)
            elif named and ends:
                yield Leaf(ends[0], has, decapsulated)
            elif named and not rule.steps and rule.recent:
                yield Leaf(None, has, decapsulated)
            for step in rule.steps:
                if step.kind is Kind.AGAIN and step.recirc_id in self._passes:
                    mac = at.mac if step.mac is None else step.mac
                    before = (*at.before, at.recirc_id)
                    place = _Place(step.recirc_id, mac, named, before, has)
                    yield from self._follow(place, decapsulated)


def _passes(rule: Rule, mac: int | None) -> bool:
    """Whether the Ethernet address lets a packet hit the rule; one that is not known may."""
    if rule.mac is None:
        return True
    if mac is not None:
        return rule.mac.covers(mac)
    # Through a gateway whose address we do not know; what is for groups is not for us.
    return rule.ip is not None or not (rule.mac.value & rule.mac.mask & 1 << 40)


def _is_one(mac: Masked | None) -> bool:
    return mac is not None and mac.mask == MAC_ONES


def _either(a: bool | None, b: bool | None) -> bool | None:
    return True if a or b else (a if b is None else b)


def _both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _any(values: Iterable[bool | None]) -> bool | None:
    known = list(values)
    return True if True in known else (None if None in known else False)


def _text(address: int | None) -> str | None:
    return None if address is None else ipv4_text(address)
