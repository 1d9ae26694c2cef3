"""Byte counters of an RNIC, from the InfiniBand or the netdev layout of sysfs.

InfiniBand counts port data in words of four octets (IBTA specification, volume 1,
section 16.1.3.5), in 32 bits on old devices and 64 on others; the netdev layout
counts bytes in 64 bits.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WORD_BYTES: Final = 4
# Bits of a 32-bit counter of 4-byte words, in bytes.
NARROW_BITS: Final = 34
WIDE_BITS: Final = 64
# What a record's `long` can hold.
MAX_BYTES: Final = 2**63 - 1
# A counter is a number of at most 20 digits and a newline.
_READ_BYTES: Final = 32
# Of the same table of the port as 64-bit data counters, and of no other
# (ib_pma_portcounters_ext in the kernel's drivers/infiniband/core/sysfs.c).
_EXTENDED_MARK: Final = "unicast_xmit_packets"


class CounterError(Exception):
    """A counter that cannot be read; the message is a reason for a record."""


@dataclass(frozen=True, slots=True)
class _Layout:
    tx: str
    rx: str
    unit_bytes: int


INFINIBAND: Final = _Layout("port_xmit_data", "port_rcv_data", WORD_BYTES)
NETDEV: Final = _Layout("tx_bytes", "rx_bytes", 1)


@dataclass(frozen=True, slots=True)
class Reading:
    """Both counters at one moment, or why they could not be read."""

    tx_bytes: int | None
    rx_bytes: int | None
    bits: int
    missing_reason: str | None = None


class CounterFiles:
    """Reads the two counters of one RNIC again and again.

    The files stay open: reading at offset 0 asks the driver anew. A file that
    fails is closed, and opened again at the next read: a device may come back.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptors: tuple[int, int] | None = None
        self._layout = INFINIBAND
        self._bits = NARROW_BITS

    def read(self) -> Reading:
        """Return what the counters say now."""
        try:
            if self._descriptors is None:
                self._descriptors = self._open()
            tx_units = _number(self._descriptors[0], self._layout.tx)
            rx_units = _number(self._descriptors[1], self._layout.rx)
            return self._reading(tx_units, rx_units)
        except CounterError as error:
            self.close()
            return Reading(None, None, self._bits, str(error))

    def close(self) -> None:
        """Close the files."""
        if self._descriptors is not None:
            for descriptor in self._descriptors:
                os.close(descriptor)
            self._descriptors = None

    def _reading(self, tx_units: int, rx_units: int) -> Reading:
        if max(tx_units, rx_units) >= 2**32:
            self._bits = WIDE_BITS
        tx_bytes, rx_bytes = tx_units * self._layout.unit_bytes, rx_units * self._layout.unit_bytes
        if max(tx_bytes, rx_bytes) > MAX_BYTES:
            raise CounterError(f"{max(tx_bytes, rx_bytes)} bytes do not fit 63 bits")
        return Reading(tx_bytes, rx_bytes, self._bits)

    def _open(self) -> tuple[int, int]:
        self._layout = INFINIBAND if (self._folder / INFINIBAND.tx).exists() else NETDEV
        wide = self._layout is NETDEV or (self._folder / _EXTENDED_MARK).exists()
        self._bits = WIDE_BITS if wide else NARROW_BITS
        tx = _open(self._folder / self._layout.tx)
        try:
            return tx, _open(self._folder / self._layout.rx)
        except CounterError:
            os.close(tx)
            raise


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CounterError(f"{path.name}: {error.strerror}") from error


def _number(descriptor: int, name: str) -> int:
    try:
        text = os.pread(descriptor, _READ_BYTES, 0)
    except OSError as error:
        raise CounterError(f"{name}: {error.strerror}") from error
    try:
        value = int(text)
    except ValueError as error:
        raise CounterError(f"{name}: no number but {text[:20]!r}") from error
    if value < 0:
        raise CounterError(f"{name}: {value} is negative")
    return value
