"""Reads /proc: which processes there are, their environment, state, sockets and namespace.

None of it waits for the process: what is read of a stopped one is what the kernel holds of it.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from probers.collectives.processes import ProcessReading, boot_time, parse_stat

# The kernel lets a program begin with some megabytes; names of ranks stand in the first part.
MAX_ENVIRONMENT_BYTES: Final = 256 * 1024
MAX_STAT_BYTES: Final = 4_096
MAX_STATUS_BYTES: Final = 16_384
# Of a process; more than its limit of open files usually is.
MAX_DESCRIPTORS: Final = 65_536
_SOCKET: Final = "socket:["


class ProcFs:
    """A procfs, as it is mounted at a path.

    Raises
    ------
    OSError, ValueError
        If there is none.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._ticks_hz = os.sysconf("SC_CLK_TCK")
        self._boot_s = boot_time((root / "stat").read_text(encoding="ascii"))

    def pids(self) -> set[int]:
        """Return all processes."""
        return {int(name) for name in os.listdir(self._root) if name.isdecimal()}

    def process(self, pid: int) -> ProcessReading | None:
        """Return how a process is; None: there is none."""
        try:
            text = self._read(f"{pid}/stat", MAX_STAT_BYTES).decode("utf-8", "replace")
            return parse_stat(text, ticks_hz=self._ticks_hz, boot_s=self._boot_s)
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None

    def environment(self, pid: int) -> bytes | None:
        """Return what a process was started with; None: there is none.

        Raises
        ------
        PermissionError
            Of another user's, without CAP_SYS_PTRACE.
        """
        try:
            content = self._read(f"{pid}/environ", MAX_ENVIRONMENT_BYTES)
        except (FileNotFoundError, ProcessLookupError):
            return None
        if len(content) < MAX_ENVIRONMENT_BYTES:
            return content
        # The last variable may be cut: rank 12 is not rank 1.
        return content[: content.rfind(b"\0") + 1]

    def socket_inodes(self, pid: int) -> set[int]:
        """Return the inodes of a process's sockets.

        Raises
        ------
        OSError
            If there is no such process, or it is another user's and CAP_SYS_PTRACE is missing.
        """
        return set(self._inodes(f"{self._root}/{pid}/fd"))

    def own_namespace(self) -> int:
        """Return the inode of the network namespace of this process."""
        return os.stat("/proc/self/ns/net").st_ino

    def namespace(self, pid: int) -> int:
        """Return the inode of a process's network namespace.

        Raises
        ------
        OSError
            As `socket_inodes`.
        """
        return os.stat(self.namespace_path(pid)).st_ino

    def namespace_path(self, pid: int) -> Path:
        """Return where a process's network namespace can be opened."""
        return Path(f"{self._root}/{pid}/ns/net")

    def inner_pid(self, pid: int) -> tuple[int, int]:
        """Return a process's number as it sees itself, and the inode of the namespace of that.

        Raises
        ------
        OSError
            As `socket_inodes`.
        """
        namespace = os.stat(f"{self._root}/{pid}/ns/pid").st_ino
        text = self._read(f"{pid}/status", MAX_STATUS_BYTES).decode("utf-8", "replace")
        # A namespace in the other, the innermost last. The name of the program has its line breaks
        # written out.
        lines = (line for line in text.split("\n") if line.startswith("NSpid:"))
        numbers = next(lines, "").split()[1:]
        return int(numbers[-1]) if numbers and numbers[-1].isdecimal() else pid, namespace

    def owner(self, pid: int) -> int:
        """Return the user whose a process is.

        Raises
        ------
        OSError
            If there is no such process.
        """
        return os.stat(f"{self._root}/{pid}").st_uid

    def folder_of(self, pid: int) -> str:
        """Return a process's working folder, as it names it itself.

        Raises
        ------
        OSError
            As `socket_inodes`.
        """
        folder = os.readlink(f"{self._root}/{pid}/cwd")
        root = os.readlink(f"{self._root}/{pid}/root")
        # The kernel writes both as the collector would reach them.
        within = f"{root.rstrip('/')}/"
        return f"/{folder[len(within) :]}" if f"{folder}/".startswith(within) else folder

    def root_of(self, pid: int) -> str:
        """Return where a process's root folder is, whatever container it is in."""
        return f"{self._root}/{pid}/root"

    def _inodes(self, folder: str) -> Iterator[int]:
        for name in os.listdir(folder)[:MAX_DESCRIPTORS]:
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith(_SOCKET):
                    yield int(target[len(_SOCKET) : -1])

    def _read(self, name: str, limit: int) -> bytes:
        descriptor = os.open(f"{self._root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, limit)
        finally:
            os.close(descriptor)
