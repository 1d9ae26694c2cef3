"""The format of probes and replies on the wire: a fixed header, then padding.

A reply is exactly as long as its probe, so that a responder cannot be used to amplify traffic.
Each probe carries a fresh random nonce of 64 bits: whoever cannot see the probe cannot forge its
reply. A CRC-32 over the whole packet detects corruption. If the cluster has a key, a keyed hash
of the packet (BLAKE2s, RFC 7693) proves that an agent with the key made it: probes of strangers
are not answered, and replies of strangers are ignored.
"""

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2s
from hmac import compare_digest
from typing import Final, NamedTuple

MAGIC: Final = b"SKP1"
VERSION: Final = 2
# magic, version, type, flags, nonce, t2, t3, reply key; tag and CRC follow
_HEADER: Final = struct.Struct("!4sBBHQQQI")
_REPLY_KEY: Final = struct.Struct("!I")
_REPLY_KEY_AT: Final = _HEADER.size - _REPLY_KEY.size
_CRC: Final = struct.Struct("!I")
# 64 bits: to guess one at the responder's 20,000 answers a second takes millions of years.
TAG_BYTES: Final = 8
_NO_TAG: Final = bytes(TAG_BYTES)
# Which of a key's hashes is its token: what the kernel can compare, which cannot compute a seal.
_TOKEN_OF: Final = b"token"
TOKEN_BYTES: Final = 4
_SEALED_BYTES: Final = _HEADER.size + TAG_BYTES
HEADER_BYTES: Final = _SEALED_BYTES + _CRC.size
# R-Pingmesh probes with 50 bytes of payload; the header just fits.
MIN_PACKET_BYTES: Final = 50
# A jumbo frame's payload: larger probes would be fragmented and test something else.
MAX_PACKET_BYTES: Final = 8_972
FLAG_T2_KERNEL: Final = 1
# A FOLLOW_UP with a better hold comes after this reply.
FLAG_FOLLOWS: Final = 2
FLAG_SEALED: Final = 4
_TIME_MASK: Final = 2**64 - 1
# What identifies a packet: the start up to and including the nonce, and two times that
# any quote of 64 bytes has as well.
QUOTE_BYTES: Final = 32
# One that seals and those that are still accepted while keys change.
MAX_KEYS: Final = 4
MIN_KEY_BYTES: Final = 16


class PacketType(IntEnum):
    """What a packet is."""

    PROBE = 1
    REPLY = 2
    # States how long the responder's RNIC held the probe, once its send has completed.
    FOLLOW_UP = 3


_KINDS: Final = frozenset(int(kind) for kind in PacketType)


class PacketError(ValueError):
    """Bytes that are no packet of ours.

    `nonce` is the one they claim when the header can be read at all: a reply
    corrupted on its way still says whose it was.
    """

    def __init__(self, reason: str, nonce: int | None = None) -> None:
        self.reason = reason
        self.nonce = nonce
        super().__init__(reason)


class ForgedError(PacketError):
    """An intact packet that was not sealed with the cluster's key."""


class Packet(NamedTuple):
    """A parsed packet; a tuple, since thousands are built each second.

    `t2_ns` and `t3_ns` are the responder's receive and send time, nanoseconds of
    its own clock; 0 in a probe. Only their difference means anything. `reply_key` is
    the Q_Key that an RDMA prober wants its replies to have; in a UDP probe the token of the
    key that seals it, else 0.
    """

    type: PacketType
    nonce: int
    t2_ns: int = 0
    t3_ns: int = 0
    t2_kernel: bool = False
    follows: bool = False
    reply_key: int = 0
    padding: bytes = b""

    @property
    def hold_ns(self) -> int:
        """How long the responder held the probe, nanoseconds."""
        return self.t3_ns - self.t2_ns


def check_size(size_bytes: int) -> int:
    """Return the size if a probe can have it.

    Raises
    ------
    ValueError
        If it is out of bounds.
    """
    if not MIN_PACKET_BYTES <= size_bytes <= MAX_PACKET_BYTES:
        raise ValueError(
            f"a probe of {size_bytes} bytes; {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES} are possible"
        )
    return size_bytes


def quoted_nonce(quote: bytes) -> int | None:
    """Return the nonce of a packet of which only the start is left, as in an ICMP error.

    None where the start is too short or not of a packet of ours. CRC and tag cannot be
    checked here; the nonce itself is the proof, since nobody else knows it.
    """
    if len(quote) < QUOTE_BYTES:
        return None
    magic, version, kind, _, nonce = struct.unpack_from("!4sBBHQ", quote)
    if magic != MAGIC or version != VERSION or kind not in _KINDS:
        return None
    return int(nonce)


def reply_key_of(data: bytes) -> int | None:
    """Return the reply key of a packet whose seal is not checked; None: it is too short."""
    return _REPLY_KEY.unpack_from(data, _REPLY_KEY_AT)[0] if len(data) >= HEADER_BYTES else None


class Packets:
    """Builds and parses the packets of one cluster.

    Parameters
    ----------
    keys : the first seals, all of them open; none: packets are not sealed, and sealed
        ones are not understood

    Raises
    ------
    ValueError
        If there are too many keys, or one is too short to be a secret.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        if len(keys) > MAX_KEYS:
            raise ValueError(f"{len(keys)} keys; {MAX_KEYS} at most")
        if any(len(key) < MIN_KEY_BYTES for key in keys):
            raise ValueError(f"a key has less than {MIN_KEY_BYTES} bytes")
        # BLAKE2s takes keys of 32 bytes at most: longer ones are hashed first.
        self._keys = tuple(blake2s(key).digest() for key in keys)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys as BLAKE2s takes them, of 32 bytes each."""
        return self._keys

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of all keys; a UDP probe carries that of the first."""
        return tuple(
            int.from_bytes(blake2s(_TOKEN_OF, key=key, digest_size=TOKEN_BYTES).digest(), "big")
            for key in self._keys
        )

    @property
    def sealed(self) -> bool:
        """Whether packets are sealed."""
        return bool(self._keys)

    def probe(self, nonce: int, size_bytes: int = MIN_PACKET_BYTES, *, reply_key: int = 0) -> bytes:
        """Return a probe of exactly that size; `check_size` says which sizes there are."""
        padding = bytes(size_bytes - HEADER_BYTES)
        return self._seal(Packet(PacketType.PROBE, nonce, reply_key=reply_key, padding=padding))

    def reply(
        self, probe: Packet, *, t2_ns: int, t3_ns: int, t2_kernel: bool, follows: bool = False
    ) -> bytes:
        """Return the reply to a probe, as long as the probe was."""
        return self._seal(
            Packet(
                PacketType.REPLY,
                probe.nonce,
                t2_ns,
                t3_ns,
                t2_kernel=t2_kernel,
                follows=follows,
                padding=probe.padding,
            )
        )

    def follow_up(self, nonce: int, *, hold_ns: int) -> bytes:
        """Return a follow-up, which states how long the RNIC held a probe; never longer than it."""
        padding = bytes(MIN_PACKET_BYTES - HEADER_BYTES)
        return self._seal(Packet(PacketType.FOLLOW_UP, nonce, 0, hold_ns, padding=padding))

    def unpack(self, data: bytes) -> Packet:
        """Parse a packet.

        Raises
        ------
        PacketError
            If it is too short or too long, has a foreign magic, an unknown version or
            type, a CRC that does not fit, or is not sealed as this cluster seals.
        """
        if not MIN_PACKET_BYTES <= len(data) <= MAX_PACKET_BYTES:
            raise PacketError(
                f"{len(data)} bytes; {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES} expected",
                quoted_nonce(data),
            )
        magic, version, kind, flags, nonce, t2_ns, t3_ns, reply_key = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise PacketError(f"magic {magic.hex()} instead of {MAGIC.hex()}")
        if version != VERSION:
            raise PacketError(f"version {version}; this agent speaks {VERSION}", nonce)
        (claimed,) = _CRC.unpack_from(data, _SEALED_BYTES)
        padding = data[HEADER_BYTES:]
        actual = zlib.crc32(padding, zlib.crc32(data[:_SEALED_BYTES]))
        if actual != claimed:
            raise PacketError(f"CRC {actual:08x} instead of {claimed:08x}", nonce)
        if kind not in _KINDS:
            raise PacketError(f"unknown type {kind}", nonce)
        self._check_seal(data, padding, bool(flags & FLAG_SEALED))
        return Packet(
            PacketType(kind),
            nonce,
            t2_ns,
            t3_ns,
            bool(flags & FLAG_T2_KERNEL),
            bool(flags & FLAG_FOLLOWS),
            reply_key,
            padding,
        )

    def _seal(self, packet: Packet) -> bytes:
        flags = FLAG_T2_KERNEL * packet.t2_kernel | FLAG_FOLLOWS * packet.follows
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            packet.type,
            flags | FLAG_SEALED * self.sealed,
            packet.nonce,
            packet.t2_ns & _TIME_MASK,
            packet.t3_ns & _TIME_MASK,
            packet.reply_key,
        )
        header += _tag(self._keys[0], header, packet.padding) if self._keys else _NO_TAG
        return header + _CRC.pack(zlib.crc32(packet.padding, zlib.crc32(header))) + packet.padding

    def _check_seal(self, data: bytes, padding: bytes, sealed: bool) -> None:
        """Raise unless one of the keys made the tag.

        No nonce goes with the error: a forged packet says nothing about any probe.
        """
        if sealed is not self.sealed:
            raise ForgedError(
                "sealed with a key; this agent has none"
                if sealed
                else "not sealed; this cluster has a key"
            )
        header, tag = data[: _HEADER.size], data[_HEADER.size : _SEALED_BYTES]
        if self._keys and not any(
            compare_digest(tag, _tag(key, header, padding)) for key in self._keys
        ):
            raise ForgedError("sealed with another key")


# What agents without a key exchange.
UNSEALED: Final = Packets()


def _tag(key: bytes, header: bytes, padding: bytes) -> bytes:
    tag = blake2s(header, key=key, digest_size=TAG_BYTES)
    tag.update(padding)
    return tag.digest()
