"""Counts received pause frames by ethtool's ioctl, for drivers that show no such counter in sysfs.

The ioctl takes no privilege. A driver may ask its firmware for all of its statistics, so this is
not to be called often. It reads devices of the network namespace of the calling thread.
"""

import array
import fcntl
import re
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Final

# linux/sockios.h, linux/ethtool.h.
_SIOCETHTOOL: Final = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATISTICS: Final = 1
_NAME_BYTES: Final = 32
# struct ifreq with a pointer: a name and an address, padded to the size of its union.
_IFREQ: Final = struct.Struct("16sP16x")
_SET_INFO: Final = struct.Struct("=IIQI")
_STRINGS: Final = struct.Struct("=III")
_STATS: Final = struct.Struct("=II")
# mlx5 with 128 channels has some 6,000; each is 32 bytes of name.
MAX_STATISTICS: Final = 8_192
# The kernel writes as many as the driver has at that moment, whatever size was requested. So the
# buffer is larger: a set that grows between two calls must not be written past its end.
_ROOM_FACTOR: Final = 2
_ROOM_LEAST: Final = 256

# Received, of one priority: mlx5 and mlx4, bnxt_en, ice and i40e.
_PRIORITY: Final = re.compile(
    r"rx_prio_?[0-7]_pause|rx_pfc_ena_frames_pri[0-7]|(port\.)?rx_priority_[0-7]_xoff(_rx|\.nic)?"
)
# Received, of all priorities or of none.
_WHOLE: Final = frozenset(
    {
        "rx_pause_ctrl_phy", "rx_global_pause", "rx_pause", "rx_pause_frames", "rx_pfc_frames",
        "port.link_xoff_rx", "link_xoff_rx.nic",
    }
)  # fmt: skip


def names_of(strings: bytes) -> list[str]:
    r"""Return the names in a set of strings, 32 bytes each, as far as it is whole.

    >>> names_of(b"rx_pause".ljust(32, b"\0") + b"cut off")
    ['rx_pause']
    """
    whole = len(strings) // _NAME_BYTES * _NAME_BYTES
    return [
        strings[at : at + _NAME_BYTES].split(b"\0", 1)[0].decode("ascii", "replace")
        for at in range(0, whole, _NAME_BYTES)
    ]


def counts_pauses(name: str) -> bool:
    """Return whether a statistic counts received pause frames."""
    return name in _WHOLE or _PRIORITY.fullmatch(name) is not None


def pause_frames(values: Mapping[str, int]) -> int | None:
    """Return how many pause frames were received; None: nothing counts them.

    The same frame may be counted with its priority and with all: the larger number counts.

    >>> pause_frames({"rx_prio3_pause": 7, "rx_prio4_pause": 2, "rx_pause_ctrl_phy": 8, "tx": 99})
    9
    """
    by_priority = [value for name, value in values.items() if _PRIORITY.fullmatch(name)]
    whole = [value for name, value in values.items() if name in _WHOLE]
    return max([*whole, sum(by_priority)]) if by_priority or whole else None


class Statistics:
    """The statistics of one network device of the thread's own namespace.

    Parameters
    ----------
    wanted : says by its name whether a statistic is read; thousands are not
    """

    def __init__(self, netdev: str, wanted: Callable[[str], bool] = counts_pauses) -> None:
        self._netdev = netdev
        self._wanted = wanted
        self._count: int | None = None
        self._names: dict[int, str] = {}

    def read(self) -> dict[str, int]:
        """Return those that are wanted, by name; empty where the driver has none."""
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                count = self._look_up(asking)
                # Reading the values is expensive, and skipped if none is wanted.
                return self._values(asking, count) if self._names else {}
        except OSError:
            self._count = None
            return {}

    def _look_up(self, asking: socket.socket) -> int:
        """Learn the names anew when their number has changed; return it."""
        info = self._ask(asking, _SET_INFO.pack(_GSSET_INFO, 0, 1 << _STATISTICS, 0), 0)
        _, _, mask, count = _SET_INFO.unpack_from(info)
        if not mask or count > MAX_STATISTICS:
            count = 0
        if count != self._count:
            request = _STRINGS.pack(_GSTRINGS, _STATISTICS, count)
            answer = self._ask(asking, request, _room(count) * _NAME_BYTES) if count else b""
            strings = answer[_STRINGS.size : _STRINGS.size + count * _NAME_BYTES]
            found = enumerate(names_of(strings))
            self._names = {at: name for at, name in found if self._wanted(name)}
            self._count = count
        return int(count)

    def _values(self, asking: socket.socket, count: int) -> dict[str, int]:
        answer = self._ask(asking, _STATS.pack(_GSTATS, count), _room(count) * 8)
        if _STATS.unpack_from(answer)[1] != count:
            raise OSError("the statistics have changed meanwhile")
        values = struct.unpack_from(f"={count}Q", answer, _STATS.size)
        return {name: values[at] for at, name in self._names.items()}

    def _ask(self, asking: socket.socket, request: bytes, room_bytes: int) -> bytes:
        buffer = array.array("B", request + bytes(room_bytes))
        address, _ = buffer.buffer_info()
        fcntl.ioctl(asking, _SIOCETHTOOL, _IFREQ.pack(self._netdev.encode(), address))
        return buffer.tobytes()


def of_this_namespace(netdev: str, index: str | None) -> bool:
    """Return whether the device with that index in sysfs is one of the thread's namespace.

    The mounted sysfs may be that of another namespace, with other devices of the same names.
    """
    try:
        return str(socket.if_nametoindex(netdev)) == index
    except OSError:
        return False


def _room(count: int) -> int:
    return _ROOM_FACTOR * count + _ROOM_LEAST
