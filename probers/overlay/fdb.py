"""Finds where the kernel's VXLAN forwarding database sends packets to destinations. Pure.

It parses the output of `bridge -j fdb show` and `ip -j neigh show`. The database is keyed by
Ethernet addresses; the neighbour table says which one a destination has.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from probers.overlay.address import ipv4_number, mac_number, mac_text
from probers.overlay.wire import Answer, Destination, Finding, Way

# Entries of one database: a fabric of 100,000 endpoints.
MAX_ENTRIES: Final = 131_072
# Where frames go for whose address there is no entry.
DEFAULT_MAC: Final = 0


@dataclass(frozen=True, slots=True)
class FdbEntry:
    """One entry; `remote` None: no single VTEP (a nexthop group, or a port of a bridge)."""

    mac: int
    device: str
    remote: str | None
    of_vxlan: bool
    offloaded: bool


def parse_fdb(text: str, devices: Iterable[str]) -> tuple[list[FdbEntry], int] | None:
    """Return the entries, and how many were not understood; None: this is no database."""
    rows = _rows(text)
    if rows is None:
        return None
    vxlan = frozenset(devices)
    entries: list[FdbEntry] = []
    strange = max(0, len(rows) - MAX_ENTRIES)
    for row in rows[:MAX_ENTRIES]:
        entry = _entry(row, vxlan)
        if entry is None:
            strange += 1
        elif not (entry.of_vxlan and "master" in row and entry.remote is None):
            entries.append(entry)
        # Else: the bridge's own entry for the VXLAN port; the device has the other half.
    return entries, strange


def parse_neighbours(text: str) -> dict[str, str] | None:
    """Return Ethernet addresses by IPv4 address; None: this is no neighbour table."""
    rows = _rows(text)
    if rows is None:
        return None
    found: dict[str, str] = {}
    for row in rows[:MAX_ENTRIES]:
        if not isinstance(row, dict):
            continue
        address, mac = row.get("dst"), row.get("lladdr")
        if isinstance(address, str) and isinstance(mac, str) and ipv4_number(address) is not None:
            number = mac_number(mac)
            if number:
                found[address] = mac_text(number)
    return found


def judge(
    destinations: Sequence[Destination], entries: Iterable[FdbEntry], counts: dict[str, int]
) -> list[Finding]:
    """Return where packets to each destination go; what is not known is counted.

    Parameters
    ----------
    destinations : with the Ethernet addresses that are known
    entries : of the database
    counts : is added to
    """
    tunnels: dict[int, list[FdbEntry]] = {}
    ports: dict[int, list[FdbEntry]] = {}
    for entry in entries:
        place = tunnels if entry.of_vxlan else ports
        place.setdefault(entry.mac, []).append(entry)
    floods = DEFAULT_MAC in tunnels
    findings: list[Finding] = []
    for destination in destinations:
        mac = None if destination.mac is None else mac_number(destination.mac)
        if mac is None:
            _count(counts, "without_mac")
            continue
        found = _finding(destination, tunnels.get(mac, []), ports.get(mac, []), floods)
        if found is None:
            _count(counts, "unknown")
        else:
            findings.append(found)
    return findings


def with_macs(
    destinations: Iterable[Destination], neighbours: Mapping[str, str], answer: Answer
) -> list[Destination]:
    """Return the destinations with the addresses that neighbours have now; the answer learns them.

    A neighbour that does not answer any more has no address in the table: the last
    one known goes on, since that is the very moment to look where packets go.
    """
    found: list[Destination] = []
    for each in destinations:
        mac = neighbours.get(each.address, each.mac)
        if mac is not None:
            answer.macs[each.address] = mac
        found.append(Destination(each.address, each.local, mac))
    return found


def _finding(
    destination: Destination, tunnels: list[FdbEntry], ports: list[FdbEntry], floods: bool
) -> Finding | None:
    if destination.local:
        return Finding(destination.address, Way.LOCAL) if ports and not tunnels else None
    if ports:
        return None  # a port of the bridge that is no VXLAN: not our overlay
    if not tunnels:
        return None if floods else Finding(destination.address, Way.VTEP_DROPS)
    remotes = {entry.remote for entry in tunnels}
    if len(remotes) != 1 or None in remotes:
        return None
    offloaded = True if all(entry.offloaded for entry in tunnels) else None
    return Finding(destination.address, Way.TUNNEL, remote=tunnels[0].remote, offloaded=offloaded)


def _entry(row: object, vxlan: frozenset[str]) -> FdbEntry | None:
    if not isinstance(row, dict):
        return None
    mac = mac_number(row["mac"]) if isinstance(row.get("mac"), str) else None
    device, remote, flags = row.get("ifname"), row.get("dst"), row.get("flags")
    if mac is None or not isinstance(device, str):
        return None
    marks = flags if isinstance(flags, list) else []
    known = remote if isinstance(remote, str) and ipv4_number(remote) is not None else None
    return FdbEntry(mac, device, known, device in vxlan, "offload" in marks)


def _rows(text: str) -> list[Any] | None:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return rows if isinstance(rows, list) else None


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1
