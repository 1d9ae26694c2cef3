"""The plan of a lab of namespaces, its tables and its faults, without any namespace."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.fault_kinds import ALL_LABS, KINDS, NETNS_LAB, RXE_LAB
from ops.lab.faults import FaultError, check_fault, targets_of
from ops.lab.netns import breaking
from ops.lab.netns.kernel import SHAPED
from ops.lab.netns.plan import Plan, mac, overlay_address, prefix_of, underlay_address
from ops.lab.netns.tables import Tables
from ops.lab.shape import MAX_HOSTS, MAX_RAILS, LabShape
from ops.lab.suite.cases import SUITE
from schemas.enums import Layer
from schemas.records import FlowEntry

SHAPE = LabShape(rails=2, leaves=1)
PLAN = Plan(SHAPE, "lab.")
# What the network does itself, in this process or by sysctl.
OWN = SHAPED | {"switch-off", "cross-traffic"}
KERNEL_FAULTS = [
    kind.name
    for kind in KINDS.values()
    if NETNS_LAB in kind.labs and kind.layer not in {Layer.HOST, Layer.JOB} and kind.name not in OWN
]


def test_addresses_and_names_are_unique_in_the_largest_lab() -> None:
    """No two components share an address, no two nodes a namespace, no port a device's name."""
    shape = LabShape(hosts=MAX_HOSTS, rails=MAX_RAILS, pods=8, leaves=8, spines=64)
    plan = Plan(shape, prefix_of(Path("/x/default")))
    addresses = plan.addresses()
    assert set(addresses) == {*shape.switch_ids(), *shape.rnic_ids()}
    assert len(set(addresses.values())) == len(addresses)
    assert len({overlay_address(e) for e in shape.endpoints}) == len(shape.endpoints)
    assert len({mac(e) for e in shape.endpoints}) == len(shape.endpoints)
    assert len({plan.namespace(node) for node in plan.nodes}) == len(plan.nodes)
    devices = [(plan.namespace(a), device) for (a, _), device in plan.ports.items()]
    assert len(set(devices)) == len(devices) == 2 * len(shape.links)
    # IFNAMSIZ less the closing zero; a detour's tap puts two characters before it.
    assert max(len(device) for _, device in devices) <= 13


def test_labs_of_one_name_in_two_state_folders_do_not_share_namespaces() -> None:
    """Nor can the name of one lab begin with that of another."""
    assert prefix_of(Path("/a/lab/x")) != prefix_of(Path("/b/lab/x"))
    assert not prefix_of(Path("/a/lab/x-y")).startswith(prefix_of(Path("/a/lab/x")))


def test_leaves_balance_over_all_spines_and_spines_know_one_way() -> None:
    """A remote RNIC has as many next hops at a leaf as there are spines."""
    far = next(e for e in SHAPE.endpoints if e.host_id == "host:h3")
    way = [c for c in PLAN.state("leaf:p0-0") if f"replace {underlay_address(far)}/32" in c]
    assert [c.count("nexthop via") for c in way] == [SHAPE.spines]
    way = [c for c in PLAN.state("spine:1") if f"replace {underlay_address(far)}/32" in c]
    assert [c.split()[-4:] for c in way] == [["10.65.1.1", "dev", "p1-0", "onlink"]]


def fdb(host: int) -> list[dict[str, str]]:
    """Return what `bridge -j fdb show` prints in a host in health, as the plan fills it."""
    lines = []
    for e in SHAPE.endpoints:
        if e.host != host:
            continue
        for dst in (d for d in SHAPE.endpoints if d.rail == e.rail):
            for entry in PLAN.entries(e, dst).values():
                words = entry.split()
                line = {"mac": words[0], "ifname": words[2], "state": "static"}
                if "master" in words:
                    line["master"] = f"b{e.rail}"
                else:
                    line["dst"] = words[4]
                lines.append(line)
    return lines


def walk(entries: dict[tuple[str, str], str | None], src: str, dst: str) -> list[str | None]:
    """Follow the tables from an endpoint to another."""
    met: list[str | None] = [src]
    while met[-1] not in (None, dst) and len(met) < 10:
        met.append(entries.get((str(met[-1]), dst)))
    return met


def test_tables_lead_from_every_endpoint_to_every_other_of_its_rail() -> None:
    """The chain that the localizer replays is whole: switch, tunnel, tunnel, switch."""
    tables = Tables(SHAPE)
    found: list[FlowEntry] = []
    for host in range(SHAPE.hosts):
        found += tables.entries(host, json.dumps(fdb(host)))
    hops = {(entry.node, entry.dst): entry.next_hop for entry in found}
    assert walk(hops, "job1-w0/r1", "job1-w3/r1") == [
        "job1-w0/r1", "vsw:h0", "rnic:h0/r1", "rnic:h3/r1", "vsw:h3", "job1-w3/r1",
    ]  # fmt: skip
    pairs = [(a, b) for a in SHAPE.endpoints for b in SHAPE.endpoints if a.rail == b.rail]
    for a, b in pairs:
        assert walk(hops, a.endpoint_id, b.endpoint_id)[-1] == b.endpoint_id


def test_an_entry_that_is_gone_from_the_kernel_is_gone_from_the_table() -> None:
    """And what others have put there is no entry of the lab's."""
    lines = [line for line in fdb(1) if "dst" not in line]
    lines += [{"mac": "33:33:00:00:00:01", "ifname": "x0", "state": "permanent"}]
    nodes = {(e.node, e.dst) for e in Tables(SHAPE).entries(1, json.dumps(lines))}
    assert ("rnic:h1/r0", "job1-w0/r0") not in nodes
    assert ("vsw:h1", "job1-w0/r0") in nodes


json_values = st.recursive(
    st.none() | st.integers() | st.text("x0r1:.-", max_size=20),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(
    line=st.dictionaries(st.sampled_from(["mac", "ifname", "state", "dst", "master"]), json_values)
)
def test_any_line_of_the_table_is_taken(line: dict[str, object]) -> None:
    """Lines that are none of ours add nothing and raise nothing."""
    tables = Tables(SHAPE)
    assert tables.entries(0, json.dumps([line])) == tables.entries(0, "[]")


@pytest.mark.parametrize("text", ["", "{}", "nonsense"])
def test_what_is_no_table_is_refused(text: str) -> None:
    """A tool that prints something else is told, not taken for empty tables."""
    with pytest.raises(ValueError, match=r".+"):
        Tables(SHAPE).entries(0, text)


@pytest.mark.parametrize("name", KERNEL_FAULTS)
def test_every_kernel_fault_has_commands_for_every_target(name: str) -> None:
    """Each touches a namespace that the healing sets anew."""
    for target in targets_of(KINDS[name], SHAPE):
        spec = check_fault(name, target, {}, SHAPE, NETNS_LAB)
        step = breaking.step(PLAN, spec)
        assert step.commands
        assert step.namespace in {PLAN.namespace(n) for n in breaking.nodes(PLAN, spec)}


def test_a_slow_port_has_a_bucket_of_some_frames_and_a_queue_of_the_time_that_was_asked() -> None:
    """Of one end only; a fair queue stands below a bucket that never drops."""
    link = "link:leaf:p0-0--spine:0"
    slow = check_fault("link-rate", link, {"mbit": 1, "ms": 30}, SHAPE, NETNS_LAB)
    step = breaking.step(PLAN, slow)
    assert (step.tool, step.namespace) == ("tc", PLAN.namespace("leaf:p0-0"))
    assert step.commands == (
        "qdisc replace dev s0 root handle 1: tbf rate 1000kbit burst 6400 latency 30.0ms",
    )
    fair = check_fault(
        "link-rate-fair", link, {"mbit": 80, "ms": 5, "sender": "spine:0"}, SHAPE, NETNS_LAB
    )
    assert breaking.step(PLAN, fair).commands == (
        "qdisc replace dev p0-0 root handle 1: tbf rate 80000kbit burst 100000 latency 1000ms",
        "qdisc replace dev p0-0 parent 1:1 handle 10: fq_codel target 5.0ms",
    )
    assert [s.commands for s in breaking.undoing(PLAN, fair)] == [("qdisc del dev p0-0 root",)]


def test_cross_traffic_is_a_share_of_a_slow_ports_rate_or_a_rate_of_its_own() -> None:
    """Without a share there is none; other faults bring none with them."""
    link = "link:leaf:p0-0--spine:0"

    def ports(kind: str, **params: object) -> list[tuple[str, str, float]]:
        return breaking.cross_traffic(PLAN, check_fault(kind, link, params, SHAPE, NETNS_LAB))

    assert ports("link-rate") == ports("link-cut") == ports("link-delay") == []
    assert ports("link-rate", mbit=10, cross=90) == [("leaf:p0-0", "spine:0", 9.0)]
    assert ports("cross-traffic", mbit=40, sender="spine:0") == [("spine:0", "leaf:p0-0", 40.0)]
    assert [end for end, _, _ in ports("cross-traffic")] == ["leaf:p0-0", "spine:0"]


def test_a_fault_that_the_kind_of_lab_lacks_is_refused_by_name() -> None:
    """The message says which kind of lab has it."""
    with pytest.raises(FaultError, match="of a netns lab, but of loopback"):
        check_fault("flow-loop", "vsw:h1", {}, SHAPE, NETNS_LAB)


@pytest.mark.parametrize("lab", [lab for lab in ALL_LABS if lab != RXE_LAB])
def test_the_suite_has_ten_faults_or_more_for_each_kind_of_lab(lab: str) -> None:
    """All of them can be asked for, and the right answers are among those of the truth."""
    mine = [case for case in SUITE if case.in_lab(lab)]
    assert len(mine) >= 10
    for case in mine:
        spec = check_fault(case.kind, case.target, case.params, SHAPE, lab)
        assert spec.layer is case.layer, case.name
        assert set(case.component_ids) & set(spec.component_ids), case.name
