"""The folder of a running lab: private, locked by its owner, gone when the lab is down."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ops.lab.errors import LabError
from ops.lab.netns.commands import remove_namespaces
from schemas.kafka.connection import state_dir
from schemas.process.files import parse_json, read_file

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
LOCK_FILE: Final = "lock"
INFO_FILE: Final = "lab.json"
PIDS_FILE: Final = "pids.json"
CONTROL_FILE: Final = "control.sock"
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
# An agent that lost its parent says goodbye on the topics; until it has, its
# tombstones could remove what a new lab registers under the same ids.
GOODBYE_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.05


class LabFolderError(LabError):
    """The folder cannot be had: another lab has it, or its name is no name."""


def labs_dir() -> Path:
    """Return the folder that holds the folders of all labs."""
    return state_dir() / "lab"


def lab_path(name: str) -> Path:
    """Return the folder of a lab.

    Raises
    ------
    LabFolderError
        If the name has other than 1 to 31 lower-case letters, digits and hyphens.
    """
    if not NAME.fullmatch(name):
        raise LabFolderError(
            f"lab name {name!r}: 1 to 31 lower-case letters, digits, '-', not beginning with '-'"
        )
    return labs_dir() / name


class LabFolder:
    """A lab's folder, held by a lock that the kernel releases when the owner ends, however."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def acquire(cls, name: str) -> "LabFolder":
        """Take the folder; what a crashed lab has left in it is removed, processes included.

        Raises
        ------
        LabFolderError
            If a lab of that name is up.
        """
        path = lab_path(name)
        while True:
            path.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            lock = _lock(path)
            if lock is not None:
                break
        folder = cls(path, lock)
        try:
            folder._clean()
        except BaseException:
            os.close(lock)
            raise
        return folder

    def _clean(self) -> None:
        end_leftovers(self.path)
        remove_namespaces(self.path)
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != LOCK_FILE:
                entry.unlink(missing_ok=True)

    def write(self, name: str, content: Mapping[str, Any] | list[Any]) -> None:
        """Write a JSON file that others read: at once, whole, private."""
        new = self.path / f"{name}.new"
        new.touch(FILE_MODE)
        new.write_text(json.dumps(content), encoding="utf-8")
        new.replace(self.path / name)

    def release(self) -> None:
        """Remove the folder with everything in it, and what namespaces its lab has left."""
        try:
            remove_namespaces(self.path)
        finally:
            shutil.rmtree(self.path, ignore_errors=True)
            # Only now may another lab have it: it finds that the lock's file is a new one.
            os.close(self._lock)


def _lock(path: Path) -> int | None:
    """Return the locked descriptor; None if the folder vanished meanwhile."""
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path / LOCK_FILE).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except FileNotFoundError:
        pass
    except BlockingIOError:
        os.close(descriptor)
        pid = info(path).get("pid", "unknown")
        raise LabFolderError(
            f"lab {path.name!r} is up already (pid {pid}); end it with "
            f"`lab down --name {path.name}`, or choose another --name"
        ) from None
    os.close(descriptor)
    return None


def info(path: Path) -> dict[str, Any]:
    """Return what the owner wrote about its lab; {} if there is nothing."""
    found = _read(path / INFO_FILE, {})
    return found if isinstance(found, dict) else {}


def _read(path: Path, default: Any) -> Any:
    try:
        return parse_json(read_file(path))
    except (OSError, ValueError):
        return default


def is_up(path: Path) -> bool:
    """Return whether a living process holds the folder."""
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def end_leftovers(path: Path) -> list[int]:
    """End processes that a crashed lab has left behind; return their pids.

    Only those whose command line names the lab's folder: a pid may have been
    given to somebody else meanwhile.
    """
    pids = [pid for pid in _read(path / PIDS_FILE, []) if isinstance(pid, int)]
    found = [pid for pid in pids if str(path) in command_line(pid)]
    for pid in found:
        with suppress(ProcessLookupError):
            # A stopped process gets the SIGTERM only when it goes on.
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + GOODBYE_TIMEOUT_S
    while any(_living(found, path)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for pid in _living(found, path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _living(pids: list[int], path: Path) -> Iterator[int]:
    return (pid for pid in pids if str(path) in command_line(pid))


def command_line(pid: int) -> str:
    """Return the command line of a process; "" if there is none."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        pass
    if Path("/proc/self").exists():
        return ""
    done = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
