"""Whether the own RNIC is there and up, from the sysfs files beside its counters."""

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from probers.host.sysfs import port_folder, read_text

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


@dataclass(frozen=True, slots=True)
class LinkFiles:
    """Where the state of the port of a counters folder is told.

    For InfiniBand (`ports/1`, or `ports/1/counters`) in `ports/1/state`, for a netdev
    (`<name>`, or `<name>/statistics`) in `<name>/operstate`. Where neither is there, as in
    the lab, a port is up as long as its folder exists.
    """

    counters: Path

    def read(self) -> Link:
        """Return the state now."""
        port = port_folder(self.counters)
        state = read_text(str(port / "state"), _READ_BYTES)
        if state is not None:
            return Link.UP if state.endswith(_INFINIBAND_ACTIVE) else Link.DOWN
        state = read_text(str(port / "operstate"), _READ_BYTES)
        if state is not None:
            return Link.UP if state in NETDEV_UP else Link.DOWN
        return Link.UP if self.counters.is_dir() else Link.GONE
