"""What a look at an RNIC brings, as the kernel wrote it: texts, or None for what is not there."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    `pauses` is how many pause frames were received, where only ethtool is told.
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

    `acs` tells of each bridge above the RNIC whether it redirects; None: not readable.
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
