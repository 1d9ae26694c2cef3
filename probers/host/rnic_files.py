"""Reads what sysfs and procfs say about an RNIC: texts as the kernel wrote them, None if missing.

No other module knows where these files are. Meanings of the counters:
Documentation/ABI/stable/sysfs-class-infiniband, sysfs-class-net and sysfs-class-net-statistics in
the kernel's sources; widths: IBTA specification, volume 1, PortCounters. Counters of that table
stop when they are full; they do not wrap.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from probers.host import ethtool, sysfs_text
from probers.host.port import class_folder, device_folder, netdev_of, port_folder, valid_name
from probers.host.sysfs import link_name, read_bytes, read_text

BITS_4: Final = 0xF
BITS_8: Final = 0xFF
BITS_16: Final = 0xFFFF

# By path, the value at which a counter is full; None: it does not fill in our lifetime.
Sources = Mapping[str, int | None]

# The same events, seen by different parts: the largest counts.
FLAPS: Final[Sources] = {
    "counters/link_downed": BITS_8,
    "hw_counters/link_downed": None,
    "net/carrier_down_count": None,
}
# Each counts frames of its own: damaged on the wire, with a wrong invariant CRC under an
# encapsulation, out of alignment.
CRC_ERRORS: Final[Sources] = {
    "counters/symbol_error": BITS_16,
    "counters/port_rcv_errors": BITS_16,
    "hw_counters/rx_icrc_encapsulated": None,
    "net/statistics/rx_crc_errors": None,
    "net/statistics/rx_frame_errors": None,
}
# What was dropped for want of room. Not `rx_dropped`: it also counts frames that nobody
# wanted, on every healthy host.
DISCARDS: Final[Sources] = {
    "counters/port_xmit_discards": BITS_16,
    "counters/excessive_buffer_overrun_errors": BITS_4,
    "hw_counters/out_of_buffer": None,
    "hw_counters/rx_out_of_buffer": None,
    "hw_counters/rx_roce_discards": None,
    "hw_counters/tx_roce_discards": None,
    "hw_counters/rx_discards_phy": None,
    "net/statistics/rx_missed_errors": None,
    "net/statistics/rx_fifo_errors": None,
}
# Names as drivers give them to ethtool; few, if any, show them in sysfs.
PAUSES: Final[Sources] = {
    "hw_counters/rx_pause": None,
    "hw_counters/rx_pause_ctrl_phy": None,
    **{f"hw_counters/rx_prio{priority}_pause": None for priority in range(8)},
}
PATHS: Final = (*FLAPS, *CRC_ERRORS, *DISCARDS, *PAUSES)
# AER statistics of the RNIC's function and of the bridge at the other end of its link
# (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
AER_FILES: Final = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")


@dataclass(frozen=True, slots=True)
class SlaveRaw:
    """A slave of a bond: what `bonding_slave` and its own folder say."""

    name: str
    mii_status: str | None
    aggregator: str | None
    down_count: str | None


@dataclass(frozen=True, slots=True)
class BondRaw:
    """The bond that the RNIC's network device is, or is a slave of."""

    active_aggregator: str | None
    slaves: tuple[SlaveRaw, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksRaw:
    """What is looked at less often: PCIe links, GIDs, settings of the port.

    `widths` and `speeds` are those of the RNIC's own function and of each bridge above it,
    from below. `gids` has index, GID and type of the entries up to the end of the table.
    `pauses` is the number of pause frames received, if only ethtool counts them.
    """

    pci: bool
    link_layer: str | None = None
    rate: str | None = None
    widths: tuple[str | None, ...] = ()
    speeds: tuple[str | None, ...] = ()
    aer: Mapping[str, str | None] = field(default_factory=dict)
    gids: tuple[tuple[int, str | None, str | None], ...] | None = None
    notification: tuple[str | None, ...] = ()
    reaction: tuple[str | None, ...] = ()
    driver_switches: tuple[str | None, ...] = ()
    priority_buffers: str | None = None
    pauses: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRaw:
    """What hardly ever changes.

    `acs` says of each bridge above the RNIC whether it redirects; None: not readable.
    """

    pci: bool
    firmware: str | None = None
    driver: str | None = None
    driver_version: str | None = None
    kernel_release: str = ""
    modules: str | None = None
    gpu_driver: str | None = None
    acs: tuple[bool | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RnicRaw:
    """One look; `links` and `setup` are None when their turn was not."""

    present: bool
    rdma: bool = False
    state: str | None = None
    # Whether the network device is known, and what it says.
    netdev: bool = False
    operstate: str | None = None
    counters: Mapping[str, str | None] = field(default_factory=dict)
    bond: BondRaw | None = None
    links: LinksRaw | None = None
    setup: SetupRaw | None = None


GONE = RnicRaw(present=False)


# A PCI function: domain, bus, device, function (a domain behind VMD has more digits).
_FUNCTION: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# Bridges between an RNIC and its root: two in most servers, four behind two switches.
_MAX_BRIDGES: Final = 8
_MAX_SLAVES: Final = 8
# A table has up to 256 GIDs (mlx5); those in use stand in front, but for holes where some
# were taken away.
_MAX_GIDS: Final = 256
_UNUSED_GIDS_IN_A_ROW: Final = 16
_PRIORITIES: Final = range(8)
# /proc/modules of a large distribution kernel has some 30 kB.
_MODULES_BYTES: Final = 256 * 1024


class RnicFiles:
    """Reads one RNIC; finds its network device and its PCI function again when asked to.

    Parameters
    ----------
    counters : folder of its counters, or of its port, or of its network device
    proc : where procfs is mounted
    """

    def __init__(self, counters: Path, proc: str) -> None:
        self._port = str(port_folder(counters))
        self._device = device_folder(self._port)
        self._classes = class_folder(self._port)
        self._proc = proc
        self._netdev: str | None = None
        self._functions: list[str] = []
        self._paths: list[tuple[str, str]] = []
        self._statistics: ethtool.Statistics | None = None

    def find(self) -> None:
        """Look where its parts are, and which counters it has."""
        rdma = self._device != self._port
        self._netdev = netdev_of(self._port) if rdma else self._port
        self._functions = _functions(f"{self._device}/device")
        self._paths = []
        for path in PATHS:
            folder = self._port
            if path.startswith("net/"):
                if self._netdev is None:
                    continue
                folder = self._netdev
            elif not rdma:
                continue
            full = f"{folder}/{path.removeprefix('net/')}"
            if os.path.exists(full):
                self._paths.append((path, full))
        counted = any(path in PAUSES for path, _ in self._paths)
        self._statistics = None if counted else _statistics(self._netdev)

    def read(self, *, links: bool, setup: bool) -> RnicRaw:
        """Look at it; at `links` and `setup` only if asked to."""
        if not os.path.isdir(self._device):
            return GONE
        rdma, netdev = self._device != self._port, self._netdev
        return RnicRaw(
            present=True,
            rdma=rdma,
            state=read_text(f"{self._port}/state") if rdma else None,
            netdev=netdev is not None,
            operstate=None if netdev is None else read_text(f"{netdev}/operstate"),
            counters={path: read_text(full) for path, full in self._paths},
            bond=None if netdev is None else self._bond(netdev),
            links=self._links() if links else None,
            setup=self._setup() if setup else None,
        )

    def _bond(self, netdev: str) -> BondRaw | None:
        bond: str | None = netdev
        if not os.path.isdir(f"{netdev}/bonding"):
            bond = self._named(link_name(f"{netdev}/master"))
        if bond is None or not os.path.isdir(f"{bond}/bonding"):
            return None
        names = (read_text(f"{bond}/bonding/slaves") or "").split()[:_MAX_SLAVES]
        return BondRaw(
            read_text(f"{bond}/bonding/ad_aggregator"),
            tuple(
                SlaveRaw(
                    name,
                    read_text(f"{folder}/bonding_slave/mii_status"),
                    read_text(f"{folder}/bonding_slave/ad_aggregator_id"),
                    read_text(f"{folder}/carrier_down_count"),
                )
                for name in names
                if (folder := self._named(name)) is not None
            ),
        )

    def _named(self, netdev: str | None) -> str | None:
        if self._classes is None or valid_name(netdev) is None:
            return None
        return f"{self._classes}/net/{netdev}"

    def _links(self) -> LinksRaw:
        functions, netdev = self._functions, self._netdev
        ecn = None if netdev is None else f"{netdev}/ecn"
        return LinksRaw(
            pci=bool(functions),
            link_layer=read_text(f"{self._port}/link_layer"),
            rate=read_text(f"{self._port}/rate"),
            widths=tuple(read_text(f"{f}/current_link_width") for f in functions),
            speeds=tuple(read_text(f"{f}/current_link_speed") for f in functions),
            aer={
                f"{number}/{name}": read_text(f"{folder}/{name}")
                for number, folder in enumerate(functions[:2])
                for name in AER_FILES
            },
            gids=self._gids(),
            notification=_switches(ecn, "roce_np"),
            reaction=_switches(ecn, "roce_rp"),
            driver_switches=self._driver_switches(),
            pauses=None
            if self._statistics is None
            else ethtool.pause_frames(self._statistics.read()),
            priority_buffers=None if netdev is None else read_text(f"{netdev}/qos/prio2buffer"),
        )

    def _gids(self) -> tuple[tuple[int, str | None, str | None], ...] | None:
        if not os.path.isdir(f"{self._port}/gids"):
            return None
        found: list[tuple[int, str | None, str | None]] = []
        for index in range(_MAX_GIDS):
            text = read_text(f"{self._port}/gids/{index}")
            if sysfs_text.gid(text) is not None:
                found.append((index, text, read_text(f"{self._port}/gid_attrs/types/{index}")))
            elif index - (found[-1][0] if found else -1) >= _UNUSED_GIDS_IN_A_ROW:
                break
        return tuple(found)

    def _driver_switches(self) -> tuple[str | None, ...]:
        """Return switches of congestion control that drivers put into configfs, if it is there."""
        if self._classes is None:
            return ()
        config = f"{os.path.dirname(self._classes)}/kernel/config"
        device, port = os.path.basename(self._device), os.path.basename(self._port)
        return (
            read_text(f"{config}/bnxt_re/{device}/ports/{port}/cc/ecn_enable"),
            read_text(f"{config}/irdma/{device}/roce_dcqcn_enable"),
        )

    def _setup(self) -> SetupRaw:
        driver = link_name(f"{self._device}/device/driver")
        root = None if self._classes is None else os.path.dirname(self._classes)
        return SetupRaw(
            pci=bool(self._functions),
            firmware=read_text(f"{self._device}/fw_ver"),
            driver=driver,
            driver_version=read_text(f"{root}/module/{driver}/version") if root else None,
            kernel_release=read_text(f"{self._proc}/sys/kernel/osrelease") or "",
            modules=read_text(f"{self._proc}/modules", _MODULES_BYTES),
            gpu_driver=read_text(f"{self._proc}/driver/nvidia/version"),
            acs=tuple(
                sysfs_text.acs_redirects(partial(read_bytes, f"{bridge}/config"))
                for bridge in self._functions[1:]
            ),
        )


def _statistics(netdev: str | None) -> ethtool.Statistics | None:
    """Return the statistics of a network device, if it is one that can be asked from here."""
    if netdev is None:
        return None
    name = os.path.basename(netdev)
    here = ethtool.of_this_namespace(name, read_text(f"{netdev}/ifindex"))
    return ethtool.Statistics(name) if here else None


def _functions(device: str) -> list[str]:
    """Return the folders of the device's PCI function and of the bridges above it, from below.

    A virtual function has no files about its link; its physical function has. A subfunction is
    below a physical function.
    """
    folder = os.path.realpath(device)
    for _ in range(_MAX_BRIDGES):
        if _FUNCTION.fullmatch(os.path.basename(folder)) or folder in ("/", ""):
            break
        folder = os.path.dirname(folder)
    if os.path.isdir(f"{folder}/physfn"):
        folder = os.path.realpath(f"{folder}/physfn")
    found: list[str] = []
    while _FUNCTION.fullmatch(os.path.basename(folder)) and len(found) <= _MAX_BRIDGES:
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def _switches(ecn: str | None, role: str) -> tuple[str | None, ...]:
    if ecn is None or not os.path.isdir(f"{ecn}/{role}"):
        return ()
    return tuple(read_text(f"{ecn}/{role}/enable/{priority}") for priority in _PRIORITIES)
