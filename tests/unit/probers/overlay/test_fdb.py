"""The kernel's VXLAN forwarding database, as `bridge -j fdb show` prints it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.overlay.fdb import judge, parse_fdb, parse_neighbours, with_macs
from probers.overlay.wire import Answer, Destination, Finding, Way
from tests.unit.probers.overlay.dumps import LOCAL, REMOTE

MAC = "02:00:00:00:00:09"
ENTRY: dict[str, Any] = {
    "mac": MAC, "ifname": "vx0", "dst": "10.9.0.9", "flags": ["self"], "state": "permanent",
}  # fmt: skip
FLOOD = {**ENTRY, "mac": "00:00:00:00:00:00", "dst": "10.9.0.7"}
BRIDGE = {"mac": MAC, "ifname": "vx0", "flags": [], "master": "br0", "state": "static"}
PORT = {"mac": "02:00:00:00:00:01", "ifname": "veth1", "flags": [], "master": "br0"}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def found(*rows: dict[str, Any], of: Destination = REMOTE) -> Finding | None:
    """Return what the entries say of a destination."""
    parsed = parse_fdb(json.dumps(rows), ["vx0"])
    assert parsed is not None
    findings = judge([of], parsed[0], {})
    return findings[0] if findings else None


def test_an_entry_leads_to_its_vtep() -> None:
    """With the bridge's half beside it or not; hardware is told where the kernel says so."""
    sent = Finding(REMOTE.address, Way.TUNNEL, remote="10.9.0.9")
    assert found(ENTRY) == sent
    assert found(BRIDGE, ENTRY, FLOOD) == sent
    marked = found({**ENTRY, "flags": ["self", "offload"]})
    assert marked is not None
    assert marked.offloaded is True


def test_an_address_without_an_entry_is_dropped_unless_it_is_flooded() -> None:
    """The kernel sends to the default destinations, where there are any, and else nowhere."""
    assert found() == Finding(REMOTE.address, Way.VTEP_DROPS)
    assert found(BRIDGE) == Finding(REMOTE.address, Way.VTEP_DROPS)
    assert found(FLOOD) is None


@pytest.mark.parametrize(
    "rows",
    [
        (ENTRY, {**ENTRY, "dst": "10.9.0.8"}),
        ({**{k: v for k, v in ENTRY.items() if k != "dst"}, "nhid": 5},),
        ({**ENTRY, "dst": "fc00::9"},),
        (ENTRY, {**PORT, "mac": MAC}),
    ],
)
def test_what_leads_to_no_single_vtep_is_unknown(rows: tuple[dict[str, Any], ...]) -> None:
    """Several VTEPs, a nexthop group, an underlay that is not IPv4, a port of the bridge."""
    assert found(*rows) is None


def test_an_endpoint_on_the_host_is_at_a_port() -> None:
    """The bridge knows it; where it does not, it floods, and nothing is told."""
    assert found(PORT, of=LOCAL) == Finding(LOCAL.address, Way.LOCAL)
    assert found(of=LOCAL) is None


def test_without_an_ethernet_address_nothing_is_told() -> None:
    """It is counted."""
    counts: dict[str, int] = {}
    assert judge([Destination("10.1.0.9")], [], counts) == []
    assert counts == {"without_mac": 1}


def test_the_last_known_address_of_a_neighbour_goes_on() -> None:
    """A neighbour that fails to answer loses its entry just when it matters."""
    rows = [
        {"dst": "10.1.0.9", "dev": "br0", "state": ["FAILED"]},
        {"dst": "10.1.0.8", "dev": "br0", "lladdr": "02:00:00:00:00:08", "state": ["STALE"]},
        {"dst": "fe80::1", "dev": "br0", "lladdr": MAC, "state": ["STALE"]},
    ]
    neighbours = parse_neighbours(json.dumps(rows))
    assert neighbours is not None
    assert neighbours == {"10.1.0.8": "02:00:00:00:00:08"}
    answer = Answer()
    asked = [REMOTE, Destination("10.1.0.8", mac=MAC), Destination("10.1.0.7")]
    known = with_macs(asked, neighbours, answer)
    assert [d.mac for d in known] == [MAC, "02:00:00:00:00:08", None]
    assert answer.macs == {"10.1.0.9": MAC, "10.1.0.8": "02:00:00:00:00:08"}


@given(st.text())
def test_any_text_is_a_table_or_none(text: str) -> None:
    """Nothing is raised."""
    assert parse_neighbours(text) is None or json.loads(text) is not None
    assert parse_fdb(text, []) is None or json.loads(text) is not None


def test_json_that_nests_without_end_is_no_table() -> None:
    """Python's own limit is met, and nothing is raised."""
    assert parse_fdb("[" * 100_000, []) is None
    assert parse_neighbours("[" * 100_000) is None


@given(st.lists(json_values | st.fixed_dictionaries({"mac": json_values, "ifname": json_values})))
def test_rows_of_any_form_are_taken_or_counted(rows: list[Any]) -> None:
    """Each row is an entry, the bridge's half of one, or strange."""
    parsed = parse_fdb(json.dumps(rows), ["vx0"])
    assert parsed is not None
    entries, strange = parsed
    assert len(entries) + strange <= len(rows)
    assert parse_neighbours(json.dumps(rows)) is not None
