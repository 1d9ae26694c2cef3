"""Imports pyverbs where an RNIC is to use RDMA, in either of its layouts.

Debian's python3-pyverbs (44) has its constants in `pyverbs.enums`, newer distributions (59) have
them in enumerations of `pyverbs.libibverbs_enums`. Both are thin layers over libibverbs.
"""

import errno
import importlib
import os
import resource
from dataclasses import dataclass
from enum import EnumType
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from probers.config.rnics import INFINIBAND

ENUM_MODULES: Final = ("pyverbs.enums", "pyverbs.libibverbs_enums")
# One completion channel each; that is how the kernel names their descriptors.
_EVENT_LINK: Final = "infinibandevent"
# A device locks its queues as well, and other RNICs of the agent count against the same limit.
MEMLOCK_ROOM: Final = 16
UNLIMITED: Final = resource.RLIM_INFINITY


class RdmaError(OSError):
    """Verbs cannot be used; `strerror` says why, and what to do about it."""

    def __init__(self, reason: str, number: int = 0) -> None:
        super().__init__(number, reason)


class NoGidError(RdmaError):
    """The port has no GID that fits."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, errno.EADDRNOTAVAIL)


class NoDeviceError(RdmaError):
    """The RNIC is not there."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, errno.ENODEV)


@dataclass(frozen=True, slots=True)
class Library:
    """The modules of pyverbs that are used."""

    enums: Any
    addr: ModuleType
    cq: ModuleType
    device: ModuleType
    mr: ModuleType
    pd: ModuleType
    qp: ModuleType
    wr: ModuleType
    error: type[Exception]


def load() -> Library:
    """Return pyverbs.

    Raises
    ------
    RdmaError
        If it is not installed, or its libraries do not fit.
    """
    try:
        modules = {
            name: importlib.import_module(f"pyverbs.{name}")
            for name in ("addr", "cq", "device", "mr", "pd", "qp", "wr")
        }
        error = importlib.import_module("pyverbs.pyverbs_error").PyverbsError
        return Library(enums=_enums(), error=error, **modules)
    except ImportError as error_:
        raise RdmaError(
            f"pyverbs cannot be imported ({error_}): install python3-pyverbs of the distribution "
            '(its libibverbs fits), or set transport = "udp"'
        ) from error_


def _enums() -> Any:
    for name in ENUM_MODULES[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return members(importlib.import_module(ENUM_MODULES[-1]))


def members(module: ModuleType) -> SimpleNamespace:
    """Return the constants of a module that has them in enumerations, each by its own name."""
    kinds: list[Any] = [kind for kind in vars(module).values() if isinstance(kind, EnumType)]
    found: dict[str, Any] = {
        name: member for kind in kinds for name, member in kind.__members__.items()
    }
    return SimpleNamespace(**{**found, **vars(module)})


def channel_descriptor(library: Library, context: Any) -> tuple[Any, int]:
    """Return a new completion channel and its descriptor.

    pyverbs 44 does not expose the descriptor; it is the one that is new in the process.
    """
    before = _event_descriptors()
    channel = library.cq.CompChannel(context)
    fd = getattr(channel, "fd", None)
    if isinstance(fd, int):
        return channel, fd
    (found,) = _event_descriptors() - before
    return channel, found


def _event_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if _EVENT_LINK in os.readlink(f"/proc/self/fd/{name}"):
                found.add(int(name))
        except OSError:  # the listing's own descriptor is gone by now
            continue
    return found


def explain(error: Exception, *, device: str, wanted_bytes: int) -> RdmaError:
    """Return why a device, a queue or a memory region could not be had, with what to do.

    Parameters
    ----------
    wanted_bytes : memory that was to be registered
    """
    number = _number(error)
    if not (INFINIBAND / device).exists():
        present = sorted(p.name for p in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []
        has = f"this host has {', '.join(present)}" if present else "this host has no RDMA device"
        return NoDeviceError(f"no RDMA device {device!r}: {has}")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if (
        number in (errno.ENOMEM, errno.EAGAIN)
        and soft != UNLIMITED
        and soft < wanted_bytes * MEMLOCK_ROOM
    ):
        return RdmaError(
            f"{device}: memory cannot be locked: the limit (memlock) is {soft} bytes; "
            "set LimitMEMLOCK=infinity (systemd), ulimits.memlock=-1 (Docker) or add "
            "CAP_IPC_LOCK",
            number,
        )
    if number == errno.EACCES or isinstance(error, PermissionError):
        return RdmaError(
            f"{device}: /dev/infiniband may not be opened: add the user to the group rdma, "
            "or give the container the device",
            number,
        )
    return RdmaError(f"{device}: {str(error).strip() or type(error).__name__}", number)


def _number(error: Exception) -> int:
    code = getattr(error, "error_code", None) or getattr(error, "errno", None)
    return int(code) if isinstance(code, int) else 0
