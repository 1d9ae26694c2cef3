"""The states of the host: its hugepages, and the versions of its kernel and GPU driver."""

from collections.abc import Mapping
from dataclasses import dataclass

from probers.host import sysfs_text
from probers.host.states import Value, missing
from probers.host.sysfs import read_text


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
