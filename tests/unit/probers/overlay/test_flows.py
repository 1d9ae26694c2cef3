"""Where flows send packets to a destination in use."""

from hypothesis import given
from hypothesis import strategies as st

from probers.overlay.flows import FlowIndex
from probers.overlay.megaflow import Flow, parse_line
from probers.overlay.wire import Destination, Finding, Way
from tests.unit.probers.overlay.dumps import LOCAL, PUSH, REMOTE, TO_VTEP, find, flow, kernel

SENT = Finding(REMOTE.address, Way.TUNNEL, remote="10.9.0.9", local="10.9.0.1", offloaded=False)
GATEWAY = "0a:58:00:00:00:01"


def test_a_flow_by_ethernet_address_leads_to_the_vtep() -> None:
    """The commonest: a switch that learns, its flows match Ethernet addresses only."""
    assert find(REMOTE, kernel(TO_VTEP)) == SENT


def test_a_flow_by_ip_address_or_prefix_leads_to_the_vtep() -> None:
    """As virtual routers match; the Ethernet address is a gateway's, the neighbour unknown."""
    routed = Destination(REMOTE.address)
    for ip in ("10.1.0.9", "10.1.0.7/255.255.255.0"):
        assert find(routed, kernel(TO_VTEP, ip=ip, mac=GATEWAY)) == SENT
    assert find(routed, kernel(TO_VTEP, ip="10.2.0.0/255.255.0.0", mac=GATEWAY)) is None


def test_the_userspace_datapath_leads_to_the_vtep_too() -> None:
    """The pushed header names it."""
    assert find(REMOTE, kernel(f"clone({PUSH},1)")) == SENT


def test_flows_of_others_say_nothing() -> None:
    """Another address, another protocol than that of probes, ARP, or no flow at all."""
    assert find(REMOTE) is None
    assert find(REMOTE, kernel("drop", mac="02:00:00:00:00:77")) is None
    assert find(REMOTE, kernel("drop").replace("proto=0/0", "proto=1")) is None
    assert find(REMOTE, kernel("drop").replace("eth_type(0x0800)", "eth_type(0x0806)")) is None


def test_a_flow_that_drops_is_told() -> None:
    """All that names the destination drops, and it was used just now."""
    found = find(REMOTE, kernel("drop"))
    assert found == Finding(REMOTE.address, Way.VSWITCH_DROPS, offloaded=False)


def test_a_drop_is_no_news_beside_a_flow_that_forwards_or_long_ago() -> None:
    """A filter drops other packets to the same address; an old flow tells of old packets."""
    assert find(REMOTE, kernel("drop", ip="10.1.0.9"), kernel(TO_VTEP)) == SENT
    assert find(REMOTE, kernel("drop", used="11.5s")) is None
    assert find(REMOTE, kernel("drop", used="never")) is None


def test_hardware_has_the_flow_or_only_software() -> None:
    """In both tables: hardware; in software only: not; the line's own word comes first."""
    line = kernel(TO_VTEP, said="")
    for software, offloaded, expected in (
        ((line,), (), False),
        ((), (line,), True),
        ((line,), (line,), True),
        ((kernel(TO_VTEP, said="offloaded:yes, dp:tc, "),), (), True),
    ):
        found = find(REMOTE, *software, offloaded=offloaded)
        assert found is not None
        assert found.offloaded is expected


def test_without_hardware_nothing_is_told_of_it() -> None:
    """Where nobody expects offload, its absence is no finding; nor where the table is unknown."""
    for offload, said in ((False, "dp:ovs, "), (True, "")):
        index = FlowIndex([REMOTE], offload=offload)
        index.add(flow(kernel(TO_VTEP, said=said)), hardware=None)
        found = index.find(REMOTE)
        assert found is not None
        assert found.offloaded is None


def test_passes_are_followed_to_their_end() -> None:
    """Connection tracking parts a decision; the first or a later pass names the destination."""
    first = kernel("ct(zone=3),recirc(0x1f)", ip="10.1.0.9")
    later = kernel(TO_VTEP, recirc=0x1F, mac="00:00:00:00:00:00/01:00:00:00:00:00")
    assert find(REMOTE, first, later) == SENT
    anybody = kernel("ct(zone=3),recirc(0x1f)", mac="00:00:00:00:00:00/01:00:00:00:00:00")
    assert find(REMOTE, anybody, kernel(TO_VTEP, recirc=0x1F)) == SENT
    assert find(REMOTE, first) is None
    assert find(REMOTE, first, kernel("drop", recirc=0x1F)) is not None


def test_a_pass_in_software_makes_the_whole_way_software() -> None:
    """Hardware that hands over half-way does not forward."""
    first = kernel("ct(zone=3),recirc(0x1f)", ip="10.1.0.9", said="")
    later = kernel(TO_VTEP, recirc=0x1F, said="")
    for hardware, software, expected in (
        ((first, later), (), True),
        ((first,), (later,), False),
    ):
        found = find(REMOTE, *software, offloaded=hardware)
        assert found is not None
        assert found.offloaded is expected


def test_a_router_rewrites_the_ethernet_address_between_passes() -> None:
    """What follows matches the new one."""
    first = kernel("set(eth(dst=02:00:00:00:00:bb)),recirc(0x6)", ip="10.1.0.9")
    assert find(REMOTE, first, kernel(TO_VTEP, recirc=6, mac="02:00:00:00:00:bb")) == SENT
    assert find(REMOTE, first, kernel(TO_VTEP, recirc=6)) is None


def test_passes_in_a_circle_end() -> None:
    """Two passes that send packets to each other lead nowhere, at once."""
    there = kernel("recirc(0x2)", ip="10.1.0.9", recirc=1)
    back = kernel("recirc(0x1)", ip="10.1.0.9", recirc=2)
    assert find(REMOTE, kernel("recirc(0x1)", ip="10.1.0.9"), there, back) is None


def test_a_flood_says_nothing() -> None:
    """It gets there, but of which copy the answer comes is not known."""
    assert find(REMOTE, kernel(f"{TO_VTEP},36,12")) is None
    assert find(REMOTE, kernel(TO_VTEP), kernel(TO_VTEP.replace("0.9,ttl", "0.8,ttl"))) is None


def test_a_destination_on_the_host_is_reached_by_its_port() -> None:
    """What came out of the tunnel counts first; what drops there is told."""
    arrives = kernel("vf1_rep", mac="02:00:00:00:00:01", tunnel=True)
    found = find(LOCAL, arrives)
    assert found is not None
    assert (found.way, found.remote) == (Way.LOCAL, None)
    dropped = find(LOCAL, kernel("drop", mac="02:00:00:00:00:01", tunnel=True))
    assert dropped is not None
    assert dropped.way is Way.VSWITCH_DROPS


def test_what_comes_out_of_a_tunnel_is_not_what_goes_in() -> None:
    """A remote destination is judged by what leaves the host."""
    assert find(REMOTE, kernel("drop", tunnel=True)) is None


FRAGMENTS = st.sampled_from(
    ["drop", TO_VTEP, "7", "recirc(0x1)", "recirc(0x2)", "ct(zone=1)", f"clone({PUSH},1)"]
)


@given(
    st.lists(
        st.tuples(
            st.lists(FRAGMENTS, min_size=1, max_size=3),
            st.integers(0, 2),
            st.sampled_from(["10.1.0.9", "10.1.0.0/255.255.0.0", "0.0.0.0/0.0.0.0"]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_any_tables_give_a_finding_of_a_known_vtep_or_none(
    made: list[tuple[list[str], int, str, bool]],
) -> None:
    """Whatever flows there are: no endless way, and no VTEP that no flow names."""
    index = FlowIndex([REMOTE, LOCAL])
    for actions, recirc, ip, tunnel in made:
        line = parse_line(kernel(",".join(actions), recirc=recirc, ip=ip, tunnel=tunnel))
        assert isinstance(line, Flow)
        index.add(line, hardware=tunnel)
    for destination in (REMOTE, LOCAL):
        found = index.find(destination)
        assert found is None or (found.way is Way.TUNNEL) is (found.remote == "10.9.0.9")
