"""Counter files as the InfiniBand driver shows them, moved by the workload."""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.shape import LabShape
from ops.lab.workload import Workload

WORD_BYTES: Final = 4  # the driver counts port data in words of four octets
PACKET_BYTES: Final = 4_096  # RDMA's largest MTU
# Files of an RNIC, and how many bytes one of their units stands for. Drivers that
# have the unicast counters have 64 bits for the data; readers tell the width by them.
FILES: Final = (
    ("port_xmit_data", "unicast_xmit_packets"),
    ("port_rcv_data", "unicast_rcv_packets"),
)
UNIT_BYTES: Final = (WORD_BYTES, PACKET_BYTES)
# Twice the agents' slowest rate; a whole number of writes falls between two reads.
WRITE_RATE_HZ: Final = 20
TICK_NS: Final = 10**9 // WRITE_RATE_HZ
# Files are written this long before the wall-clock tick that they show: agents
# read on the tick, and would otherwise see a value that is up to a tick old.
LEAD_NS: Final = 4_000_000
# Endpoints written before packets get their turn: some 30 µs of work.
BATCH: Final = 4
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def counters_dir(root: Path, host: int, rail: int) -> Path:
    """Return the folder that plays `/sys/class/infiniband/mlx5_<rail>/ports/1/counters`."""
    return root / f"h{host}" / f"mlx5_{rail}" / "ports" / "1" / "counters"


class CounterTree:
    """The files of all RNICs, held open.

    A value is overwritten in place by one small write: the counters only grow,
    so the new text is never shorter than the old one, and a reader sees either.
    """

    def __init__(self, root: Path, shape: LabShape) -> None:
        # By endpoint: the files that show what it sent, those that show what it received.
        self._files: dict[str, list[list[int]]] = {}
        self._shown: dict[str, tuple[int, int]] = {}
        try:
            for e in shape.endpoints:
                folder = counters_dir(root, e.host, e.rail)
                folder.mkdir(parents=True, mode=FOLDER_MODE)
                opened: list[list[int]] = [[], []]
                self._files[e.endpoint_id] = opened
                for direction, names in zip(opened, FILES, strict=True):
                    direction.extend(_create(folder / name) for name in names)
        except OSError:
            self.close()
            raise

    def show(self, totals: Iterable[tuple[str, tuple[int, int]]]) -> None:
        """Write bytes sent and received by endpoint; what has not changed is left alone."""
        for endpoint_id, values in totals:
            if self._shown.get(endpoint_id) != values:
                for direction, value in zip(self._files[endpoint_id], values, strict=True):
                    for descriptor, unit_bytes in zip(direction, UNIT_BYTES, strict=True):
                        os.pwrite(descriptor, b"%d\n" % (value // unit_bytes), 0)
                self._shown[endpoint_id] = values

    def close(self) -> None:
        """Close the files."""
        for directions in self._files.values():
            for descriptor in (d for direction in directions for d in direction):
                os.close(descriptor)
        self._files.clear()


def _create(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    os.write(descriptor, b"0\n")
    return descriptor


def next_tick_ns(wall_ns: int) -> int:
    """Return the first tick whose writing time is still ahead of `wall_ns`.

    >>> next_tick_ns(0) // 1_000_000, next_tick_ns(46_000_000) // 1_000_000
    (50, 100)
    """
    return ((wall_ns + LEAD_NS) // TICK_NS + 1) * TICK_NS


class CounterWriter:
    """Shows the workload in the counter files, tick by tick of the wall clock."""

    def __init__(self, tree: CounterTree, workload: Workload, loop: EventLoop) -> None:
        self._tree = tree
        self._workload = workload
        self._loop = loop
        self._begin_ns = loop.now_ns()

    def start(self) -> None:
        """Write at the next tick, and at every one after it."""
        self._plan()

    def close(self) -> None:
        """Close the files."""
        self._tree.close()

    def _plan(self) -> None:
        wall_ns, now_ns = time.time_ns(), self._loop.now_ns()
        # The tick in monotonic time: a step of the wall clock moves the ticks, as it
        # does for the agents, but never turns the counters back.
        tick_ns = now_ns + next_tick_ns(wall_ns) - wall_ns
        self._loop.call_at(tick_ns - LEAD_NS, lambda: self._write(tick_ns))

    def _write(self, tick_ns: int) -> None:
        self._show(iter(self._workload.totals(tick_ns - self._begin_ns).items()))
        self._plan()

    def _show(self, rest: Iterator[tuple[str, tuple[int, int]]]) -> None:
        some = list(islice(rest, BATCH))
        if some:
            self._tree.show(some)
            self._loop.call_later(0, lambda: self._show(rest))
