"""A guard process that ends a JVM when the process that owns it dies.

Run as a script, as a child of the process that wants a server. Its standard
input is the leash: when that ends, by intent or because the owner was killed,
the JVM is ended and the temporary files go. Standard library only, so that it
starts in some 20 ms.

First line of input: `{"argv", "cwd", "log", "grace_s", "remove", "announcement"}`. Then one
command per line, each answered by one line of JSON: `start`, `poll`, `stop`, `kill`.
"""

import contextlib
import ctypes
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1


class Jvm:
    """The one child."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, Any]:
        """Start it; answers its pid."""
        with Path(self._spec["log"]).open("ab") as log:
            self._process = subprocess.Popen(
                self._spec["argv"],
                cwd=self._spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Safe: this process has one thread, and the hook makes one system call.
                preexec_fn=_die_with_guard if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        return {"pid": self._process.pid}

    def poll(self) -> dict[str, Any]:
        """Answer its exit code, null while it runs."""
        return {"code": None if self._process is None else self._process.poll()}

    def stop(self) -> dict[str, Any]:
        """Ask it to end, insist after a while."""
        return self._end(signal.SIGTERM)

    def kill(self) -> dict[str, Any]:
        """End it as a crash would."""
        return self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> dict[str, Any]:
        if self._process is None:
            return {"code": None}
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(self._spec["grace_s"])
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return {"code": self._process.returncode}


def _die_with_guard() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _clean_up(spec: dict[str, Any]) -> None:
    announcement = spec["announcement"]
    if announcement is not None:
        path = Path(announcement["path"])
        with contextlib.suppress(OSError):
            # Another broker may have announced itself since; that one stays.
            if path.read_text(encoding="utf-8") == announcement["text"]:
                path.unlink()
    if spec["remove"] is not None:
        shutil.rmtree(spec["remove"], ignore_errors=True)


def _leave(_signum: int, _frame: Any) -> None:
    raise SystemExit(0)


def main() -> None:
    """Serve commands until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    spec = json.loads(sys.stdin.readline())
    jvm = Jvm(spec)
    commands: dict[str, Callable[[], dict[str, Any]]] = {
        "start": jvm.start, "poll": jvm.poll, "stop": jvm.stop, "kill": jvm.kill,
    }  # fmt: skip
    try:
        for line in sys.stdin:
            try:
                answer = commands[line.strip()]()
            except OSError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)
    except BrokenPipeError:
        pass  # the owner is gone; so is the leash
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Data that is about to be removed needs no clean end.
        (jvm.kill if spec["remove"] is not None else jvm.stop)()
        _clean_up(spec)


if __name__ == "__main__":
    main()
