"""Statistics as drivers tell them to ethtool: names, sums, and a real device that has some."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.config.rnics import namespace_path
from probers.host import ethtool, netns
from probers.host.ethtool import (
    Statistics,
    counts_pauses,
    names_of,
    of_this_namespace,
    pause_frames,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ethtool is of Linux")
needs_netns = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None,
    reason="needs root and iproute2 for a network namespace",
)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("rx_prio3_pause", True),
        ("rx_pause_ctrl_phy", True),
        ("rx_pfc_ena_frames_pri0", True),
        ("rx_priority_7_xoff.nic", True),
        ("port.rx_priority_3_xoff", True),
        ("port.rx_priority_3_xoff_rx", True),
        ("rx_prio3_pause_duration", False),
        ("rx_prio3_pause_transition", False),
        ("tx_prio3_pause", False),
        ("rx_priority_3_xon.nic", False),
        ("rx_prio8_pause", False),
    ],
)
def test_what_counts_pause_frames(name: str, counts: bool) -> None:
    """Received frames that ask to pause: not durations, not those that end a pause, not sent."""
    assert counts_pauses(name) is counts


def test_a_frame_that_is_counted_twice_counts_once() -> None:
    """By priority and as a whole; with neither, nothing is known."""
    assert pause_frames({"rx_prio0_pause": 5, "rx_prio3_pause": 6, "rx_pause_ctrl_phy": 11}) == 11
    assert pause_frames({"rx_prio0_pause": 0, "rx_global_pause": 4}) == 4
    assert pause_frames({"rx_pause": 0}) == 0
    assert pause_frames({}) is None


@given(st.binary(max_size=4_096))
def test_any_strings_give_names(strings: bytes) -> None:
    """As many as there are whole ones, none longer than it may be."""
    names = names_of(strings)
    assert len(names) == len(strings) // 32
    assert all(len(name) <= 32 and "\0" not in name for name in names)


def test_what_is_not_there_tells_nothing() -> None:
    """No device, a device without statistics, and a name that is none."""
    assert Statistics("no-such-device").read() == {}
    assert Statistics("lo", lambda _: True).read() == {}
    assert not of_this_namespace("no-such-device", "1")
    assert not of_this_namespace("lo", None)


@pytest.fixture
def namespace() -> Iterator[str]:
    """Return a network namespace with a pair of virtual devices."""
    name = f"skh-ethtool-{uuid.uuid4().hex[:6]}"
    for arguments in (
        ["netns", "add", name],
        ["-n", name, "link", "add", "va", "type", "veth", "peer", "name", "vb"],
    ):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True, capture_output=True)


@needs_netns
@pytest.mark.root
def test_a_real_driver_is_read(namespace: str) -> None:
    """The kernel's veth tells the index of the other end, which is known from elsewhere."""

    def ask() -> tuple[dict[str, int], int, dict[str, int]]:
        import socket

        everything = Statistics("va", lambda _: True)
        first = everything.read()
        assert everything.read() == first
        assert of_this_namespace("va", str(socket.if_nametoindex("va")))
        return first, socket.if_nametoindex("vb"), Statistics("va").read()

    found, peer, pauses = netns.inside(namespace_path(namespace), ask)
    assert found["peer_ifindex"] == peer
    assert len(found) > 1
    assert pauses == {}


@needs_netns
@pytest.mark.root
def test_a_driver_whose_statistics_change_is_read_anew(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More queues have more statistics; a set beyond the bound is not read."""

    def ask() -> tuple[int, int, int]:
        everything = Statistics("vq", lambda _: True)
        link = ["ip", "link", "add", "vq", "numrxqueues", "4", "numtxqueues", "4", "type", "veth"]
        subprocess.run([*link, "peer", "name", "vr"], check=True, capture_output=True)
        before = len(everything.read())
        subprocess.run(["ip", "link", "del", "vq"], check=True, capture_output=True)
        gone = len(everything.read())
        link[5] = link[7] = "1"
        subprocess.run([*link, "peer", "name", "vr"], check=True, capture_output=True)
        after = len(everything.read())
        monkeypatch.setattr(ethtool, "MAX_STATISTICS", 1)
        assert everything.read() == {}
        return before, gone, after

    before, gone, after = netns.inside(namespace_path(namespace), ask)
    assert gone == 0
    assert 0 < after < before
