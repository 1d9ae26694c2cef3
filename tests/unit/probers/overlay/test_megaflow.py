"""Lines of `dpctl/dump-flows`, of every datapath, and garbage."""

import os
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.overlay.address import ipv4_number, mac_number
from probers.overlay.megaflow import (
    MAX_LINE_CHARS,
    Flow,
    Kind,
    MalformedError,
    Skipped,
    Step,
    parse_line,
    split,
)
from tests.unit.probers.overlay.dumps import PUSH, TO_VTEP, flow, kernel

VTEP = ipv4_number("10.9.0.9")
OWN = ipv4_number("10.9.0.1")
TUNNEL = Step(Kind.TUNNEL, remote=VTEP, local=OWN)
SHORT = (
    "recirc_id(0),in_port(11),eth(src=fa:16:3e:00:00:01,dst=fa:16:3e:00:00:02),eth_type(0x0800),"
    "ipv4(tos=0/0x3,frag=no), packets:18, bytes:107, used:never, flags:SFP., "
    "actions:set(tunnel(tun_id=0x2,dst=10.9.0.9,ttl=64,tp_dst=4789,flags(df|key))),3"
)
DPDK = (
    "ufid:888825cd-9f23-4d72-8ee4-a4b5b1e32ec2, skb_priority(0/0),skb_mark(0/0),ct_state(0/0),"
    "ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0),in_port(vdpa1),"
    "packet_type(ns=0,id=0),eth(src=de:75:cc:e1:c6:86,dst=de:75:cc:e1:c6:85),eth_type(0x0800),"
    "ipv4(src=10.1.0.1/0.0.0.0,dst=10.1.0.9/255.255.255.0,proto=17,tos=0/0,ttl=64/0,frag=no),"
    "udp(src=49152/0,dst=4791), packets:60, bytes:5880, used:0.023s, offloaded:partial, dp:dpdk, "
    f"actions:clone({PUSH},1), dp-extra-info:miniflow_bits(5,1)"
)
VLAN = (
    "recirc_id(0),in_port(2),eth(dst=02:00:00:00:00:09),eth_type(0x8100),vlan(vid=7,pcp=0),"
    "encap(eth_type(0x0800),ipv4(dst=10.1.0.9,frag=no)), packets:1, bytes:60, used:1.5s, "
    "actions:pop_vlan,3"
)
LINES = (
    SHORT,
    DPDK,
    VLAN,
    kernel(TO_VTEP, said="offloaded:yes, dp:tc, "),
    kernel("drop"),
    kernel("ct(zone=15,nat),recirc(0x440)", ip="10.1.0.9"),
    kernel("check_pkt_len(size=1518,gt(drop),le(" + TO_VTEP + "))"),
)


def test_a_line_of_the_kernels_datapath_is_read_whole() -> None:
    """UFID, wildcards, statistics, offload and a tunnel with nested flags."""
    found = flow(kernel(TO_VTEP, ip="10.1.0.9", said="offloaded:yes, dp:tc, "))
    assert found.recirc_id == 0
    assert not found.decapsulated
    assert found.eth_type == 0x0800
    assert found.eth_dst is not None
    assert found.eth_dst.value == mac_number("02:00:00:00:00:09")
    assert found.ip_dst is not None
    assert found.ip_dst.value == ipv4_number("10.1.0.9")
    assert found.ip_proto is None
    assert found.used_s == 0.26
    assert found.offloaded is True
    assert found.steps == (TUNNEL,)


def test_a_line_without_details_is_read_too() -> None:
    """Without `-m` there are no wildcards and no UFID; nothing is said of offload."""
    found = flow(SHORT)
    assert (found.used_s, found.offloaded, found.ip_dst) == (None, None, None)
    assert found.steps == (Step(Kind.TUNNEL, remote=VTEP),)


def test_a_line_of_the_userspace_datapath_is_read() -> None:
    """The header that is pushed names the VTEPs; the underlay's port is no further copy."""
    found = flow(DPDK)
    assert found.offloaded is False
    assert found.ip_proto == 17
    assert found.ip_dst is not None
    assert found.ip_dst.covers(ipv4_number("10.1.0.77") or 0)
    assert not found.ip_dst.covers(ipv4_number("10.1.1.9") or 0)
    assert found.steps == (TUNNEL,)


@pytest.mark.parametrize(
    ("actions", "steps"),
    [
        ("drop", ()),
        ("7", (Step(Kind.PORT),)),
        ("vf1_rep", (Step(Kind.PORT),)),
        ("ct(commit,zone=3),recirc(0x1f)", (Step(Kind.AGAIN, recirc_id=31),)),
        (f"{PUSH},1", (TUNNEL,)),
        (f"{PUSH},hash(l4(0)),recirc(0x5)", (TUNNEL,)),
        (f"clone({PUSH},1),8", (TUNNEL, Step(Kind.PORT))),
        (f"{TO_VTEP},36,push_vlan(vid=2,pcp=0),12", (TUNNEL, Step(Kind.PORT), Step(Kind.PORT))),
        (f"check_pkt_len(size=1518,gt(drop),le({TO_VTEP}))", (TUNNEL,)),
        ("userspace(pid=0,slow_path(controller))", (Step(Kind.UNKNOWN),)),
        ("some_new_action(1)", (Step(Kind.UNKNOWN),)),
        ("ct_clear", (Step(Kind.UNKNOWN),)),
        ("set(tunnel(tun_id=0x2,ipv6_dst=fc00::9)),3", (Step(Kind.UNKNOWN),)),
        (
            "set(eth(src=02:00:00:00:00:aa,dst=02:00:00:00:00:bb)),recirc(0x6)",
            (Step(Kind.AGAIN, recirc_id=6, mac=mac_number("02:00:00:00:00:bb")),),
        ),
    ],
)
def test_what_becomes_of_a_packet(actions: str, steps: tuple[Step, ...]) -> None:
    """Ports, tunnels, further passes, copies; only what says so drops."""
    assert flow(kernel(actions)).steps == steps


def test_the_packet_behind_a_vlan_tag_is_looked_at() -> None:
    """Matches within `encap` are those of the packet."""
    found = flow(VLAN)
    assert found.eth_type == 0x0800
    assert found.ip_dst is not None


@pytest.mark.parametrize(
    ("said", "offloaded"),
    [
        ("offloaded:yes, dp:tc, ", True),
        ("offloaded:partial, dp:dpdk, ", False),
        ("dp:ovs, ", False),
        ("dp:tc, ", False),
        ("", None),
        ("offloaded:perhaps, ", None),
    ],
)
def test_hardware_has_a_flow_wholly_or_not(said: str, offloaded: bool | None) -> None:
    """Versions that name the datapath leave out the word where hardware does not have it."""
    assert flow(kernel("7", said=said)).offloaded is offloaded


@pytest.mark.parametrize("line", ["", "\n", "flow-dump from pmd on cpu core: 3"])
def test_titles_are_no_flows(line: str) -> None:
    """Threads of the userspace datapath have a title each."""
    assert parse_line(line) is Skipped.TITLE


@pytest.mark.parametrize(
    "line",
    [
        "ovs-vswitchd is not running",
        kernel("drop").removesuffix("actions:drop"),
        kernel("set(tunnel(dst=10.9.0.9)"),
        kernel("7)"),
        kernel("clone(" * 40 + "7" + ")" * 40),
        kernel(",".join(["7"] * 600)),
        kernel("7", ip="10.1.0.999"),
        kernel("7", mac="02:00"),
        SHORT.replace("0x0800", "0xzz"),
    ],
)
def test_what_is_broken_is_skipped(line: str) -> None:
    """Cut lines, deep or endless lists, and matches that would turn into wildcards."""
    assert parse_line(line) is Skipped.MALFORMED


def test_a_line_that_is_too_long_is_skipped() -> None:
    """Whatever it holds."""
    assert parse_line(kernel("7") + " " * MAX_LINE_CHARS) is Skipped.TOO_LONG


@given(st.text())
def test_any_text_is_a_flow_or_skipped(text: str) -> None:
    """Nothing is raised, whatever comes."""
    assert isinstance(parse_line(text), Flow | Skipped)
    assert isinstance(parse_line("recirc_id(0)," + text), Flow | Skipped)


@given(st.text(alphabet="(),:/=.0129axdropctun 	ée٣", max_size=200))
def test_text_made_of_the_formats_own_signs(text: str) -> None:
    """Closer to the format than any text; also in place of the actions."""
    assert isinstance(parse_line("ufid:1, recirc_id(0)" + text), Flow | Skipped)
    assert isinstance(parse_line(kernel(text)), Flow | Skipped)


@given(st.lists(st.text(alphabet="abc(:=/ ", max_size=8).filter(lambda t: "(" not in t)))
def test_a_list_is_parted_where_it_was_joined(parts: list[str]) -> None:
    """Fields without parentheses come back."""
    assert split(",".join(parts)) == ([p.strip() for p in parts] or [""])


def test_parentheses_that_do_not_pair_are_no_list() -> None:
    """Too few and too many."""
    for text in ("a(b", "a)b", ")("):
        with pytest.raises(MalformedError):
            split(text)


def mutated(rng: random.Random) -> str:
    """Return a real line with some characters gone, doubled, swapped or replaced."""
    line = rng.choice(LINES)
    for _ in range(rng.randint(1, 6)):
        a, b = sorted((rng.randrange(len(line) + 1), rng.randrange(len(line) + 1)))
        b = min(b, a + rng.choice((1, 2, 30)))
        piece = rng.choice(("", line[a:b] * 2, "(", ")", ",", "/", "\0", "9" * 40, line[:b]))
        line = line[:a] + piece + line[b:]
    return line


@pytest.mark.timeout(3_600)
def test_mutated_lines_neither_raise_nor_fill_memory() -> None:
    """Each is taken or skipped, some of both, and nothing of them stays.

    For a long run set SKELETONHUNTER_FUZZ_LINES=1000000.
    """
    count = int(os.environ.get("SKELETONHUNTER_FUZZ_LINES", "5000"))
    rng = random.Random(5)
    taken = 0
    tracemalloc.start()
    try:
        for number in range(count):
            taken += isinstance(parse_line(mutated(rng)), Flow)
            if number == 1_000:
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < taken < count
    assert after - before < 64 * 1024
    # One line of 16 KB, its fields and its flow.
    assert peak - before < 2 * 2**20
