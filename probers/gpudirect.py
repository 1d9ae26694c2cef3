"""Whether the RNIC can reach the GPUs' memory, from what is loaded. Pure."""

from typing import Final

from probers import sysfs_text
from probers.rnic_raw import SetupRaw
from probers.told import Value, missing

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
