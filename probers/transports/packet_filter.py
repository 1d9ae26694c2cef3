"""Which packets the kernel passes to a UDP socket: programs of classic BPF, without privileges.

A flood must not fill the socket buffers that the agent's own replies and its peers' probes need,
and the agent cannot read as fast as strangers can send. So the kernel drops what nobody waits for
before it is queued (SO_ATTACH_FILTER; linux/filter.h, McCanne and Jacobson, The BSD Packet Filter,
USENIX 1993):

* at a socket that probes, all but replies whose nonce begins with this transport's secret;
* at the socket that answers, all but probes. During a flood of well-formed probes it passes those
  of known sources, those with the token of the cluster's key, and a small sample of the others.

What no filter can tell apart: strangers who forge the address and port of a known peer, or who
have read the token or a nonce on the wire. They compete with the peers for the socket's buffer,
and their packets still fail the seal.
"""

import array
import os
import socket
import struct
from collections.abc import Collection, Sequence
from typing import Final

from probers.packet import MAGIC, MIN_PACKET_BYTES, VERSION, PacketType

SO_ATTACH_FILTER: Final = 26
SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("@9I")
_DROPS: Final = 8
# struct sock_filter and struct sock_fprog (linux/filter.h).
_INSTRUCTION: Final = struct.Struct("@HBBI")
_PROGRAM: Final = struct.Struct("@HP")

# Instructions: load a word, a half word, the length, into A or X; jumps; arithmetic; return.
_LD_W: Final = 0x20
_LD_H: Final = 0x28
_LD_LEN: Final = 0x80
_JA: Final = 0x05
_JEQ: Final = 0x15
_JGT: Final = 0x25
_JGE: Final = 0x35
_MUL_K: Final = 0x24
_RSH_K: Final = 0x74
_XOR_X: Final = 0xAC
_TAX: Final = 0x07
_RET: Final = 0x06
_ACCEPT: Final = 0xFFFF_FFFF
_DROP: Final = 0
# The network header, and a random number, as ancillary loads (linux/filter.h).
_NETWORK: Final = 0xFFF0_0000
_RANDOM: Final = 0xFFFF_F000 + 56
# The program sees the datagram from its UDP header on.
_UDP_BYTES: Final = 8
_MAGIC_AT: Final = _UDP_BYTES
_VERSION_AT: Final = _UDP_BYTES + 4
_NONCE_AT: Final = _UDP_BYTES + 8
_REPLY_KEY_AT: Final = _UDP_BYTES + 32
# Where the words of the source address are in an IPv4 or IPv6 header.
_SOURCE_WORDS: Final = {socket.AF_INET: (12,), socket.AF_INET6: (8, 12, 16, 20)}
# Bits of a nonce that are the transport's secret; a stranger's reply passes once in 65,536.
SECRET_BITS: Final = 16
# Sources in one program: two instructions each, and the kernel may limit a program to 20 KB.
MAX_KNOWN: Final = 512
_LEAF: Final = 4

Instruction = tuple[int, int, int, int]


class SourceHash:
    """Maps a source to 31 bits, in the kernel and here alike; strangers cannot compute it.

    Attributes
    ----------
    family : of the addresses
    factor : the secret, an odd number of 32 bits
    """

    def __init__(self, family: int) -> None:
        self.family = socket.AddressFamily(family)
        self.factor = int.from_bytes(os.urandom(4), "big") | 1

    def of(self, address: str, port: int) -> int:
        """Return the hash of an address and a port."""
        packed = socket.inet_pton(self.family, address.partition("%")[0])
        mixed = port * self.factor & 0xFFFF_FFFF
        for (word,) in struct.iter_unpack("!I", packed):
            mixed = (mixed ^ word) * self.factor & 0xFFFF_FFFF
        return mixed >> 1

    def program(self) -> list[Instruction]:
        """Return what loads the hash of a datagram's source."""
        steps: list[Instruction] = [(_LD_H, 0, 0, 0), (_MUL_K, 0, 0, self.factor)]
        for offset in _SOURCE_WORDS[self.family]:
            steps += [
                (_TAX, 0, 0, 0),
                (_LD_W, 0, 0, _NETWORK + offset),
                (_XOR_X, 0, 0, 0),
                (_MUL_K, 0, 0, self.factor),
            ]
        return [*steps, (_RSH_K, 0, 0, 1)]


def passes_replies(secret: int) -> list[Instruction]:
    """Return the program of a socket that probes."""
    return [
        *_passes(PacketType.REPLY),
        (_LD_H, 0, 0, _NONCE_AT),
        (_JEQ, 0, 1, secret),
        (_RET, 0, 0, _ACCEPT),
        (_RET, 0, 0, _DROP),
    ]


def passes_probes() -> list[Instruction]:
    """Return the program of a socket that answers."""
    return [*_passes(PacketType.PROBE), (_RET, 0, 0, _ACCEPT)]


def passes_known(
    source: SourceHash, known: Collection[int], tokens: Sequence[int], share: float
) -> list[Instruction]:
    """Return the program of a socket that answers, during a flood.

    Parameters
    ----------
    known : hashes of the sources that pass
    tokens : reply keys of probes that pass
    share : share of the other probes that passes, in [0, 1]
    """
    steps = _passes(PacketType.PROBE)
    for token in tokens:
        steps += [(_LD_W, 0, 0, _REPLY_KEY_AT), (_JEQ, 0, 1, token), (_RET, 0, 0, _ACCEPT)]
    return [
        *steps,
        *source.program(),
        *_search(sorted(known), after=0),
        (_LD_W, 0, 0, _RANDOM),
        (_JGE, 1, 0, round(share * _ACCEPT)),
        (_RET, 0, 0, _ACCEPT),
        (_RET, 0, 0, _DROP),
    ]


def _passes(kind: PacketType) -> list[Instruction]:
    """Return what drops a datagram unless its length, magic, version and type are right."""
    checks = (
        (_LD_LEN, _JGE, 0, _UDP_BYTES + MIN_PACKET_BYTES),
        (_LD_W, _JEQ, _MAGIC_AT, int.from_bytes(MAGIC, "big")),
        (_LD_H, _JEQ, _VERSION_AT, VERSION << 8 | kind),
    )
    steps: list[Instruction] = []
    for load, jump, offset, value in checks:
        steps += [(load, 0, 0, offset), (jump, 1, 0, value), (_RET, 0, 0, _DROP)]
    return steps


def _search(values: list[int], after: int) -> list[Instruction]:
    """Return a binary search: accept if A is one of the values, else go on `after` its end."""
    if len(values) <= _LEAF:
        count = len(values)
        # A jump behind the last comparison accepts; without a match the one before it leaves.
        tests: list[Instruction] = [
            (_JEQ, count - index, 0, value) for index, value in enumerate(values)
        ]
        return [*tests, (_JA, 0, 0, after + 1), (_RET, 0, 0, _ACCEPT)]
    middle = len(values) // 2
    right = _search(values[middle:], after)
    left = _search(values[:middle], after + len(right))
    return [(_JGE, 0, 1, values[middle]), (_JA, 0, 0, len(left)), *left, *right]


def attach(sock: socket.socket, program: Sequence[Instruction]) -> None:
    """Attach a program to a socket in place of the one before.

    Raises
    ------
    OSError
        If the kernel does not accept it.
    """
    code = array.array("B", b"".join(_INSTRUCTION.pack(*step) for step in program))
    address, _ = code.buffer_info()
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _PROGRAM.pack(len(program), address))


def dropped(sock: socket.socket) -> int | None:
    """Return how many packets the kernel has dropped at a socket, modulo 2^32; None: unknown.

    Those that its program rejected, and those for which its buffer had no room.
    """
    try:
        values = _MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size))
    except (OSError, struct.error):
        return None
    return int(values[_DROPS])
