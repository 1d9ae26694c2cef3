"""Which GID a port speaks with, from tables as sysfs has them."""

import ipaddress
from pathlib import Path

import pytest

from probers.transports.rdma.gids import Gid, choose_gid, gid_of, read_gid, read_table, shown

ROCE_1, ROCE_2 = "IB/RoCE v1", "RoCE v2"


def gid(index: int, address: str, kind: str = ROCE_2) -> Gid:
    """Return an entry."""
    return Gid(index, gid_of(address), kind)


# As a ConnectX port with one IPv4 and one IPv6 address has it: each twice.
TABLE = [
    gid(0, "fe80::1", ROCE_1), gid(1, "fe80::1"), gid(2, "10.0.0.17", ROCE_1),
    gid(3, "10.0.0.17"), gid(4, "2001:db8::17", ROCE_1), gid(5, "2001:db8::17"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "index"), [("10.0.0.17", 3), ("2001:db8::17", 5)])
def test_the_roce_v2_entry_of_the_address_is_chosen(address: str, index: int) -> None:
    """Never the RoCE v1 one, which no router takes."""
    chosen = choose_gid(TABLE, address, None)
    assert isinstance(chosen, Gid)
    assert chosen.index == index


@pytest.mark.parametrize(
    ("table", "index"), [(TABLE, 3), (list(reversed(TABLE)), 3), (TABLE[4:], 5)]
)
def test_without_an_address_the_first_that_is_routed_is_chosen(
    table: list[Gid], index: int
) -> None:
    """IPv4 before IPv6, in which order they ever stand; never RoCE v1 or a link-local one."""
    chosen = choose_gid(table, None, None)
    assert isinstance(chosen, Gid)
    assert chosen.index == index


def test_an_index_overrules_the_address() -> None:
    """Whatever is there is taken, an InfiniBand port's included."""
    chosen = choose_gid(TABLE, "10.0.0.17", 0)
    assert isinstance(chosen, Gid)
    assert chosen.kind == ROCE_1


@pytest.mark.parametrize(
    ("table", "address", "index", "why"),
    [
        (TABLE, "10.0.0.99", None, "no RoCE v2 GID for 10.0.0.99; the port has 0: fe80::1"),
        (TABLE, "10.0.0.17", 9, "no GID at index 9"),
        (TABLE[2:3], "10.0.0.17", None, "2: ::ffff:10.0.0.17 (IB/RoCE v1)"),
        ([], "10.0.0.17", None, "the port's table is empty"),
        (TABLE[:3], None, None, "no RoCE v2 GID that routers forward; the port has 0: fe80::1"),
    ],
)
def test_why_there_is_none_is_told(
    table: list[Gid], address: str | None, index: int | None, why: str
) -> None:
    """With what the port has instead."""
    chosen = choose_gid(table, address, index)
    assert isinstance(chosen, str)
    assert why in chosen


def test_a_table_is_read_with_its_gaps(tmp_path: Path) -> None:
    """Unused entries read as zeros and have no type; garbage is left out."""
    for name in ("gids", "gid_attrs/types"):
        (tmp_path / name).mkdir(parents=True)
    entries = {
        0: ("fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v2"),
        1: ("0000:0000:0000:0000:0000:ffff:0a09:0001", "RoCE v2"),
        2: ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
        3: ("garbage", "RoCE v2"),
        10: ("0000:0000:0000:0000:0000:ffff:0a09:0002", "IB/RoCE v1"),
    }
    for index, (address, kind) in entries.items():
        (tmp_path / "gids" / str(index)).write_text(address + "\n")
        if kind:
            (tmp_path / "gid_attrs" / "types" / str(index)).write_text(kind + "\n")
    assert read_table(tmp_path) == [
        gid(0, "fe80::ff:fe00:1"), gid(1, "10.9.0.1"), gid(10, "10.9.0.2", ROCE_1),
    ]  # fmt: skip


def test_one_entry_is_read_without_the_others(tmp_path: Path) -> None:
    """As the whole table has it; one that is not used, or has lost its type, is none."""
    (tmp_path / "gids").mkdir()
    (tmp_path / "gid_attrs" / "types").mkdir(parents=True)
    for index, address in (
        (1, "0000:0000:0000:0000:0000:ffff:0a09:0001"),
        (2, ":".join(["0000"] * 8)),
    ):
        (tmp_path / "gids" / str(index)).write_text(address + "\n")
    assert read_gid(tmp_path, 1) is None
    for index in (1, 2):
        (tmp_path / "gid_attrs" / "types" / str(index)).write_text(ROCE_2 + "\n")
    assert read_gid(tmp_path, 1) == gid(1, "10.9.0.1")
    assert [read_gid(tmp_path, index) for index in (2, 3)] == [None, None]


def test_a_port_that_is_gone_has_no_gids(tmp_path: Path) -> None:
    """No error: the device may be back in a moment."""
    assert read_table(tmp_path / "none") == []
    assert read_gid(tmp_path / "none", 0) is None


def test_what_is_shown_is_what_is_read() -> None:
    """An address goes into records and comes back the same GID."""
    for text in ("10.9.0.1", "fe80::1", "2001:db8::17"):
        assert ipaddress.IPv6Address(shown(gid_of(text))) == gid_of(text)
