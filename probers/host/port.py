"""The port of an RNIC in sysfs: its folder, its network device, and whether it is up.

A port is a folder of an RDMA device (`.../infiniband/mlx5_0/ports/1`), or a network device
(`.../net/eth1`), which is its own port.
"""

import os
import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import Final

from probers.host.sysfs import names_in, read_text

# Folders of a port's counters, any of which a configuration may name.
_PORT_PARTS: Final = frozenset({"counters", "hw_counters", "statistics"})
# Names come out of files: one that could lead elsewhere is none (dev_valid_name() in the
# kernel's net/core/dev.c: at most 15 characters, no slash, colon or white space).
_NAME: Final = re.compile(r"(?!\.{1,2}$)[^/:\s\x00-\x1f\x7f]{1,15}")
# The first GIDs are the device's own; one of them names its network device.
_GIDS: Final = 4
# A PCI function has one network device a port, and at most some representors.
_MAX_NETDEVS: Final = 64
# Longest state text: "4: ACTIVE", "lowerlayerdown".
_READ_BYTES: Final = 64
# Linux operational states in which frames can leave (RFC 2863 through
# Documentation/networking/operstates.rst): a loopback or tunnel says "unknown".
NETDEV_UP: Final = frozenset({"up", "unknown", "dormant", "testing"})
_INFINIBAND_ACTIVE: Final = "ACTIVE"


class Link(Enum):
    """State of an RNIC's own port."""

    UP = auto()
    DOWN = auto()
    GONE = auto()


@dataclass(frozen=True)
class LinkFiles:
    """The files with the state of the port of a counters folder.

    For InfiniBand (`ports/1`, or `ports/1/counters`) in `ports/1/state`, for a netdev
    (`<name>`, or `<name>/statistics`) in `<name>/operstate`. Where neither is there, as in
    the lab, a port is up as long as its folder exists.
    """

    counters: Path

    @cached_property
    def _port(self) -> str:
        return str(port_folder(self.counters))

    def read(self) -> Link:
        """Return the state now."""
        state = read_text(f"{self._port}/state", _READ_BYTES)
        if state is not None:
            return Link.UP if state.endswith(_INFINIBAND_ACTIVE) else Link.DOWN
        state = read_text(f"{self._port}/operstate", _READ_BYTES)
        if state is not None:
            return Link.UP if state in NETDEV_UP else Link.DOWN
        return Link.UP if self.counters.is_dir() else Link.GONE


def port_folder(counters: Path) -> Path:
    """Return the folder of the port, or of the network device, that a counters folder is of.

    >>> port_folder(Path("/sys/class/infiniband/mlx5_0/ports/1/hw_counters")).as_posix()
    '/sys/class/infiniband/mlx5_0/ports/1'
    >>> port_folder(Path("/sys/class/net/eth1")).as_posix()
    '/sys/class/net/eth1'
    """
    return counters.parent if counters.name in _PORT_PARTS else counters


def valid_name(name: str | None) -> str | None:
    """Return the name if it can be a network device's."""
    return name if name is not None and _NAME.fullmatch(name) else None


def class_folder(port: str) -> str | None:
    """Return the folder of all classes (`/sys/class`) over the folder of a port.

    >>> class_folder("/sys/class/infiniband/mlx5_0/ports/1")
    '/sys/class'
    >>> class_folder("/sys/class/net/eth1")
    '/sys/class'
    """
    ports = os.path.dirname(port)
    devices = (
        os.path.dirname(os.path.dirname(ports)) if os.path.basename(ports) == "ports" else (ports)
    )
    return os.path.dirname(devices) if os.path.basename(devices) in ("infiniband", "net") else None


def device_folder(port: str) -> str:
    """Return the folder of the device that a port is of; a network device is its own port."""
    ports = os.path.dirname(port)
    return os.path.dirname(ports) if os.path.basename(ports) == "ports" else port


def netdev_of(port: str) -> str | None:
    """Return the folder of the network device that a port of an RDMA device sends through.

    The GID table names it; Soft-RoCE names it as its parent; else it is the one of the PCI
    function that has the port's number.
    """
    device = device_folder(port)
    if device == port:
        return None
    classes = class_folder(port)
    names = [read_text(f"{port}/gid_attrs/ndevs/{index}") for index in range(_GIDS)]
    for name in [*names, read_text(f"{device}/parent")]:
        if valid_name(name) is None:
            continue
        for folder in (f"{classes}/net/{name}", f"{device}/device/net/{name}"):
            if os.path.isdir(folder):
                return folder
    return _of_function(f"{device}/device/net", os.path.basename(port))


def _of_function(folder: str, port_number: str) -> str | None:
    names = [name for name in names_in(folder, _MAX_NETDEVS) if valid_name(name)]
    mine = [
        name for name in names if read_text(f"{folder}/{name}/dev_port") == str(_index(port_number))
    ]
    for found in (mine, names):
        if len(found) == 1:
            return f"{folder}/{found[0]}"
    return None


def _index(port_number: str) -> int | None:
    # RDMA counts ports from 1, network devices from 0.
    return int(port_number) - 1 if port_number.isdecimal() and len(port_number) < 4 else None
