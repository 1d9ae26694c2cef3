"""Finds the way to a GID in threads that may wait for ARP, so that the loop does not.

To make an address handle the kernel looks up the next hop's MAC address; for a dead neighbour
that takes a second. pyverbs holds Python's lock meanwhile, so all other targets would wait. So a
second context of the device, opened by ctypes (which releases the lock during a call), tries
first. Once it succeeds the kernel knows the neighbour, and the handle that sends is made at once.
"""

import ctypes
import ctypes.util
import errno
import os
import queue
import threading
from dataclasses import dataclass
from typing import Final

from probers.transports.rdma.library import NoDeviceError, RdmaError
from schemas.enums import ProbeStatus

LIBRARY: Final = "libibverbs.so.1"
# A dead neighbour takes one of them a second.
THREADS: Final = 4
# What waits to be resolved; a cluster's whole ping list fits, a flood of forged senders does not.
MAX_WAITING: Final = 1_024
_STATUS: Final = {
    errno.ENETUNREACH: ProbeStatus.NO_ROUTE,
    errno.EHOSTUNREACH: ProbeStatus.UNREACHABLE,
    errno.ETIMEDOUT: ProbeStatus.UNREACHABLE,
    errno.ENETDOWN: ProbeStatus.LINK_DOWN,
    errno.ENODEV: ProbeStatus.NO_DEVICE,
    # A route that says blackhole or prohibit.
    errno.EINVAL: ProbeStatus.NO_ROUTE,
    errno.EACCES: ProbeStatus.NO_ROUTE,
    # The table has no entry at the index any more.
    errno.ENODATA: ProbeStatus.NO_GID,
}


class _GlobalRoute(ctypes.Structure):
    """struct ibv_global_route (infiniband/verbs.h)."""

    _fields_ = (
        ("dgid", ctypes.c_uint8 * 16),
        ("flow_label", ctypes.c_uint32),
        ("sgid_index", ctypes.c_uint8),
        ("hop_limit", ctypes.c_uint8),
        ("traffic_class", ctypes.c_uint8),
    )


class _Attributes(ctypes.Structure):
    """struct ibv_ah_attr (infiniband/verbs.h)."""

    _fields_ = (
        ("grh", _GlobalRoute),
        ("dlid", ctypes.c_uint16),
        ("sl", ctypes.c_uint8),
        ("src_path_bits", ctypes.c_uint8),
        ("static_rate", ctypes.c_uint8),
        ("is_global", ctypes.c_uint8),
        ("port_num", ctypes.c_uint8),
    )


@dataclass(frozen=True, slots=True)
class Resolved:
    """The way to a GID is known, or is not: `number` is the error's, 0: known."""

    gid: bytes
    number: int

    @property
    def status(self) -> ProbeStatus:
        """What that says about probes to the GID."""
        if not self.number:
            return ProbeStatus.OK
        return _STATUS.get(self.number, ProbeStatus.UNREACHABLE)


class Resolver:
    """Resolves GIDs in threads; `fileno` is readable when some are.

    Raises
    ------
    RdmaError
        If the device cannot be opened.
    """

    def __init__(self, device: str, *, port: int, gid_index: int, hop_limit: int) -> None:
        self._verbs = _load()
        self._port, self._gid_index, self._hop_limit = port, gid_index, hop_limit
        self._context, self._pd = self._open(device)
        self._wanted: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._done: queue.SimpleQueue[Resolved] = queue.SimpleQueue()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._running = THREADS
        for _ in range(THREADS):
            # Daemon: a kernel call that does not return must not keep the process from ending.
            threading.Thread(target=self._work, name=f"resolve-{device}", daemon=True).start()

    def fileno(self) -> int:
        """Return the descriptor that is readable when `take` has something."""
        return self._reader

    def want(self, gid: bytes) -> bool:
        """Ask for the way to a GID; return whether there was room."""
        try:
            self._wanted.put_nowait(gid)
        except queue.Full:
            return False
        return True

    def take_resolved(self) -> list[Resolved]:
        """Return the GIDs that were resolved, or failed, since the last call."""
        try:
            os.read(self._reader, MAX_WAITING)
        except BlockingIOError:
            return []
        found = []
        while True:
            try:
                found.append(self._done.get_nowait())
            except queue.Empty:
                return found

    def close(self) -> None:
        """End the threads when their calls return; the device is closed then."""
        while True:
            try:
                self._wanted.get_nowait()
            except queue.Empty:
                break
        for _ in range(THREADS):
            self._wanted.put_nowait(None)
        os.close(self._reader)

    def _work(self) -> None:
        while (gid := self._wanted.get()) is not None:
            self._done.put(Resolved(gid, self._try(gid)))
            try:
                os.write(self._writer, b"!")
            except BlockingIOError:
                continue  # it is readable already
            except OSError:
                continue  # the reading end is closed: the resolver is being closed
        with self._lock:
            self._running -= 1
            if self._running:
                return
        os.close(self._writer)
        self._verbs.ibv_dealloc_pd(self._pd)
        self._verbs.ibv_close_device(self._context)

    def _try(self, gid: bytes) -> int:
        """Return 0 if a handle for the GID can be made, else the error's number."""
        attributes = _Attributes(is_global=1, port_num=self._port)
        attributes.grh = _GlobalRoute(
            dgid=(ctypes.c_uint8 * 16)(*gid), sgid_index=self._gid_index, hop_limit=self._hop_limit
        )
        ctypes.set_errno(0)
        handle = self._verbs.ibv_create_ah(self._pd, ctypes.byref(attributes))
        if not handle:
            return ctypes.get_errno() or errno.EIO
        self._verbs.ibv_destroy_ah(handle)
        return 0

    def _open(self, device: str) -> tuple[int, int]:
        count = ctypes.c_int()
        listed = self._verbs.ibv_get_device_list(ctypes.byref(count))
        try:
            for position in range(count.value if listed else 0):
                if self._verbs.ibv_get_device_name(listed[position]) == device.encode():
                    context = self._verbs.ibv_open_device(listed[position])
                    break
            else:
                raise NoDeviceError(f"no RDMA device {device!r}")
        finally:
            if listed:
                self._verbs.ibv_free_device_list(listed)
        if not context:
            raise RdmaError(f"{device}: cannot be opened", ctypes.get_errno())
        pd = self._verbs.ibv_alloc_pd(context)
        if not pd:
            number = ctypes.get_errno()
            self._verbs.ibv_close_device(context)
            raise RdmaError(f"{device}: no protection domain", number)
        return context, pd


def _load() -> ctypes.CDLL:
    try:
        verbs = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        raise RdmaError(f"{LIBRARY} cannot be loaded ({error}): install libibverbs1") from error
    pointer = ctypes.c_void_p
    verbs.ibv_get_device_list.restype = ctypes.POINTER(pointer)
    verbs.ibv_get_device_list.argtypes = [ctypes.POINTER(ctypes.c_int)]
    verbs.ibv_free_device_list.argtypes = [ctypes.POINTER(pointer)]
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    for name in ("ibv_open_device", "ibv_alloc_pd", "ibv_create_ah"):
        getattr(verbs, name).restype = pointer
    for name in (
        "ibv_get_device_name", "ibv_open_device", "ibv_alloc_pd", "ibv_dealloc_pd",
        "ibv_close_device", "ibv_destroy_ah",
    ):  # fmt: skip
        getattr(verbs, name).argtypes = [pointer]
    verbs.ibv_create_ah.argtypes = [pointer, ctypes.POINTER(_Attributes)]
    return verbs
