"""Reads the byte counters of an RNIC, in any of the layouts that drivers have in sysfs.

InfiniBand counts port data in words of four octets (IBTA specification, volume 1, section
16.1.3.5), in 32 bits on old devices and in 64 on others. Drivers without that table count bytes
in `hw_counters`, in 64 bits. A device that has neither, such as Soft-RoCE, sends through a
network device, whose statistics count bytes in 64 bits.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from probers.host.port import netdev_of, port_folder

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
# What that table says on a device that has none behind it: older kernels show the table of
# every device (show_pma_counter in the same file).
_NO_TABLE: Final = b"N/A"


class CounterError(Exception):
    """A counter that cannot be read; the message is a reason for a record."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Files whose sum is what was sent, files whose sum is what was received."""

    tx: tuple[str, ...]
    rx: tuple[str, ...]
    unit_bytes: int = 1


INFINIBAND: Final = _Layout(("port_xmit_data",), ("port_rcv_data",), WORD_BYTES)
# bnxt_re and efa in `hw_counters`, and the statistics of a network device.
BYTES: Final = _Layout(("tx_bytes",), ("rx_bytes",))
# irdma in `hw_counters`: octets of IP packets of RDMA.
OCTETS: Final = _Layout(("ip4OutOctets", "ip6OutOctets"), ("ip4InOctets", "ip6InOctets"))


class Reading(NamedTuple):
    """Both counters at one moment, or why they could not be read."""

    tx_bytes: int | None
    rx_bytes: int | None
    bits: int
    missing_reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Opened:
    """Open files of one layout."""

    tx: tuple[int, ...]
    rx: tuple[int, ...]
    layout: _Layout


class CounterFiles:
    """Reads the two counters of one RNIC again and again.

    The files stay open: reading at offset 0 asks the driver anew. A file that
    fails is closed, and opened again at the next read: a device may come back.

    Parameters
    ----------
    folder : of the counters, or of the port or network device that they are of
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: _Opened | None = None
        # The layout that was found; a device that comes back has it again.
        self._found: tuple[Path, _Layout] | None = None
        self._bits = NARROW_BITS

    def read(self) -> Reading:
        """Return what the counters say now."""
        try:
            if self._opened is None:
                self._opened = self._open()
            opened = self._opened
            tx_units = _sum(opened.tx, opened.layout.tx)
            rx_units = _sum(opened.rx, opened.layout.rx)
            return self._reading(tx_units, rx_units, opened.layout.unit_bytes)
        except CounterError as error:
            self.close()
            return Reading(None, None, self._bits, str(error))

    @property
    def descriptors(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Open files whose numbers are what was sent, and received; None: none is open.

        To be asked again after each `read`, `reading` and `close`.
        """
        return None if self._opened is None else (self._opened.tx, self._opened.rx)

    def reading(self, tx_units: int, rx_units: int) -> Reading:
        """Return what numbers mean that somebody else has read from `descriptors`."""
        if self._opened is None:
            return Reading(None, None, self._bits, "closed")
        try:
            return self._reading(tx_units, rx_units, self._opened.layout.unit_bytes)
        except CounterError as error:
            self.close()
            return Reading(None, None, self._bits, str(error))

    def close(self) -> None:
        """Close the files."""
        if self._opened is not None:
            _close(self._opened.tx + self._opened.rx)
            self._opened = None

    def _reading(self, tx_units: int, rx_units: int, unit_bytes: int) -> Reading:
        if max(tx_units, rx_units) >= 2**32:
            self._bits = WIDE_BITS
        tx_bytes, rx_bytes = tx_units * unit_bytes, rx_units * unit_bytes
        if max(tx_bytes, rx_bytes) > MAX_BYTES:
            raise CounterError(f"{max(tx_bytes, rx_bytes)} bytes do not fit 63 bits")
        return Reading(tx_bytes, rx_bytes, self._bits)

    def _open(self) -> _Opened:
        """Open the first layout that is there.

        Only a file that is not there, or says that there is nothing behind it, makes way
        for the next layout: another one counts other packets. For the same reason the
        layout that was found once is the one for ever.
        """
        first: CounterError | None = None
        for folder, layout in self._places() if self._found is None else (self._found,):
            try:
                opened = _open_all(folder, layout)
            except CounterError as error:
                if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                    raise
                first = first or error
                continue
            if _says_nothing(opened):
                first = first or CounterError(f"{layout.tx[0]}: no number but 'N/A'")
                _close(opened.tx + opened.rx)
                continue
            wide = layout is not INFINIBAND or (folder / _EXTENDED_MARK).exists()
            self._bits = WIDE_BITS if wide else NARROW_BITS
            self._found = folder, layout
            return opened
        raise first or CounterError("no counters")

    def _places(self) -> Iterator[tuple[Path, _Layout]]:
        named, port = self._folder, port_folder(self._folder)
        here = (INFINIBAND, BYTES) if named.name != "statistics" else (BYTES, INFINIBAND)
        for layout in here:
            yield named, layout
        if named.name == "statistics":
            return
        yield port / "counters", INFINIBAND
        yield port / "hw_counters", BYTES
        yield port / "hw_counters", OCTETS
        yield port / "statistics", BYTES
        netdev = netdev_of(str(port))
        if netdev is not None:
            yield Path(netdev) / "statistics", BYTES


def _open_all(folder: Path, layout: _Layout) -> _Opened:
    opened: list[int] = []
    try:
        for name in layout.tx + layout.rx:
            opened.append(_open(folder / name))
    except CounterError:
        _close(opened)
        raise
    split = len(layout.tx)
    return _Opened(tuple(opened[:split]), tuple(opened[split:]), layout)


def _says_nothing(opened: _Opened) -> bool:
    try:
        texts = [os.pread(d, _READ_BYTES, 0) for d in opened.tx + opened.rx]
    except OSError:
        return False  # it is there, and may be readable the next time
    return all(text.startswith(_NO_TABLE) for text in texts)


def _close(descriptors: tuple[int, ...] | list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CounterError(f"{path.name}: {error.strerror}") from error


def _sum(descriptors: tuple[int, ...], names: tuple[str, ...]) -> int:
    # Nearly always one file: eight RNICs are read ten times a second.
    total = _number(descriptors[0], names[0])
    if len(descriptors) > 1:
        total += sum(map(_number, descriptors[1:], names[1:]))
    return total


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
