"""Makes the flow table of a host from what was read: addresses become components. Pure.

A destination's chain is endpoint → virtual switch → VTEP → remote VTEP → remote virtual switch →
endpoint (the contract of `overlay.flows.v1`). The part of the chain on this host is published as
a whole or, if part of it is not known, not at all: a missing entry accuses its node of having
lost it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from probers.config.overlay import OverlayConfig
from probers.overlay.wire import Finding, Way
from schemas.records import FlowEntry

# The contract's bound, see overlay.flows.v1.
MAX_ENTRIES: Final = 65_536
# Kafka takes a message of 1 MB; the envelope and the host's own names need little.
MAX_BYTES: Final = 900_000
# An entry's lengths, unions and flag.
ENTRY_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Table:
    """Entries to publish, what was left out, and which addresses hardware does not have."""

    entries: tuple[FlowEntry, ...]
    software: frozenset[str]
    counts: Counter[str] = field(default_factory=Counter)


def build_table(
    findings: Mapping[str, Finding],
    *,
    in_use: Mapping[str, str],
    locals_: Mapping[str, str],
    config: OverlayConfig,
    software_before: frozenset[str] = frozenset(),
) -> Table:
    """Return the table of a host.

    Parameters
    ----------
    findings : by address
    in_use, locals_ : addresses of the destinations probed and of the endpoints that
        live on the host, by endpoint id
    software_before : addresses that hardware did not have when the tables were read
        last. A new flow is in software first, so only a flow that stays there is published.
    """
    namer = _Namer(config, software_before)
    groups: list[tuple[int, str, list[FlowEntry]]] = []
    for dst, address in sorted({**in_use, **locals_}.items()):
        finding = findings.get(address)
        chain = [] if finding is None else namer.chain(dst, finding, dst in locals_)
        if chain:
            chain.extend(
                FlowEntry(node=endpoint, dst=dst, next_hop=config.vswitch)
                for endpoint in locals_
                if endpoint != dst
            )
            groups.append((_urgency(chain), dst, chain))
    entries: list[FlowEntry] = []
    room_bytes = MAX_BYTES
    # What is broken comes first where not all has room.
    for _, _, chain in sorted(groups, key=lambda group: group[:2]):
        size_bytes = sum(_size_bytes(entry) for entry in chain)
        if len(entries) + len(chain) > MAX_ENTRIES or size_bytes > room_bytes:
            namer.counts["destinations_omitted"] += 1
            continue
        entries.extend(chain)
        room_bytes -= size_bytes
    entries.sort(key=lambda entry: (entry.node, entry.dst))
    software = frozenset(f.address for f in findings.values() if f.offloaded is False)
    return Table(tuple(entries), software, namer.counts)


class _Namer:
    """Builds the entries of a destination's chain from the virtual switch on."""

    def __init__(self, config: OverlayConfig, software_before: frozenset[str]) -> None:
        self._config = config
        self._software_before = software_before
        own = [config.vtep_id(address) for address in config.vtep_addresses]
        self._own = [name for name in dict.fromkeys(own) if name is not None]
        self.counts: Counter[str] = Counter()

    def chain(self, dst: str, finding: Finding, local: bool) -> list[FlowEntry]:
        """Return the entries; none: the chain is not known to its end."""
        offloaded = finding.offloaded
        if offloaded is False and finding.address not in self._software_before:
            offloaded = None
        return [
            FlowEntry(node=node, dst=dst, next_hop=following, offloaded=offloaded)
            for node, following in self._hops(dst, finding, local)
        ]

    def _hops(self, dst: str, finding: Finding, local: bool) -> Iterator[tuple[str, str | None]]:
        vswitch = self._config.vswitch
        if finding.way is Way.VSWITCH_DROPS or (local and finding.way is Way.LOCAL):
            yield vswitch, dst if finding.way is Way.LOCAL else None
            if local:
                # What a VTEP takes off goes to the virtual switch it is a port of.
                yield from ((vtep, vswitch) for vtep in self._own)
        elif local or finding.way is Way.LOCAL:
            self.counts["elsewhere"] += 1
        elif finding.way is Way.VTEP_DROPS:
            yield vswitch, self._own[0]
            yield self._own[0], None
        else:
            remote = self._config.vtep_id(finding.remote or "")
            vtep = self._config.vtep_id(finding.local) if finding.local else self._own[0]
            if remote is None or vtep is None:
                self.counts["unknown_vteps"] += 1
                return
            yield vswitch, vtep
            yield vtep, remote


def _urgency(chain: list[FlowEntry]) -> int:
    if any(entry.next_hop is None for entry in chain):
        return 0
    return 1 if any(entry.offloaded is False for entry in chain) else 2


def _size_bytes(entry: FlowEntry) -> int:
    names = len(entry.node.encode()) + len(entry.dst.encode())
    return names + len((entry.next_hop or "").encode()) + ENTRY_BYTES
