"""The records that come of findings, and what the localizer reads in them."""

from localizer.facts.overlay import Break, ChainFault, FlowTables
from localizer.network.topology import Topology
from probers.config.overlay import OverlayConfig
from probers.overlay.table import MAX_BYTES, Table, build_table
from probers.overlay.wire import Finding, Way
from schemas import topics
from schemas.codec import Codec
from schemas.records import FlowEntry, FlowTable
from tests.unit.probers.overlay.made import config

NEAR = {"e0": "10.1.0.1", "f0": "10.1.0.2"}
FAR = {"e9": "10.1.0.9"}
SENT = Finding("10.1.0.9", Way.TUNNEL, remote="10.9.0.9", offloaded=True)
ARRIVES = Finding("10.1.0.1", Way.LOCAL, offloaded=True)


def table(
    *findings: Finding,
    settings: OverlayConfig | None = None,
    software: frozenset[str] = frozenset(),
) -> Table:
    """Return the table of host h0."""
    return build_table(
        {f.address: f for f in findings},
        in_use=FAR,
        locals_=NEAR,
        config=settings or config(),
        software_before=software,
    )


def hops(made: Table) -> dict[tuple[str, str], str | None]:
    """Return the next hop of each entry."""
    return {(e.node, e.dst): e.next_hop for e in made.entries}


def replay(src: str, dst: str, **tables: Table) -> ChainFault | None:
    """Follow a chain over hosts' tables, as the localizer does."""
    book = FlowTables(Topology())
    for host, made in tables.items():
        book.set_table(FlowTable(cluster="c1", host_id=host, captured_at=1, entries=made.entries))
    return book.round_trip(src, dst)


def far_table(*findings: Finding) -> Table:
    """Return the table of the other host, h9."""
    return build_table(
        {f.address: f for f in findings},
        in_use={"e0": "10.1.0.1"},
        locals_=FAR,
        config=config(vswitch="v9", vtep_addresses=["10.9.0.9"]),
    )


def test_a_tunnel_is_a_chain_from_every_endpoint_of_the_host() -> None:
    """Endpoint, virtual switch, VTEP, remote VTEP; hardware is no matter of endpoints."""
    made = table(SENT)
    assert hops(made) == {
        ("e0", "e9"): "v0",
        ("f0", "e9"): "v0",
        ("v0", "e9"): "vtep:10.9.0.1",
        ("vtep:10.9.0.1", "e9"): "vtep:10.9.0.9",
    }
    offloaded = {(e.node, e.offloaded) for e in made.entries}
    assert offloaded == {("e0", None), ("f0", None), ("v0", True), ("vtep:10.9.0.1", True)}


def test_both_hosts_tables_make_a_chain_that_arrives() -> None:
    """Each host's agent names the VTEPs alike, so the localizer gets from one to the other."""
    far = far_table(
        Finding("10.1.0.1", Way.TUNNEL, remote="10.9.0.1"), Finding("10.1.0.9", Way.LOCAL)
    )
    assert replay("e0", "e9", h0=table(SENT, ARRIVES), h9=far) is None


def test_a_switch_that_drops_is_found_at_either_end() -> None:
    """On the way there, and where the packet comes out of the tunnel."""
    fault = replay("e0", "e9", h0=table(Finding("10.1.0.9", Way.VSWITCH_DROPS)))
    assert fault is not None
    assert (fault.how, fault.node, fault.dst) == (Break.MISSING, "v0", "e9")
    far = far_table(
        Finding("10.1.0.1", Way.TUNNEL, remote="10.9.0.1"), Finding("10.1.0.9", Way.VSWITCH_DROPS)
    )
    fault = replay("e0", "e9", h0=table(SENT), h9=far)
    assert fault is not None
    assert (fault.how, fault.node, fault.dst) == (Break.MISSING, "v9", "e9")


def test_a_vtep_without_an_entry_is_found() -> None:
    """The forwarding database has none: the VTEP drops, not the switch."""
    fault = replay("e0", "e9", h0=table(Finding("10.1.0.9", Way.VTEP_DROPS)))
    assert fault is not None
    assert (fault.node, fault.dst) == ("vtep:10.9.0.1", "e9")


def test_a_tunnel_to_oneself_is_a_loop() -> None:
    """An entry that points at the host's own VTEP."""
    fault = replay("e0", "e9", h0=table(Finding("10.1.0.9", Way.TUNNEL, remote="10.9.0.1")))
    assert fault is not None
    assert fault.how is Break.LOOP


def test_what_is_not_known_accuses_nobody() -> None:
    """No finding, a VTEP without a name, or a far host that tells nothing of the endpoint."""
    named = config(vtep_ids=None, vteps={"10.9.0.1": "rnic:h0/r0"})
    unknown = table(SENT, settings=named)
    assert unknown.entries == ()
    assert unknown.counts["unknown_vteps"] == 1
    for made in (table(), unknown, table(SENT)):
        assert replay("e0", "e9", h0=made, h9=far_table()) is None


def test_names_of_vteps_come_before_the_pattern() -> None:
    """A host with a VTEP per RNIC: the flow says which one sends."""
    settings = config(
        vtep_addresses=["10.9.0.1", "10.9.1.1"],
        vteps={"10.9.1.1": "rnic:h0/r1", "10.9.0.9": "rnic:h9/r0"},
    )
    sent = Finding("10.1.0.9", Way.TUNNEL, remote="10.9.0.9", local="10.9.1.1")
    made = hops(table(sent, ARRIVES, settings=settings))
    assert made["v0", "e9"] == "rnic:h0/r1"
    assert made["rnic:h0/r1", "e9"] == "rnic:h9/r0"
    assert made["rnic:h0/r1", "e0"] == made["vtep:10.9.0.1", "e0"] == "v0"


def test_software_is_told_when_it_lasts() -> None:
    """A new flow is in software for a moment: the second reading in a row tells."""
    slow = Finding("10.1.0.9", Way.TUNNEL, remote="10.9.0.9", offloaded=False)
    first = table(slow)
    assert {e.offloaded for e in first.entries} == {None}
    second = table(slow, software=first.software)
    assert {(e.node, e.offloaded) for e in second.entries if e.offloaded is not None} == {
        ("v0", False), ("vtep:10.9.0.1", False),
    }  # fmt: skip


def test_a_table_fits_its_message_and_what_is_broken_is_in_it() -> None:
    """Of 10,000 destinations some are left out whole, and counted; not the one that drops."""
    in_use = {f"container-{n:05}/r0": f"10.{n >> 8}.{n & 255}.1" for n in range(10_000)}
    findings = {
        a: Finding(a, Way.TUNNEL, remote="10.9.0.9", offloaded=True) for a in in_use.values()
    }
    last = max(in_use)
    findings[in_use[last]] = Finding(in_use[last], Way.VSWITCH_DROPS)
    made = build_table(findings, in_use=in_use, locals_=NEAR, config=config())
    record = FlowTable(cluster="c1", host_id="h0", captured_at=1, entries=made.entries)
    size_bytes = len(Codec().encode(topics.OVERLAY_FLOWS, record))
    assert MAX_BYTES * 0.8 < size_bytes <= MAX_BYTES
    assert FlowEntry(node="v0", dst=last, next_hop=None) in made.entries
    told = {e.dst for e in made.entries}
    assert made.counts["destinations_omitted"] == 10_000 - len(told) > 0
    # Whole chains: both endpoints' entries, the switch's and the VTEP's.
    assert len(made.entries) == 4 * (len(told) - 1) + 3
