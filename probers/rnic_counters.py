"""Which counters of sysfs tell of which attribute, and how large they get.

By path under the folder of the port; `net/` stands for its network device. Meanings:
Documentation/ABI/stable/sysfs-class-infiniband, sysfs-class-net and sysfs-class-net-statistics
in the kernel's sources; widths: IBTA specification, volume 1, PortCounters. Counters of that
table stop when they are full; they do not wrap.
"""

from collections.abc import Mapping
from typing import Final

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
