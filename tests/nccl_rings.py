"""Rings as the plugin for NCCL writes them, made by hand, to be damaged."""

import struct

from probers.collectives.nccl_ring import HEADER_BYTES, LAYOUT_VERSION, MAGIC, RingReader

HEADER = struct.Struct("=Q8I11Q")
OPERATIONS, COMMUNICATORS, CHANNELS = 8, 2, 4
BEGIN_NS = 1_700_000_000 * 10**9
NOW_US = BEGIN_NS // 1_000 + 10**6


def header(**changed: int) -> bytes:
    """Return a header; `changed` are its numbers by name."""
    values = {
        "magic": MAGIC, "version": LAYOUT_VERSION, "header_bytes": HEADER_BYTES,
        "operations": OPERATIONS, "operation_bytes": 192, "communicators": COMMUNICATORS,
        "communicator_bytes": 128, "channels": CHANNELS, "channel_bytes": 128, "pid": 7,
        "start_ticks": 9, "created_ns": BEGIN_NS, "api": 6, "next_operation": 2,
        "used_communicators": 1, "used_channels": 1, "lost_communicators": 0, "lost_channels": 0,
        "lost_events": 0, "foreign_events": 0,
    } | changed  # fmt: skip
    return HEADER.pack(*values.values()).ljust(HEADER_BYTES, b"\0")


def operation(number: int, *, hash_: int = 0xABC, ended: int = 1, peer: int = 0) -> bytes:
    """Return an operation of two channels, of which so many have ended."""
    return struct.pack(
        "=8Q4IiIHB5x16s16s16s16s32x", hash_, number, number, 1_000, BEGIN_NS + number,
        BEGIN_NS + number + 1, BEGIN_NS + number + 2, BEGIN_NS + number + 3, 2, ended, 0, 0, peer,
        0, 2, 0, b"AllReduce", b"ncclFloat32", b"RING", b"SIMPLE",
    )  # fmt: skip


def ring(head: bytes | None = None, *, sequences: list[int] | None = None) -> bytes:
    """Return a ring with two operations, the first of which is done, and a channel."""
    held = sequences or [2, 4]
    held += [0] * (OPERATIONS - len(held))
    operations = operation(0, ended=2) + operation(1)
    group = struct.pack("=QQIIIIQQQQ64s", 1, 0xABC, 2, 0, 1, 0, 2, 0, BEGIN_NS, 0, b"default_pg")
    key = 1 << 63 | 3 << 32 | 1
    channel = struct.pack("=13Q24x", 4, 3, 2, 1, 800, 400, 2, 2, 1, 600, 300, BEGIN_NS, 500)
    return (
        (head or header())
        + struct.pack(f"={OPERATIONS}Q", *held)
        + operations.ljust(OPERATIONS * 192, b"\0")
        + group.ljust(COMMUNICATORS * 128, b"\0")
        + struct.pack(f"={CHANNELS}Q", 0, key, 0, 0)
        + (b"\0" * 128 + channel).ljust(CHANNELS * 128, b"\0")
    )


def reader() -> RingReader:
    """Return a reader of rank 0 of 2."""
    return RingReader(0, 2)
