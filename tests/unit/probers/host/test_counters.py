"""Counters from trees as the kernel shows them."""

import shutil
from pathlib import Path

import pytest

from probers.host.counters import CounterFiles
from probers.host.port import Link, LinkFiles
from tests.unit.probers.trees import build


def infiniband(root: Path, tx: str = "1000", rx: str = "2000", *, extended: bool = False) -> Path:
    """Make the folder of a port as drivers/infiniband does; return its counters."""
    counters = root / "class" / "infiniband" / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (counters.parent / "state").write_text("4: ACTIVE\n")
    names = ["excessive_buffer_overrun_errors", "link_downed", "port_xmit_wait"]
    for name in names + (["unicast_xmit_packets"] if extended else []):
        (counters / name).write_text("0\n")
    (counters / "port_xmit_data").write_text(tx + "\n")
    (counters / "port_rcv_data").write_text(rx + "\n")
    return counters


def netdev(root: Path) -> Path:
    """Make the folder of a network device; return its statistics."""
    statistics = root / "class" / "net" / "eth1" / "statistics"
    statistics.mkdir(parents=True)
    (statistics.parent / "operstate").write_text("up\n")
    (statistics / "tx_bytes").write_text("123456789012\n")
    (statistics / "rx_bytes").write_text("77\n")
    return statistics


def test_infiniband_counts_in_words_of_four_bytes(tmp_path: Path) -> None:
    """Bytes are four times what the file says; 32-bit counters have 34 bits in bytes."""
    reading = CounterFiles(infiniband(tmp_path)).read()
    assert (reading.tx_bytes, reading.rx_bytes, reading.bits) == (4_000, 8_000, 34)
    assert reading.missing_reason is None


def test_extended_counters_have_64_bits(tmp_path: Path) -> None:
    """A port of the extended table has files that the narrow one has not."""
    assert CounterFiles(infiniband(tmp_path, extended=True)).read().bits == 64


def test_a_value_beyond_32_bits_shows_that_the_counter_is_wide(tmp_path: Path) -> None:
    """Once it was seen, it stays wide."""
    folder = infiniband(tmp_path, tx=str(2**32))
    files = CounterFiles(folder)
    assert files.read().bits == 64
    (folder / "port_xmit_data").write_text("5\n")
    assert files.read().bits == 64


def test_a_netdev_counts_bytes(tmp_path: Path) -> None:
    """No factor, 64 bits."""
    reading = CounterFiles(netdev(tmp_path)).read()
    assert (reading.tx_bytes, reading.rx_bytes, reading.bits) == (123_456_789_012, 77, 64)


def test_the_open_file_shows_the_present_value(tmp_path: Path) -> None:
    """A counter that moves is seen to move, without opening it again."""
    folder = infiniband(tmp_path)
    files = CounterFiles(folder)
    files.read()
    (folder / "port_xmit_data").write_text("1001\n")
    assert files.read().tx_bytes == 4_004


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no number"),
        ("N/A (no PMA)\n", "no number"),
        ("-5\n", "negative"),
        (str(2**62) + "\n", "63 bits"),
    ],
)
def test_what_is_no_counter_is_missing_with_a_reason(
    tmp_path: Path, content: str, reason: str
) -> None:
    """Never 0, never -1, never a crash; the next good value is read again."""
    folder = infiniband(tmp_path)
    files = CounterFiles(folder)
    (folder / "port_rcv_data").write_text(content)
    reading = files.read()
    assert (reading.tx_bytes, reading.rx_bytes) == (None, None)
    assert reason in (reading.missing_reason or "")
    (folder / "port_rcv_data").write_text("3\n")
    assert files.read().rx_bytes == 12


def test_what_cannot_be_read_makes_no_way_for_another_layout(tmp_path: Path) -> None:
    """Other files count other packets: the sample is missing instead."""
    tree = build("connectx6", tmp_path)
    file = tree.port / "counters" / "port_xmit_data"
    file.unlink()
    file.mkdir()
    files = CounterFiles(tree.port)
    assert files.read().missing_reason == "port_xmit_data: Is a directory"
    file.rmdir()
    assert files.read().missing_reason == "port_xmit_data: No such file or directory"
    file.write_text("5\n")
    assert files.read().tx_bytes == 20
    files.close()


def test_the_next_layout_is_for_devices_that_never_had_the_first(tmp_path: Path) -> None:
    """No counters of the port from the beginning: the network device counts."""
    tree = build("connectx6", tmp_path)
    shutil.rmtree(tree.port / "counters")
    reading = CounterFiles(tree.port / "counters").read()
    assert (reading.tx_bytes, reading.rx_bytes) == (111, 222)


def test_a_missing_file_names_itself_and_may_appear(tmp_path: Path) -> None:
    """A device that comes later is read from then on."""
    files = CounterFiles(tmp_path / "statistics")
    assert files.read().missing_reason == "tx_bytes: No such file or directory"
    folder = tmp_path / "statistics"
    folder.mkdir()
    (folder / "tx_bytes").write_text("1\n")
    assert files.read().missing_reason == "rx_bytes: No such file or directory"
    (folder / "rx_bytes").write_text("2\n")
    assert files.read().rx_bytes == 2
    files.close()


@pytest.mark.parametrize(
    ("state", "link"),
    [("4: ACTIVE", Link.UP), ("1: DOWN", Link.DOWN), ("2: INIT", Link.DOWN), ("", Link.DOWN)],
)
def test_an_infiniband_port_is_up_when_it_is_active(tmp_path: Path, state: str, link: Link) -> None:
    """INIT and ARMED carry no data."""
    counters = infiniband(tmp_path)
    (counters.parent / "state").write_text(state + "\n")
    assert LinkFiles(counters).read() is link


@pytest.mark.parametrize(
    ("state", "link"),
    [("up", Link.UP), ("unknown", Link.UP), ("down", Link.DOWN), ("lowerlayerdown", Link.DOWN)],
)
def test_a_netdev_is_up_by_its_operational_state(tmp_path: Path, state: str, link: Link) -> None:
    """A loopback or tunnel says unknown, and works."""
    statistics = netdev(tmp_path)
    (statistics.parent / "operstate").write_text(state + "\n")
    assert LinkFiles(statistics).read() is link


def test_a_folder_that_vanished_is_a_device_that_is_gone(tmp_path: Path) -> None:
    """Without a state file a port is up as long as its counters' folder is there."""
    counters = tmp_path / "ports" / "1" / "counters"
    assert LinkFiles(counters).read() is Link.GONE
    counters.mkdir(parents=True)
    assert LinkFiles(counters).read() is Link.UP
