"""Whether the RNIC can reach the GPUs' memory, from what is loaded. Pure.

What the agent tells of its host: hugepages, and which kernel and GPU driver it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from probers.host import sysfs_text
from probers.host.reported import Value, missing
from probers.host.rnic_files import SetupRaw
from probers.host.sysfs import read_text

# NVIDIA's own module since driver 470, and the one before it.
PEER_MODULES: Final = frozenset({"nvidia_peermem", "nv_peer_mem"})
GPU_MODULE: Final = "nvidia"
# Without a peer module, memory goes through dma-buf: NVIDIA's open kernel modules export it,
# and mlx5 takes it since Linux 5.12.
_OPEN_FLAVOUR: Final = "Open Kernel Module"
_DMA_BUF_DRIVER: Final = "mlx5_core"
_DMA_BUF_SINCE: Final = (5, 12)


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


@dataclass(frozen=True, slots=True)
class HostRaw:
    """Texts of the host; `pages` by size in kB, of the sizes that were asked for."""

    kernel: str | None
    gpu_driver: str | None
    pages: Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class HostFiles:
    """Reads the host's files; `sysfs` and `proc` are where those are mounted."""

    sysfs: str
    proc: str
    wanted: Mapping[int, int] | None

    def read(self) -> HostRaw:
        """Look at the host."""
        pages = f"{self.sysfs}/kernel/mm/hugepages"
        return HostRaw(
            read_text(f"{self.proc}/sys/kernel/osrelease"),
            read_text(f"{self.sysfs}/module/nvidia/version"),
            {kb: read_text(f"{pages}/hugepages-{kb}kB/nr_hugepages") for kb in self.wanted or ()},
        )


def host_values(raw: HostRaw) -> dict[str, Value]:
    """Return the values of the host's attributes."""
    kernel, driver = sysfs_text.version(raw.kernel), sysfs_text.version(raw.gpu_driver)
    return {
        "kernel_version": Value(kernel) if kernel else missing("the release cannot be read"),
        "gpu_driver_version": Value(driver) if driver else missing("no GPU driver known here"),
    }


def hugepages(raw: HostRaw, wanted: Mapping[int, int] | None) -> Value:
    """Return whether the host has the hugepages that it should: `match` or `mismatch`.

    >>> hugepages(HostRaw(None, None, {2048: "512"}), {2048: 1024}).text
    'mismatch'
    """
    if wanted is None:
        return missing("the settings do not say what the host should have")
    for size_kb, least in wanted.items():
        count = sysfs_text.number(raw.pages.get(size_kb))
        if count is None:
            return missing(f"no hugepages of {size_kb} kB in sysfs")
        if count < least:
            return Value("mismatch")
    return Value("match")
