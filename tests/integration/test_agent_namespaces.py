"""Sockets and counters of another namespace, from a process that stays in its own."""

import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from probers.config.rnics import namespace_path
from probers.host.netns import inside, sysfs_folder

NEEDS_ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None,
    reason="needs root and iproute2 for network namespaces",
)


@pytest.fixture
def namespace() -> Iterator[str]:
    """Give a namespace with one device `v0` at 10.7.9.1."""
    name = f"sh{uuid.uuid4().hex[:6]}"
    try:
        for command in (
            f"netns add {name}",
            f"-n {name} link add v0 type veth peer name v1",
            f"-n {name} addr add 10.7.9.1/24 dev v0",
            f"-n {name} link set v0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.root
@NEEDS_ROOT
def test_a_socket_is_opened_inside_and_the_process_stays_outside(namespace: str) -> None:
    """An address that only the namespace has can be bound there, and not here afterwards."""
    here = Path("/proc/self/ns/net").readlink()

    def bind() -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind(("10.7.9.1", 0))
        return opened

    with inside(namespace_path(namespace), bind) as opened:
        assert opened.getsockname()[0] == "10.7.9.1"
    assert Path("/proc/self/ns/net").readlink() == here
    with pytest.raises(OSError, match="assign requested address"):
        bind()


@pytest.mark.root
@NEEDS_ROOT
def test_counters_of_a_namespace_are_read_from_outside(namespace: str) -> None:
    """Its sysfs shows its devices, also after the namespace has lost its name."""
    folder = sysfs_folder(namespace_path(namespace), Path("/sys/class/net/v0/statistics"))
    assert not Path("/sys/class/net/v0").exists()
    assert int((folder / "tx_bytes").read_text()) >= 0
    assert (folder.parent / "operstate").read_text().strip()


def test_a_namespace_that_is_not_there_is_named() -> None:
    """The message says which one, and the error is the system's."""
    with pytest.raises(FileNotFoundError, match="network namespace /run/netns/no-such-one"):
        inside(namespace_path("no-such-one"), lambda: None)


@pytest.mark.root
@NEEDS_ROOT
def test_what_fails_inside_is_raised_outside(namespace: str) -> None:
    """The thread hides nothing."""
    with pytest.raises(ZeroDivisionError):
        inside(namespace_path(namespace), lambda: 1 // 0)
