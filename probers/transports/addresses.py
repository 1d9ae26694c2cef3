"""Finds the address of an RNIC whose settings name a device or an interface instead.

So that one file of settings does for all hosts: devices have the same names there, addresses do
not. It is looked for each time the RNIC is opened: a device that is missing now may come later.
"""

import errno
import fcntl
import socket
import struct
from typing import Final

from probers.config.rnics import INFINIBAND, RnicConfig

# linux/sockios.h: the first IPv4 address of an interface, which has 15 characters at most.
_SIOCGIFADDR: Final = 0x8915
_IFREQ: Final = struct.Struct("16s4x4s16x")


def own_address(config: RnicConfig) -> str:
    """Return the address that an RNIC's sockets are bound to.

    Raises
    ------
    OSError
        ENODEV if the device or interface is not there, EADDRNOTAVAIL if it has no address.
    """
    if config.address is not None:
        return config.address
    if config.interface is not None:
        return _of_interface(config.interface)
    if config.rdma is None:
        raise OSError(errno.EADDRNOTAVAIL, "neither address nor device nor interface is set")
    # As all transports but plain UDP: not in the memory of an agent that has no use for it.
    from probers.transports.rdma.gids import choose_gid, read_table  # noqa: PLC0415

    port = INFINIBAND / config.rdma.device / "ports" / str(config.rdma.port)
    if not port.exists():
        raise OSError(errno.ENODEV, f"no RDMA device {config.rdma.device}")
    chosen = choose_gid(read_table(port), None, config.rdma.gid_index)
    if isinstance(chosen, str):
        raise OSError(errno.EADDRNOTAVAIL, chosen)
    return str(chosen.address.ipv4_mapped or chosen.address)


def _of_interface(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking, _SIOCGIFADDR, _IFREQ.pack(name.encode(), bytes(4)))
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise OSError(errno.ENODEV, f"no interface {name}") from error
            raise OSError(errno.EADDRNOTAVAIL, f"{name} has no IPv4 address") from error
    return socket.inet_ntoa(_IFREQ.unpack(answer[: _IFREQ.size])[1])
