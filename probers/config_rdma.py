"""What the settings of an RNIC say of verbs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from probers.config_checks import whole_number

# Where the kernel shows RDMA devices (Documentation/ABI/stable/sysfs-class-infiniband).
INFINIBAND: Final = Path("/sys/class/infiniband")
RDMA_KEYS: Final = (
    "device", "device_port", "gid_index", "traffic_class", "service_level", "fallback",
)  # fmt: skip
_DEVICE: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaSettings:
    """How an RNIC speaks RDMA.

    `address` is the RNIC's IP address, whose RoCE v2 GID is used; `gid_index` another one.
    """

    device: str
    address: str
    port: int = 1
    gid_index: int | None = None
    traffic_class: int = 0
    service_level: int = 0


def checked_rdma(
    table: Mapping[str, Any], name: str, address: str, wrong: list[str]
) -> RdmaSettings:
    """Return the settings of one RNIC's table; what is wrong with them is noted."""
    device = str(table.get("device", ""))
    if not _DEVICE.fullmatch(device):
        wrong.append(
            f"RNIC {name}: device={device!r}: the name of an RDMA device is needed, "
            "as `rdma link` or /sys/class/infiniband shows it"
        )
    fallback = table.get("fallback", "none")
    if fallback not in ("none", "udp"):
        wrong.append(f"RNIC {name}: fallback={fallback!r} must be none or udp")
    index = table.get("gid_index")
    if index is not None and index != "":
        index = whole_number("RNIC gid_index", index, (0, 511), wrong)
    return RdmaSettings(
        device=device,
        address=address,
        port=whole_number("RNIC device_port", table.get("device_port", 1), (1, 255), wrong),
        gid_index=index if isinstance(index, int) else None,
        traffic_class=whole_number(
            "RNIC traffic_class", table.get("traffic_class", 0), (0, 255), wrong
        ),
        service_level=whole_number(
            "RNIC service_level", table.get("service_level", 0), (0, 15), wrong
        ),
    )
