"""Which UDP source port the RoCE packets of a flow have, as far as that is known.

Switches choose among equal paths by this port. A device derives it from the flow label of the
address handle or from the number of the queue pair. Which of them, its driver decides; for
drivers that are not named here it is not known.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

# RoCE v2's source ports (IBTA annex A17): the dynamic range.
FIRST_PORT: Final = 0xC000
_PORT_BITS: Final = 14
# Flow labels have 20 bits (RFC 8200, section 6).
_LABELS: Final = (1 << 20) - 1
# The kernel's multiplier for hashes of 32 bits (linux/hash.h): the golden ratio.
_GOLDEN: Final = 0x61C88647
# Driver of the PCI function. What makes its address handles, rdma-core's provider, goes by the
# label since 2020, and so does the kernel since 5.8.
MLX5: Final = "mlx5_core"

# From the number of the queue pair and the flow label.
PortOf = Callable[[int, int], int]


def pair_of(flow: int, pairs: int) -> int:
    """Return which of a port's probing queue pairs a flow has; the responder's is number 0."""
    return 1 + flow % pairs


def label_of(entropy: int) -> int:
    """Return the flow label of a flow; 0 would mean that it has none."""
    return entropy & _LABELS


def port_of_label(label: int) -> int:
    """Return the source port of a flow label (rdma_flow_label_to_udp_sport of rdma/ib_verbs.h).

    >>> hex(port_of_label(0x54321))
    '0xc334'
    """
    return FIRST_PORT | (label & 0x3FFF) ^ (label >> _PORT_BITS)


def port_of_queue_pair(number: int) -> int:
    """Return the source port of Soft-RoCE's unreliable datagrams (rxe_qp_init_req of rxe_qp.c).

    >>> hex(port_of_queue_pair(17))
    '0xdf94'
    """
    return FIRST_PORT + ((number * _GOLDEN & 0xFFFF_FFFF) >> (32 - _PORT_BITS))


def rule_of(device: Path) -> PortOf | str:
    """Return the rule of a device's folder in sysfs (`…/infiniband/mlx5_0`), or why none is known.

    With a label of 0 mlx5 draws a port: there is no rule for that, and no flow has it.
    """
    try:
        driver = os.path.basename(os.readlink(device / "device" / "driver"))
    except OSError:
        # Soft-RoCE has no PCI function; it names the interface that it uses.
        if (device / "parent").exists():
            return lambda number, _: port_of_queue_pair(number)
        return "driver not known"
    if driver == MLX5:
        return lambda _, label: port_of_label(label)
    return f"driver {driver}: how it chooses the UDP source port is not known"
