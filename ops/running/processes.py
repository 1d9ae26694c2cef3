"""Child processes of the demo, the labs and the benchmarks: started together, never left behind."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

PR_SET_PDEATHSIG: Final = 1
STOP_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
# Lines of a dead child's log that go into the error message.
TAIL_LINES: Final = 15


class ChildDiedError(RuntimeError):
    """A child ended that should have gone on; the message holds the end of its log."""


@dataclass(slots=True)
class Child:
    """A started process."""

    name: str
    argv: list[str]
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of its log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return what it has logged or printed as JSON objects, one a line.

        Parameters
        ----------
        names
            Of the events that are wanted; none: all of them.
        """
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # what a library prints by itself
            if isinstance(event, dict) and (not names or event.get("event") in names):
                found.append(event)
        return found


def die_with_parent() -> None:
    """Ask the kernel to end this child when its parent dies, however it dies (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class ProcessGroup:
    """Starts children and stops all of them when the block is left.

    Each child has a session of its own, so that a Ctrl-C in the terminal
    reaches only the parent, which then stops the children in order.
    """

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        self._log_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> Child:
        """Start a child; its output goes to `<log_dir>/<name>.log`.

        Raises
        ------
        ValueError
            If a child of that name still runs.
        """
        old = self._children.get(name)
        if old is not None and old.running:
            raise ValueError(f"{name} runs already (pid {old.pid})")
        path = self._log_dir / f"{name}.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                # Safe here: the parents are single-threaded when they start children,
                # and the hook makes one system call.
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        child = Child(name, list(argv), path, process)
        self._children[name] = child
        return child

    def child(self, name: str) -> Child:
        """Return the child of that name; raises KeyError."""
        return self._children[name]

    def names(self) -> list[str]:
        """Return the names of all children started, in order."""
        return list(self._children)

    def check(self) -> None:
        """Raise ChildDiedError if a child has ended by itself."""
        for child in self._children.values():
            code = child.process.poll()
            if code is not None:
                raise ChildDiedError(f"{child.name} ended with code {code}:\n{child.log_tail()}")

    def stop(self, name: str, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """End a child with SIGTERM, with SIGKILL when that takes too long; return its code."""
        child = self._children.pop(name)
        if child.running:
            child.process.terminate()
        try:
            return child.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.process.kill()
            return child.process.wait()

    def kill(self, name: str) -> None:
        """End a child with SIGKILL, as a crash would."""
        child = self._children.pop(name)
        child.process.kill()
        child.process.wait()

    def stop_all(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End all children, the last started first, waiting for them together."""
        children = [c for c in reversed(list(self._children.values())) if c.running]
        for child in children:
            child.process.terminate()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and any(c.running for c in children):
            time.sleep(POLL_S)
        for child in children:
            if child.running:
                child.process.kill()
            child.process.wait()
        self._children.clear()
