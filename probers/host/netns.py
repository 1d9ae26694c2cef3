"""Opens sockets and sysfs of other network namespaces; the agent itself stays in its own.

A socket belongs to the namespace in which it was opened, wherever it is used later. So a new
thread enters the namespace, opens the socket and ends, and nothing has to be restored. A mount of
sysfs shows the devices of the namespace in which it was made; a mount without a mount point is
reached by its descriptor. Both need CAP_SYS_ADMIN.
"""

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from probers.config.rnics import RnicConfig

T = TypeVar("T")

SYSFS: Final = Path("/sys")
# linux/sched.h, linux/mount.h; the numbers of these calls are the same on all machines.
_CLONE_NEWNET: Final = 0x40000000
_SYS_FSOPEN: Final = 430
_SYS_FSCONFIG: Final = 431
_SYS_FSMOUNT: Final = 432
_FSOPEN_CLOEXEC: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6
_FSMOUNT_CLOEXEC: Final = 1


def inside(namespace: Path, work: Callable[[], T]) -> T:
    """Call `work` in a thread that is in the namespace; return what it returns.

    Raises
    ------
    OSError
        If the namespace cannot be entered, or `work` raises it.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _enter(namespace)
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="netns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def sysfs_folder(namespace: Path, folder: Path) -> Path:
    """Return a path by which `folder`, below /sys, is that of the namespace.

    It holds as long as the process lives, even when the namespace loses its name.

    Raises
    ------
    OSError
        If the namespace cannot be entered, or its sysfs cannot be mounted.
    """
    mounted = inside(namespace, _mount_sysfs)
    return Path(f"/proc/self/fd/{mounted}") / folder.relative_to(SYSFS)


def located(config: RnicConfig) -> RnicConfig:
    """Return the settings with a counters' folder that the agent's own namespace can read.

    Raises
    ------
    OSError
        If the RNIC's namespace cannot be entered.
    """
    folder, namespace = config.counters, config.host_netns
    if folder is None or namespace is None or not folder.is_relative_to(SYSFS):
        return config
    return replace(config, counters=sysfs_folder(namespace, folder))


def _enter(namespace: Path) -> None:
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _fail(error.errno or 0, namespace)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            _fail(ctypes.get_errno(), namespace)
    finally:
        os.close(descriptor)


def _fail(number: int, namespace: Path) -> NoReturn:
    hint = " (CAP_SYS_ADMIN is needed)" if number == errno.EPERM else ""
    raise OSError(number, f"network namespace {namespace}: {os.strerror(number)}{hint}")


def _mount_sysfs() -> int:
    """Return the descriptor of a new sysfs of this thread's namespace, mounted nowhere."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*arguments: int | bytes | None) -> int:
        result = int(libc.syscall(*arguments))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"sysfs of a namespace: {os.strerror(number)}")
        return result

    context = call(_SYS_FSOPEN, b"sysfs", _FSOPEN_CLOEXEC)
    try:
        call(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return call(_SYS_FSMOUNT, context, _FSMOUNT_CLOEXEC, 0)
    finally:
        os.close(context)
