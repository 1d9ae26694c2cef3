"""Looks at an RNIC in sysfs and procfs: the only place that knows where things stand."""

import os
import re
from functools import partial
from pathlib import Path
from typing import Final

from probers import ethtool, sysfs_text
from probers.netdev import class_folder, device_folder, netdev_of, valid_name
from probers.rnic_counters import AER_FILES, PATHS, PAUSES
from probers.rnic_raw import GONE, BondRaw, LinksRaw, RnicRaw, SetupRaw, SlaveRaw
from probers.sysfs import link_name, port_folder, read_bytes, read_text

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
        told = any(path in PAUSES for path, _ in self._paths)
        self._statistics = None if told else _statistics(self._netdev)

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

    A virtual function tells nothing of its link: its physical function does. A subfunction
    hangs below a physical one.
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
