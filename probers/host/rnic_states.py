"""Turns one reading of an RNIC's files into the states of the RNIC. No files are read here.

An attribute that is not known has a reason in place of a value. One that needs two readings is
left out until the second.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from probers.host import sysfs_text
from probers.host.meter import Meter
from probers.host.rnic_files import (
    CRC_ERRORS,
    DISCARDS,
    FLAPS,
    PAUSES,
    BondRaw,
    LinksRaw,
    RnicRaw,
    SetupRaw,
    SlaveRaw,
    Sources,
)
from probers.host.states import Value, missing

# The arena counts flaps of ten minutes, and so does the localizer's rule.
FLAPS_WINDOW_NS: Final = 600 * 10**9
# Six readings of five seconds: a single odd reading does not make a rate.
RATE_WINDOW_NS: Final = 30 * 10**9
# AER is looked at every 15 s.
AER_WINDOW_NS: Final = 60 * 10**9
GONE: Final = "the device is gone"
NO_COUNTER: Final = "no counter of it in sysfs"
NO_PAUSES: Final = "no counter of it in sysfs, nor told to ethtool"
NO_NETDEV: Final = "its network device is not known"
NO_RDMA: Final = "no RDMA device"
NO_PCI: Final = "no PCI function"
ATTRIBUTES: Final = (
    "device", "port_state", "bond", "link_flaps", "crc_errors_per_s", "discards_per_s",
    "pause_frames_per_s", "pcie_width", "pcie_speed_gts", "pcie_errors_per_s", "gid_table",
    "congestion_control", "port_rate_gbps", "priority_buffers", "gpudirect", "acs",
    "firmware_version", "driver_version",
)  # fmt: skip
# NVIDIA's own module since driver 470, and the one before it.
PEER_MODULES: Final = frozenset({"nvidia_peermem", "nv_peer_mem"})
GPU_MODULE: Final = "nvidia"
# Without a peer module, memory goes through dma-buf: NVIDIA's open kernel modules export it,
# and mlx5 takes it since Linux 5.12.
_OPEN_FLAVOUR: Final = "Open Kernel Module"
_DMA_BUF_DRIVER: Final = "mlx5_core"
_DMA_BUF_SINCE: Final = (5, 12)
_DIGEST_CHARS: Final = 16
_BUFFER_LINE: Final = re.compile(r"^\s*([0-7])\s+([0-7])\s*$", re.MULTILINE)
_NO_AGGREGATOR: Final = frozenset({None, "", "N/A"})


class RnicStates:
    """Derives the states of one RNIC; remembers its counters from reading to reading."""

    def __init__(self) -> None:
        self._rates = {
            "crc_errors_per_s": (CRC_ERRORS, Meter(RATE_WINDOW_NS)),
            "discards_per_s": (DISCARDS, Meter(RATE_WINDOW_NS)),
            "pause_frames_per_s": (PAUSES, Meter(RATE_WINDOW_NS)),
        }
        self._flaps = Meter(FLAPS_WINDOW_NS)
        self._aer = Meter(AER_WINDOW_NS)
        self._pauses = Meter(RATE_WINDOW_NS)

    def decide(self, raw: RnicRaw, now_ns: int) -> dict[str, Value]:
        """Return the values that are known now, by attribute; `now_ns` is monotonic."""
        if not raw.present:
            self._forget()
            gone = dict.fromkeys(ATTRIBUTES, missing(GONE))
            return {**gone, "device": Value("gone")}
        values = {"device": Value("present"), "port_state": _port_state(raw), "bond": _bond(raw)}
        found = {name: _rate(m, s, raw, now_ns) for name, (s, m) in self._rates.items()}
        if _counts(raw.counters, PAUSES) == ({}, None):
            found["pause_frames_per_s"] = self._ethtool_pauses(raw.links, now_ns)
        found["link_flaps"] = self._count_flaps(raw, now_ns)
        if raw.links is not None:
            found["pcie_errors_per_s"] = self._pcie_errors(raw.links, now_ns)
            values |= _links(raw.links, rdma=raw.rdma)
        if raw.setup is not None:
            values |= _setup(raw.setup, rdma=raw.rdma)
        return values | {name: value for name, value in found.items() if value is not None}

    def _forget(self) -> None:
        for meter in (self._flaps, self._aer, self._pauses, *(m for _, m in self._rates.values())):
            meter.forget()

    def _count_flaps(self, raw: RnicRaw, now_ns: int) -> Value | None:
        counts, full = _counts(raw.counters, FLAPS)
        for slave in () if raw.bond is None else raw.bond.slaves:
            down = sysfs_text.number(slave.down_count)
            if down is not None:
                counts[f"bond/{slave.name}"] = down
        self._flaps.observe(counts, now_ns)
        # They count the same events: one that is full does no harm beside one that is not.
        return _measured(self._flaps.largest(), counts, None if counts else full)

    def _ethtool_pauses(self, links: LinksRaw | None, now_ns: int) -> Value | None:
        """Return the rate of pause frames that ethtool counts; None: it was not asked this time."""
        if links is None:
            return None
        counts = {} if links.pauses is None else {"ethtool": links.pauses}
        self._pauses.observe(counts, now_ns)
        value = _measured(self._pauses.rate_hz(), counts, None)
        return missing(NO_PAUSES) if value == missing(NO_COUNTER) else value

    def _pcie_errors(self, links: LinksRaw, now_ns: int) -> Value | None:
        if not links.pci:
            return missing(NO_PCI)
        totals = {name: sysfs_text.aer_total(text) for name, text in links.aer.items()}
        counts = {name: total for name, total in totals.items() if total is not None}
        self._aer.observe(counts, now_ns)
        return _measured(self._aer.rate_hz(), counts, None)


def _counts(texts: Mapping[str, str | None], sources: Sources) -> tuple[dict[str, int], str | None]:
    """Return what the counters say, and the name of one that is full and says nothing."""
    counts: dict[str, int] = {}
    full = None
    for path, ceiling in sources.items():
        count = sysfs_text.number(texts.get(path))
        if count is None:
            continue
        if count == ceiling:
            full = path
        else:
            counts[path] = count
    return counts, full


def _rate(meter: Meter, sources: Sources, raw: RnicRaw, now_ns: int) -> Value | None:
    counts, full = _counts(raw.counters, sources)
    meter.observe(counts, now_ns)
    return _measured(meter.rate_hz(), counts, full)


def _measured(number: float | None, counts: Mapping[str, int], full: str | None) -> Value | None:
    # Nothing that others count does not mean nothing, while one cannot count any more.
    if full is not None and not number:
        return missing(f"{full} is full; clear it")
    if not counts:
        return missing(NO_COUNTER)
    return None if number is None else Value(number=float(f"{number:.3g}"))


def _port_state(raw: RnicRaw) -> Value:
    if raw.rdma:
        word = sysfs_text.port_state(raw.state)
        return missing("no state of the port") if word is None else Value(word)
    word = sysfs_text.operational_state(raw.operstate)
    return missing("no operational state") if word is None else Value(word)


def _bond(raw: RnicRaw) -> Value:
    if not raw.netdev:
        return missing(NO_NETDEV)
    bond = raw.bond
    if bond is None:
        return Value("none")
    if not bond.slaves:
        return Value("down: no slaves")
    if all(slave.mii_status is None for slave in bond.slaves):
        return missing("its slaves do not tell their state")
    idle = [slave.name for slave in bond.slaves if not _carries(slave, bond)]
    if not idle:
        return Value("active")
    return Value("down" if len(idle) == len(bond.slaves) else f"degraded: {' '.join(idle)}")


def _carries(slave: SlaveRaw, bond: BondRaw) -> bool:
    """Return whether a slave is up and, with LACP, in the active aggregator."""
    if slave.mii_status is not None and slave.mii_status != "up":
        return False
    known = _NO_AGGREGATOR.isdisjoint({slave.aggregator, bond.active_aggregator})
    return not known or slave.aggregator == bond.active_aggregator


def _links(links: LinksRaw, *, rdma: bool) -> dict[str, Value]:
    widths = [w for text in links.widths if (w := sysfs_text.lanes(text)) is not None]
    speeds = [s for text in links.speeds if (s := sysfs_text.transfers_gts(text)) is not None]
    rate = sysfs_text.rate_gbps(links.rate)
    no_link = missing("no link of known width" if links.pci else NO_PCI)
    buffers = dict(_BUFFER_LINE.findall(links.priority_buffers or ""))
    return {
        # The narrowest and the slowest link up to the root is the one that counts.
        "pcie_width": Value(number=float(min(widths))) if widths else no_link,
        "pcie_speed_gts": Value(number=min(speeds)) if speeds else no_link,
        "gid_table": _gid_table(links) if rdma else missing(NO_RDMA),
        "congestion_control": _congestion_control(links),
        "port_rate_gbps": missing("no rate of the port") if rate is None else Value(number=rate),
        "priority_buffers": Value(",".join(buffers[p] for p in sorted(buffers)))
        if len(buffers) == 8
        else missing("the driver does not show its buffers"),
    }


def _gid_table(links: LinksRaw) -> Value:
    """Return number and digest: jobs name a GID by its index, so that counts too."""
    if links.gids is None:
        return missing("no GID table")
    lines = [f"{index} {gid} {kind or ''}" for index, gid, kind in links.gids]
    digest = hashlib.sha256("\n".join(lines).encode("ascii", "replace")).hexdigest()
    return Value(f"{len(lines)} GIDs {digest[:_DIGEST_CHARS]}")


def _congestion_control(links: LinksRaw) -> Value:
    if links.link_layer == "InfiniBand":
        return missing("DCQCN is of Ethernet")
    notify, react = sysfs_text.flags_on(links.notification), sysfs_text.flags_on(links.reaction)
    if notify and react and None not in (*notify, *react):
        return Value("on" if any(map(_both, notify, react)) else "off")
    known = [flag for flag in sysfs_text.flags_on(links.driver_switches) if flag is not None]
    if known:
        return Value("on" if any(known) else "off")
    return missing("the driver does not show its switches")


def _both(notifies: bool | None, reacts: bool | None) -> bool:
    return bool(notifies and reacts)


def _setup(setup: SetupRaw, *, rdma: bool) -> dict[str, Value]:
    firmware = sysfs_text.version(setup.firmware)
    # A driver of the kernel itself has no version of its own.
    own = sysfs_text.version(setup.driver_version) or sysfs_text.version(setup.kernel_release)
    driver = f"{setup.driver} {own}" if setup.driver and own else setup.driver
    return {
        "gpudirect": gpudirect(setup) if rdma else missing(NO_RDMA),
        "acs": _acs(setup),
        "firmware_version": Value(firmware) if firmware else missing("no firmware version"),
        "driver_version": Value(driver) if driver else missing("no driver of a device"),
    }


def gpudirect(setup: SetupRaw) -> Value:
    """Return `loaded` (a peer module), `dma-buf`, `missing`, or why that is not known."""
    if not setup.pci:
        return missing("no PCI function")
    if setup.modules is None:
        return missing("the loaded modules cannot be read")
    modules = sysfs_text.module_names(setup.modules)
    if not PEER_MODULES.isdisjoint(modules):
        return Value("loaded")
    if GPU_MODULE not in modules:
        return missing("no GPU driver that is known here")
    return _without_module(setup)


def _without_module(setup: SetupRaw) -> Value:
    if setup.gpu_driver is None:
        return missing("the GPU driver's flavour cannot be read")
    kernel = sysfs_text.kernel_version(setup.kernel_release)
    if _OPEN_FLAVOUR not in setup.gpu_driver or kernel is None or kernel < _DMA_BUF_SINCE:
        return Value("missing")
    if setup.driver != _DMA_BUF_DRIVER:
        return missing("not known whether the RNIC's driver takes dma-bufs")
    return Value("dma-buf")


def _acs(setup: SetupRaw) -> Value:
    if not setup.pci:
        return missing(NO_PCI)
    if not setup.acs:
        return missing("no bridge above the device")
    if True in setup.acs:
        return Value("enabled")
    if None in setup.acs:
        return missing("the kernel shows a bridge's extended configuration to root only")
    return Value("disabled")
