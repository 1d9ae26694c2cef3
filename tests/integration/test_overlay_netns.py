"""The kernel's own VXLAN forwarding database, in a network namespace (root)."""

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from localizer.facts.overlay import FlowTables
from localizer.network.topology import Topology
from probers.clock import SystemClock
from probers.config.overlay import OverlayConfig, checked_overlay
from probers.overlay.watch import OverlayWatch
from probers.probing.plan import FlowTarget
from schemas.enums import Transport
from schemas.process.eventlog import EventLog
from schemas.records import FlowEntry, FlowTable
from tests.unit.probers.overlay.made import endpoint

WAIT_S = 120.0
MAC = "02:00:00:00:00:09"
FLOWS = (FlowTarget("e0", "e9", 0, "10.1.0.9", 4_000, Transport.UDP, 0),)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not Path("/proc/self/ns/net").exists()
        or shutil.which("bridge") is None
        or subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode
        != 0,
        reason="needs root and iproute2 for network namespaces",
    ),
]


class Host:
    """A namespace with a bridge that has a VXLAN device, and a neighbour behind it."""

    def __init__(self) -> None:
        self.name = f"sh{uuid.uuid4().hex[:6]}o"

    def run(self, *line: str) -> None:
        """Run a command in the namespace."""
        subprocess.run(["ip", "netns", "exec", self.name, *line], check=True, capture_output=True)

    def make(self) -> None:
        """Make it all; the VXLAN learns nothing, as with a control plane."""
        subprocess.run(["ip", "netns", "add", self.name], check=True, capture_output=True)
        self.run("ip", "link", "add", "br0", "type", "bridge")
        self.run("ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "dstport", "4789",
                 "local", "10.9.0.1", "nolearning")  # fmt: skip
        self.run("ip", "link", "set", "vx0", "master", "br0")
        for device in ("lo", "br0", "vx0"):
            self.run("ip", "link", "set", device, "up")
        self.run("ip", "addr", "add", "10.1.0.1/24", "dev", "br0")
        self.run("ip", "neigh", "add", "10.1.0.9", "lladdr", MAC, "dev", "br0")

    def fdb(self, verb: str, *what: str) -> None:
        """Change an entry of the VXLAN device."""
        self.run("bridge", "fdb", verb, *what, "dev", "vx0", "self")

    def config(self) -> OverlayConfig:
        """Return an agent's settings that read this namespace, as those of a container do."""
        inside = ["ip", "netns", "exec", self.name]
        wrong: list[str] = []
        found = checked_overlay(
            {
                "source": "fdb",
                "vswitch": "v0",
                "vtep_addresses": ["10.9.0.1"],
                "vtep_ids": "vtep:{address}",
                "devices": ["vx0"],
                "fdb_command": [*inside, "bridge", "-j", "fdb", "show"],
                "neigh_command": [*inside, "ip", "-j", "neigh", "show"],
                "interval_s": 5,
            },
            wrong,
        )
        assert not wrong
        assert found is not None
        return found


@pytest.fixture
def host() -> Iterator[Host]:
    """Make a host, and remove it again."""
    made = Host()
    try:
        made.make()
        yield made
    finally:
        subprocess.run(["ip", "netns", "del", made.name], check=False, capture_output=True)


def read(host: Host) -> tuple[FlowEntry, ...]:
    """Return what an agent's first reading publishes."""
    clock = SystemClock()
    watch = OverlayWatch(host.config(), host_id="h0", cluster="c1", log=EventLog("test"))
    watch.registered(endpoint("e0", "10.1.0.1"))
    deadline = time.monotonic() + WAIT_S
    try:
        while not (told := watch.poll(FLOWS, clock.now())):
            assert time.monotonic() < deadline, watch.trouble
            time.sleep(0.02)
    finally:
        watch.close()
    assert watch.trouble is None
    ((entries, _),) = told
    assert entries is not None
    return entries


def broken_at(entries: tuple[FlowEntry, ...]) -> str | None:
    """Return which node the localizer names as the one without an entry."""
    tables = FlowTables(Topology())
    tables.set_table(FlowTable(cluster="c1", host_id="h0", captured_at=1, entries=entries))
    fault = tables.replay("e0", "e9")
    return None if fault is None else fault.node


def test_an_entry_is_seen_and_so_is_its_loss(host: Host) -> None:
    """Added: the chain goes to its VTEP. Removed: the VTEP drops, and the replay says so."""
    host.fdb("append", MAC, "dst", "10.9.0.9")
    entries = read(host)
    assert {(e.node, e.next_hop) for e in entries if e.dst == "e9"} == {
        ("e0", "v0"),
        ("v0", "vtep:10.9.0.1"),
        ("vtep:10.9.0.1", "vtep:10.9.0.9"),
    }
    assert broken_at(entries) is None
    host.fdb("del", MAC, "dst", "10.9.0.9")
    entries = read(host)
    assert FlowEntry(node="vtep:10.9.0.1", dst="e9", next_hop=None) in entries
    assert broken_at(entries) == "vtep:10.9.0.1"


def test_an_entry_that_points_elsewhere_is_seen(host: Host) -> None:
    """The control plane moved it."""
    host.fdb("append", MAC, "dst", "10.9.0.9")
    host.fdb("replace", MAC, "dst", "10.9.0.8")
    hops = {(e.node, e.dst): e.next_hop for e in read(host)}
    assert hops["vtep:10.9.0.1", "e9"] == "vtep:10.9.0.8"


def test_a_vxlan_that_floods_drops_nothing(host: Host) -> None:
    """With a default destination an address without an entry is flooded: nothing is told."""
    host.fdb("append", "00:00:00:00:00:00", "dst", "10.9.0.7")
    entries = read(host)
    assert entries == ()
    assert broken_at(entries) is None
